# SPDX-License-Identifier: Apache-2.0
"""answer_vllm.py MODEL: answers by vLLM on a pool."""
import itertools
import sys

from token_lines import Answer, Emit, serve
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.sampling_params import RequestOutputKind

import paged.vllm

MAX_LENGTH = 8192


def load() -> Answer:
    # Without compilation, which takes longer than the demonstration.
    engine = LLMEngine.from_engine_args(EngineArgs(model=sys.argv[1], dtype="float32", max_model_len=MAX_LENGTH,
                                                   enforce_eager=True, **paged.vllm.arguments()))
    numbers = itertools.count()

    def answer(prompt: list[int], max_tokens: int, emit: Emit) -> None:
        parameters = SamplingParams(temperature=0, max_tokens=max_tokens, output_kind=RequestOutputKind.DELTA)
        engine.add_request(str(next(numbers)), {"prompt_token_ids": prompt}, parameters)
        while engine.has_unfinished_requests():
            for output in engine.step():
                for token in output.outputs[0].token_ids:
                    emit(token)

    return answer


# vLLM starts processes that import this file again.
if __name__ == "__main__":
    serve(load)
