# SPDX-License-Identifier: Apache-2.0
"""The mods of vLLM's layers; test_backend.py compares what they compute with vLLM's own."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import paged  # noqa: E402
from paged.vllm.mods import Mods  # noqa: E402

POOL = {"name": "mods", "n_layers": 1, "n_kv_heads": 2, "k_dim": 16, "dtype": "f32", "n_pages": 8}


@pytest.mark.parametrize("arguments, mask, score", [
    ((None, None, None), None, None),
    ((0, None, 0.0), None, None),
    ((-1, None, None), None, None),
    ((4096, None, None), "q_idx - kv_idx < window", None),
    ((None, None, 30.0), None, "cap * tanh(score / cap)"),
    ((None, [0.5, 0.25], None), None, "score + slope[h] * (kv_idx - q_idx)"),
    ((7, [0.5, 0.25], 30.0), "q_idx - kv_idx < window", "cap * tanh(score / cap) + slope[h] * (kv_idx - q_idx)"),
])
def test_texts(arguments: tuple[object, ...], mask: str | None, score: str | None) -> None:
    mods = Mods.of_layer(*arguments)  # type: ignore[arg-type]
    assert (mods.mask, mods.score) == (mask, score)
    with paged.embedded(POOL, threads=1, run="own") as client, client.pool("mods").batch() as batch:
        mod_set = mods.bind(batch)
        assert (mod_set is None) == (mask is None and score is None)


def test_equal_layers() -> None:
    """Layers share a mod set if nothing differs."""
    assert Mods.of_layer(7, [0.5], 3.0) == Mods.of_layer(7, (0.5,), 3.0)
    assert len({Mods.of_layer(7, [0.5], 3.0), Mods.of_layer(7, [0.5], 3.0), Mods.of_layer(8, [0.5], 3.0)}) == 2
    assert Mods.of_layer(None, None, 0.0) == Mods()
