# SPDX-License-Identifier: Apache-2.0
"""answer_privately.py MODEL: answers by transformers with its own cache, without paged: the reference.

A prompt that begins as the one before it starts on what the cache has of that.
"""
import sys
from itertools import takewhile
from typing import Any

import torch
from token_lines import Answer, Emit, serve
from transformers import AutoModelForCausalLM, DynamicCache


def load() -> Answer:
    model: Any = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    cache = DynamicCache(config=model.config)
    known: list[int] = []       # the tokens whose K and V are in the cache

    def next_token() -> tuple[int, float]:
        """The best token after known, and its lead."""
        with torch.no_grad():
            new = torch.tensor([known[cache.get_seq_length():]])
            best = model(new, past_key_values=cache, logits_to_keep=1).logits[0, -1].topk(2)
        return int(best.indices[0]), float(best.values[0] - best.values[1])

    def answer(prompt: list[int], max_tokens: int, emit: Emit) -> None:
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, prompt[:-1])))
        cache.crop(min(common, cache.get_seq_length()) - cache.get_seq_length())
        known[:] = prompt
        for _ in range(max_tokens):
            token, lead = next_token()
            known.append(token)
            emit(token, lead=lead)
            if token == model.config.eos_token_id:
                break

    return answer


serve(load)
