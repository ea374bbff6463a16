#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times attention from Python: paged next to PyTorch's SDPA and compiled flex_attention, on the same K and V.

    attention.py [--rounds N] [--dtype f32|bf16] [--cases decode,prefill,...]

K and V are the same numbers three times: as dense tensors [B, Hkv, S, D], for SDPA and flex_attention; and in a pool's
pages, for paged and for flex_attention in place.  Lengths are equal, because SDPA needs that.  Copies of K and V into
the pages are not timed, except in the column of paged.torch.flex_attention, which copies dense tensors in each call.
In each round each contender runs once, in turn.  Prints the median of the rounds; in parentheses the contender's time
divided by that of paged, which is above 1 where paged is faster.  Results are compared first.
"""
from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.attention.flex_attention as torch_flex
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.functional import scaled_dot_product_attention

import paged
from paged.torch import PagedAttention, flex_attention, translate

PAGE_SIZE = 128
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Case(NamedTuple):
    batch: int
    heads: int
    kv_heads: int
    dim: int
    q_len: int
    kv_len: int
    window: int = 0     # tokens that a query sees, 0: all before it
    soft_cap: float = 0


CASES = {
    "decode, 8 x 4096": Case(8, 8, 2, 64, 1, 4096),
    "decode, 1 x 8192": Case(1, 32, 8, 128, 1, 8192),
    "decode, 8 x 4096, window 512": Case(8, 8, 2, 64, 1, 4096, window=512),
    "decode, 8 x 4096, soft cap": Case(8, 8, 2, 64, 1, 4096, soft_cap=30.0),
    "prefill, 2 x 1024": Case(2, 8, 2, 64, 1024, 1024),
    "prefill, 1 x 2048, window 256": Case(1, 8, 2, 64, 2048, 2048, window=256),
    "prefill, 2 x 1024, soft cap": Case(2, 8, 2, 64, 1024, 1024, soft_cap=30.0),
}


def mods_of(case: Case) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    first, window, cap = case.kv_len - case.q_len, case.window, case.soft_cap

    def mask(b, h, q_idx, kv_idx):
        seen = q_idx + first >= kv_idx
        return seen & (q_idx + first - kv_idx < window) if window else seen

    def score(score, b, h, q_idx, kv_idx):
        return cap * torch.tanh(score / cap)

    return mask, score if cap else None


def contenders(case: Case, dtype: torch.dtype) -> dict[str, Callable[[], torch.Tensor]]:
    """Functions that compute the same, by name; the first is paged."""
    batch, heads, kv_heads, dim, q_len, kv_len, window, cap = case
    mask, score = mods_of(case)
    q = torch.randn(batch, heads, q_len, dim).to(dtype)
    k, v = (torch.randn(batch, kv_heads, kv_len, dim).to(dtype) for _ in range(2))

    n_pages = batch * -(-kv_len // PAGE_SIZE)
    pages = PagedAttention(n_pages, PAGE_SIZE, batch, "cpu", n_kv_heads=kv_heads, k_dim=dim, dtype=dtype)
    rows = torch.arange(batch)
    pages.reserve(rows, kv_len)
    k_cache, v_cache = pages.caches(0)
    pages.assign(rows, torch.arange(kv_len).expand(batch, -1), k, v, k_cache, v_cache)

    plan = pages.pool.batch()
    plan.plan(list(pages.sequences), q_len, kv_len)
    named = None
    if window or cap:
        # Positions of paged are those in the sequence, so mods need no offset.
        named = plan.mods(mask=f"sliding_window({window})" if window else None,
                          score=translate(score, "score").text if score is not None else None)
    block_mask = create_block_mask(mask, None, None, q_len, kv_len, device="cpu", BLOCK_SIZE=PAGE_SIZE)
    in_place = pages.convert_logical_block_mask(
        create_block_mask(mask, batch, None, q_len, kv_len, device="cpu", BLOCK_SIZE=PAGE_SIZE))
    compiled = torch.compile(torch_flex.flex_attention, dynamic=False)
    on_pages = torch.compile(torch_flex.flex_attention, dynamic=False)
    # Made once: a new function would make torch.compile compile again.
    page_score = None if score is None else pages.get_score_mod(score)
    out = torch.empty_like(q)
    found: dict[str, Callable[[], torch.Tensor]] = {
        "paged": lambda: plan.attention(0, q, out, mods=named),
        "paged.torch.flex_attention, pages": lambda: flex_attention(
            q, k_cache, v_cache, page_score, in_place, enable_gqa=True),
        "paged.torch.flex_attention, dense": lambda: flex_attention(q, k, v, score, block_mask, enable_gqa=True),
        "flex_attention": lambda: compiled(q, k, v, score, block_mask, enable_gqa=True),
        "flex_attention, pages": lambda: on_pages(q, k_cache, v_cache, page_score, in_place, enable_gqa=True),
    }
    if not cap:
        i, j = torch.arange(q_len)[:, None], torch.arange(kv_len)
        allowed = mask(0, 0, i, j)
        # SDPA's fast path for causal attention takes no mask, and one query sees all keys.
        options: dict[str, Any] = {"is_causal": True} if q_len == kv_len and not window else {
            "attn_mask": allowed} if window else {}
        found["SDPA"] = lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
    return found


def check(found: dict[str, Callable[[], torch.Tensor]], dtype: torch.dtype) -> None:
    expected = found["paged"]().float().clone()
    for name, function in found.items():
        error = (function().float() - expected).abs().max().item()
        limit = 1e-4 if dtype == torch.float32 else 5e-2
        if error > limit:
            raise SystemExit(f"{name} differs from paged by {error:.1e}")


def measure(found: dict[str, Callable[[], torch.Tensor]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, function in found.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(of) for name, of in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time attention of paged, SDPA and compiled flex_attention.")
    parser.add_argument("--rounds", type=int, default=31, help="runs of each contender (default: 31)")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--cases", default="", help="only cases whose names contain one of these words, with commas")
    arguments = parser.parse_args()
    wanted = [word.strip() for word in arguments.cases.split(",")]
    dtype = DTYPES[arguments.dtype]
    torch.manual_seed(0)

    names = ["paged", "SDPA", "flex_attention", "flex_attention, pages", "paged.torch.flex_attention, pages",
             "paged.torch.flex_attention, dense"]
    print(f"torch {torch.__version__}, paged {paged.version()}, {torch.get_num_threads()} threads, {arguments.dtype}, "
          f"median of {arguments.rounds}, microseconds\n")
    print("| |", " | ".join(names), "|")
    print("|---" * (len(names) + 1) + "|")
    with torch.no_grad():
        for title, case in CASES.items():
            if not any(word in title for word in wanted):
                continue
            torch.compiler.reset()
            found = contenders(case, dtype)
            check(found, dtype)
            medians = measure(found, arguments.rounds)
            cells = ["" if name not in medians else f"{medians[name] * 1e6:.0f}" if name == "paged" else
                     f"{medians[name] * 1e6:.0f} ({medians[name] / medians['paged']:.2f})" for name in names]
            print(f"| {title} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
