# SPDX-License-Identifier: Apache-2.0
"""generate() with fixed settings, and what of it was computed."""
from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import paged
from paged.transformers import disable, enable

N_NEW = 24

# More threads than idle CPUs would only wait for each other in models this small.
torch.set_num_threads(1)


def generate(model: Any, tokens: torch.Tensor, mask: torch.Tensor | None = None, **arguments: Any) -> torch.Tensor:
    """Prompt and answer [n_rows, n_columns] of a generate(), greedy and of N_NEW tokens but for other arguments."""
    settings = {"max_new_tokens": N_NEW, "do_sample": False, **arguments}
    torch.manual_seed(7)
    result = model.generate(tokens, attention_mask=torch.ones_like(tokens) if mask is None else mask, **settings)
    sequences: torch.Tensor = result if isinstance(result, torch.Tensor) else result.sequences
    return sequences


@contextmanager
def enabled(pool: paged.Pool | str | None = None, **settings: Any) -> Iterator[None]:
    enable(pool, **settings)
    try:
        yield
    finally:
        disable()


class Computed:
    """The number of columns that the passes of a model compute."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.columns: list[int] = []
        self._model = model
        forward = model.forward

        # Not a hook: a model with hooks shares nothing.
        @functools.wraps(forward)
        def count(*arguments: Any, **named: Any) -> Any:
            self.columns.append(named["input_ids"].shape[1])
            return forward(*arguments, **named)

        model.forward = count

    @property
    def first(self) -> int:
        """Those of the first pass."""
        return self.columns[0]

    def __enter__(self) -> Computed:
        return self

    def __exit__(self, *error: object) -> None:
        del self._model.forward
