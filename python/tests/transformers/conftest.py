# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a small model, and a pool that it fits."""
from collections.abc import Iterator
from typing import Any

import pytest

import paged


@pytest.fixture
def model() -> Any:
    """A small Llama with random weights."""
    from model_cases import make_model

    return make_model("llama")


@pytest.fixture
def pool(model: Any) -> Iterator[paged.Pool]:
    """A pool in this process.  At the end nothing may be left in it, and generate() is that of transformers."""
    from model_cases import pool_for

    from paged.transformers import disable

    with pool_for(model) as pool:
        yield pool
        disable()
