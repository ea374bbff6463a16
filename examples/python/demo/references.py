# SPDX-License-Identifier: Apache-2.0
"""The answers that are right: those of transformers with a cache of its own."""
import os
from collections.abc import Sequence
from typing import NamedTuple

import document
from engines import Engine, Failure, Setup
from tokenizers import Tokenizer

# Engines add the same numbers in different orders: logits differ by 3e-5 (tests/llama/it_llama.c).
CLEAR_LEAD = 1e-3


class Question(NamedTuple):
    text: str
    prompt: list[int]
    answer: list[int]
    lead: float                 # the smallest of the best logit over the next, in the answer


class References:
    """The questions about a document of a size, with their answers."""

    def __init__(self, setup: Setup, size: document.Size) -> None:
        tokenizer = Tokenizer.from_file(str(setup.model / "tokenizer.json"))
        self.size = size
        self.questions: list[Question] = []
        engine = Engine(setup, "transformers alone")
        try:
            engine.wait_ready()
            for text in document.QUESTIONS[:size.n_questions]:
                prompt = tokenizer.encode(document.prompt(size.n_days, text), add_special_tokens=False).ids
                answer = engine.answer(prompt, size.n_tokens)
                self.questions.append(Question(text, prompt, answer.tokens, min(answer.leads)))
        finally:
            engine.kill()
        # The others have answers with a token that rounding decides.
        self.questions = [question for question in self.questions if question.lead > CLEAR_LEAD]
        # The beginning that all prompts have in common, with the document.
        self.n_common = len(os.path.commonprefix([question.prompt for question in self.questions]))
        self.uncut = [question for question in self.questions if len(question.answer) == size.n_tokens]
        if len(self.uncut) < 4:
            raise Failure(f"{len(self.uncut)} answers have {size.n_tokens} tokens, 4 are needed")

    def verify(self, engine: str, question: Question, tokens: Sequence[int]) -> None:
        """Raise Failure if tokens are not the answer to the question."""
        for i, (token, right) in enumerate(zip(tokens, question.answer, strict=False)):
            if token != right:
                raise Failure(f"{engine}, \"{question.text}\": token {i} of the answer is {token}, on a private cache "
                              f"{right}")
        if len(tokens) != len(question.answer):
            raise Failure(f"{engine}, \"{question.text}\": the answer has {len(tokens)} tokens, on a private cache "
                          f"{len(question.answer)}")
