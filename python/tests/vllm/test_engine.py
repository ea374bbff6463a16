# SPDX-License-Identifier: Apache-2.0
"""Engines of vLLM with the pool of a pagedd, next to engines with memory of their own."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")


def prompts(n: int, length: int, seed: int = 1) -> list[list[int]]:
    generator = random.Random(seed)
    return [[generator.randrange(3, 128) for _ in range(length + i)] for i in range(n)]


def test_without_connector(start_engine: Callable[..., Any]) -> None:
    """The plug-in changes nothing in an engine that does not use a pool."""
    engine = start_engine()
    first = engine.generate(prompts(4, 50))
    assert engine.generate(prompts(4, 50)) == first
    assert "PagedConnector" not in engine.log.read_text()
