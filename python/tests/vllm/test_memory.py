# SPDX-License-Identifier: Apache-2.0
"""The memory that vLLM takes for a KV cache which a pool replaces: none."""
from __future__ import annotations

import gc
from pathlib import Path

import pytest

pytest.importorskip("vllm")

import torch
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheLayout,
    KVCacheTensor,
)
from vllm.v1.worker.utils import allocate_kv_cache

from paged.vllm.memory import MIN_BYTES, Untouched

GIB = 1 << 30


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096


def test_takes_no_memory() -> None:
    before, mapped = resident_bytes(), mapped_bytes()
    with Untouched():
        zeros = torch.zeros(64 * GIB, dtype=torch.int8, device=torch.device("cpu"))
    assert zeros.shape == (64 * GIB,) and zeros.dtype == torch.int8
    assert not zeros[::GIB].any()
    zeros[5] = 3
    assert zeros[:10].sum() == 3
    assert resident_bytes() - before < GIB
    del zeros
    gc.collect()
    assert mapped_bytes() - mapped < GIB


@pytest.mark.parametrize("size", [(1024, 1024), [1024, 1024], torch.Size([1024, 1024])])
def test_shapes_and_types(size: object) -> None:
    with Untouched():
        for zeros in (torch.zeros(size), torch.zeros(size=size), torch.zeros(1024, 1024),
                      torch.zeros(*size, dtype=torch.bfloat16)):
            assert zeros.shape == (1024, 1024) and not zeros.any()
        assert zeros.dtype == torch.bfloat16


def test_other_tensors() -> None:
    """Small ones, and those that are not zeros, are made as ever."""
    with Untouched():
        assert torch.zeros(MIN_BYTES - 1, dtype=torch.uint8).sum() == 0
        assert torch.zeros(MIN_BYTES, device="meta").device.type == "meta"
        assert torch.ones(MIN_BYTES).all()
        assert torch.zeros(()).item() == 0


def test_kv_cache() -> None:
    """What vLLM allocates in the context: views of one tensor that was never written."""
    spec = FullAttentionSpec(block_size=32, num_kv_heads=8, head_size=128, dtype=torch.bfloat16)
    names = [f"model.layers.{i}.attn" for i in range(2)]
    n_blocks = 16 * GIB // spec.page_size_bytes
    config = KVCacheConfig(
        num_blocks=n_blocks, kv_cache_groups=[KVCacheGroupSpec(names, spec)],
        kv_cache_tensors=[KVCacheTensor(2 * n_blocks * spec.page_size_bytes, names,
                                        layer_stride=n_blocks * spec.page_size_bytes,
                                        block_stride=spec.page_size_bytes)])
    before = resident_bytes()
    with Untouched():
        caches = allocate_kv_cache(config, torch.device("cpu"), KVCacheLayout.LBHNC, [32])
    assert sorted(caches) == names and all(cache.shape[0] == n_blocks for cache in caches.values())
    assert not caches[names[1]][n_blocks - 1].any()
    assert resident_bytes() - before < GIB
