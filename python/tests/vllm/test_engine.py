# SPDX-License-Identifier: Apache-2.0
"""Engines of vLLM with the pool of a pagedd, next to engines with memory of their own."""
from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
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


def test_compiled(tmp_path: Path, start_daemon: Callable[..., Any], start_engine: Callable[..., Any]) -> None:
    """Models that vLLM compiles; both engines keep them in one directory."""
    daemon = start_daemon(pool_configuration(pages=128))
    keywords = {"enforce_eager": False, "environment": {"VLLM_CACHE_ROOT": str(tmp_path / "compiled")}}
    own = start_engine(**keywords)
    right = [own.generate(prompts(n, length), 40) for n, length in ((1, 5), (4, 50), (8, 200))]
    own.close()
    pooled = start_engine({"runtime_dir": str(daemon.runtime_dir)}, **keywords)
    for _ in range(2):
        assert [pooled.generate(prompts(n, length), 40) for n, length in ((1, 5), (4, 50), (8, 200))] == right
    assert all("Warming up model for the compilation" in engine.log.read_text() for engine in (own, pooled))
    assert any((tmp_path / "compiled" / "torch_compile_cache").rglob("*.cpp"))
    with daemon.connect() as client:
        check = client.check("small")
        assert check.holds and check.n_referenced == 0, check.text


def test_intel_openmp(start_daemon: Callable[..., Any], start_engine: Callable[..., Any]) -> None:
    """vLLM recommends to load Intel's OpenMP before PyTorch's own; threads of both are in the process then."""
    library = Path(sys.prefix) / "lib" / "libiomp5.so"
    if not library.exists():
        pytest.skip(f"{library} is missing (package intel-openmp)")
    daemon = start_daemon(pool_configuration(pages=128))
    pooled = start_engine({"runtime_dir": str(daemon.runtime_dir)},
                          environment={"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "2"})
    own = start_engine()
    for n, length in (1, 5), (4, 50), (8, 200):
        assert pooled.generate(prompts(n, length), 40) == own.generate(prompts(n, length), 40)
    maps = [Path(f"/proc/{pid}/maps") for pid in session_processes(pooled.process.pid)]
    assert any(library.name in path.read_text() for path in maps)
    with daemon.connect() as client:
        assert client.check("small").holds


def session_processes(leader: int) -> list[int]:
    """The processes of the session that a process leads."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(path.name)) == leader:
                found.append(int(path.name))
        except ProcessLookupError:
            pass
    return found
