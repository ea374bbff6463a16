# SPDX-License-Identifier: Apache-2.0
"""Engines of vLLM with the pool of a pagedd, next to engines with memory of their own."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")

from conftest import pool_configuration


def prompts(n: int, length: int, seed: int = 1) -> list[list[int]]:
    generator = random.Random(seed)
    return [[generator.randrange(3, 128) for _ in range(length + i)] for i in range(n)]


def test_without_connector(start_engine: Callable[..., Any]) -> None:
    """The plug-in changes nothing in an engine that does not use a pool."""
    engine = start_engine()
    first = engine.generate(prompts(4, 50))
    assert engine.generate(prompts(4, 50)) == first
    assert "PagedConnector" not in engine.log.read_text()


@pytest.mark.parametrize("page_size", [16, 32])
def test_same_tokens(start_daemon: Callable[..., Any], start_engine: Callable[..., Any], page_size: int) -> None:
    daemon = start_daemon(pool_configuration(page_size=page_size, pages=128))
    pooled = start_engine({"runtime_dir": str(daemon.runtime_dir)})
    own = start_engine(block_size=32)
    for n, length in (1, 5), (4, 50), (8, 200):
        assert pooled.generate(prompts(n, length), 40) == own.generate(prompts(n, length), 40)
    with daemon.connect() as client:
        assert client.check("small").holds
