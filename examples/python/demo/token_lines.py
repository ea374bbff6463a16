# SPDX-License-Identifier: Apache-2.0
"""The protocol between the demonstration and the engines, which paged-llama --token-lines has, too.

stdin has a prompt in each line: the most tokens of the answer, and the prompt's token ids.  stdout gets
{"ready": true} when the engine can answer, {"token": ID} as soon as a token is there, and {"tokens": N} at the end of
an answer.  The reference's tokens have a field "lead" more: that of the best logit over the next.
"""
import json
import os
import sys
from collections.abc import Callable

# emit(token), or emit(token, lead=...)
Emit = Callable[..., None]
# answer(prompt, max_tokens, emit)
Answer = Callable[[list[int], int, Emit], None]


def serve(load: Callable[[], Answer]) -> None:
    """Load an engine, and answer until stdin ends."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    # What libraries print does not come between the replies.
    os.dup2(2, 1)
    answer = load()
    print(json.dumps({"ready": True}), file=replies)
    tokens: list[int] = []

    def emit(token: int, **more: float) -> None:
        tokens.append(token)
        print(json.dumps({"token": token, **more}), file=replies)

    for line in sys.stdin:
        max_tokens, *prompt = map(int, line.split())
        tokens.clear()
        answer(prompt, max_tokens, emit)
        print(json.dumps({"tokens": len(tokens)}), file=replies)
