# SPDX-License-Identifier: Apache-2.0
"""answer_transformers.py MODEL: answers by generate() of transformers; enable() is all that paged needs."""
import sys
from typing import Any

import torch
from token_lines import Answer, Emit, serve
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

import paged.transformers


class Emitter(BaseStreamer):
    """Passes tokens on as generate() makes them."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._prompt_is_next = True

    def put(self, value: Any) -> None:
        if not self._prompt_is_next:
            self._emit(int(value))
        self._prompt_is_next = False

    def end(self) -> None:
        pass


def load() -> Answer:
    # Before the model is loaded: its weights are then known to be those that pagedd.conf names.
    paged.transformers.enable()
    model: Any = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)

    def answer(prompt: list[int], max_tokens: int, emit: Emit) -> None:
        model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                       max_new_tokens=max_tokens, do_sample=False, streamer=Emitter(emit))

    return answer


serve(load)
