#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch on the batches of `paged-bench run gpu`, on the same GPU.

There are three peers.  A sample is the time of one call in a captured graph of
32 calls, which use enough layers that the data does not stay in the cache; times
are taken with events, and medians are printed:

  flex   compiled flex_attention over PagedAttention, pages of 128, permuted
  sdpa   scaled_dot_product_attention on contiguous K and V: with enable_gqa, or
         with heads folded into query rows (decode); the faster one is printed
  torch  limits: the dense bf16 product, a copy

Each result is printed as one JSON object per line when it is measured, in the
format of paged-bench's cases plus "peer".  A case that fails is a line with the
reason in "skipped"; the run continues.

  gpu_torch.py [--limit-s N] [--only TEXT]
"""
import argparse
import json
import random
import sys
import time

N_CALLS = 32
Q_HEADS, KV_HEADS, DIM = 32, 8, 128
PAGE = 128
COLD_BYTES = 256e6
MOST_BYTES = 40e9
SAMPLES, SAMPLING_US, LEAST_SAMPLES, WARM_UPS = 31, 4e5, 5, 3

# Cases of bench/kv/suite_gpu.c: name, and its kinds of rows as (number of rows, query rows of each, tokens of each).
CASES = [
    ("decode 16 x 8k", [(16, 1, 8192)]),
    ("decode 1 x 8k", [(1, 1, 8192)]),
    ("decode 1 x 1k", [(1, 1, 1024)]),
    ("decode 1 x 32k", [(1, 1, 32768)]),
    ("decode 64 x 8k", [(64, 1, 8192)]),
    ("prefill 1 x 8k", [(1, 8192, 8192)]),
    ("decode 64 x 1k", [(64, 1, 1024)]),
    ("decode 1 x 128k, 63 x 1k", [(1, 1, 131072), (63, 1, 1024)]),
    ("prefill 512 of 8k", [(1, 512, 8192)]),
    ("decode 8 x 4k", [(8, 1, 4096)]),
    ("decode 16 x 32k", [(16, 1, 32768)]),
    ("decode 256 x 1k", [(256, 1, 1024)]),
    ("prefill 1 x 32k", [(1, 32768, 32768)]),
    ("mixed 2 x q2k, 8 x 1k", [(2, 2048, 2048), (8, 1, 1024)]),
    ("decode 8 x 1k", [(8, 1, 1024)]),
    ("decode 16 x 1k", [(16, 1, 1024)]),
    ("decode 64 x 32k", [(64, 1, 32768)]),
    ("mixed 2 x q4k, 32 x 1k", [(2, 4096, 4096), (32, 1, 1024)]),
    ("decode 256 x 8k", [(256, 1, 8192)]),
]
APPENDS = [("append 256 x 1", (256, 1, 1024)), ("append 5000", (1, 5000, 5000)), ("append 8 x 625", (8, 625, 625))]


def print_case(peer, name, **what):
    print(json.dumps({"suite": "gpu", "peer": peer, "name": name, "unit": "us", **what}), flush=True)


def kv_bytes(rows):
    return sum(n * kv for n, _, kv in rows) * KV_HEADS * DIM * 2 * 2


def amount(rows):
    """Bytes if every row has one query row (decode), otherwise operations, as paged-bench counts them."""
    if all(q == 1 for _, q, _ in rows):
        return {"bytes": float(kv_bytes(rows))}
    return {"flops": sum(n * q * (kv - (q - 1) / 2) for n, q, kv in rows) * 4 * DIM * Q_HEADS}


def layers_for(size):
    if size > MOST_BYTES:
        raise RuntimeError(f"{size / 1e9:.1f} GB a layer, at most {MOST_BYTES / 1e9:.0f} GB here")
    return max(1, min(N_CALLS, int(MOST_BYTES // size), int(-(-COLD_BYTES // size)) + 1))


def random_bf16(torch, *shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def time_graph(torch, call, n_calls=N_CALLS):
    """Microseconds per call; call(i) enqueues the work of call i on the current stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(WARM_UPS):
            call(i)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n_calls):
            call(i)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once():
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / n_calls

    for _ in range(WARM_UPS):
        us = once()
    n = max(LEAST_SAMPLES, min(SAMPLES, int(SAMPLING_US / max(us * n_calls, 1))))
    samples = sorted(once() for _ in range(n))
    return {"median": samples[n // 2], "p10": samples[n // 10], "p90": samples[n - 1 - n // 10]}


# Contiguous K and V


def sdpa_methods(torch, q, keys, values, q_len, kv_len):
    """(name, call) of each method that computes the same result, for one kind of rows."""
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    n = len(keys)
    if q_len == 1:
        folded = q.view(q.shape[0], KV_HEADS, Q_HEADS // KV_HEADS, DIM)
        yield "folded", lambda i: sdpa(folded, keys[i % n], values[i % n])
        yield "gqa", lambda i: sdpa(q, keys[i % n], values[i % n], enable_gqa=True)
    elif q_len == kv_len:
        yield "causal", lambda i: sdpa(q, keys[i % n], values[i % n], is_causal=True, enable_gqa=True)
    else:
        from torch.nn.attention.bias import causal_lower_right

        bias = causal_lower_right(q_len, kv_len)
        yield "lower right", lambda i: sdpa(q, keys[i % n], values[i % n], attn_mask=bias, enable_gqa=True)


def run_sdpa(torch, rows):
    """One call for each kind of rows, because SDPA accepts no ragged batch; the fastest method of each kind is used."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    total, chosen, errors = {"median": 0.0, "p10": 0.0, "p90": 0.0}, [], []
    for n, q_len, kv_len in rows:
        layers = layers_for(kv_bytes([(n, q_len, kv_len)]))
        q = random_bf16(torch, n, Q_HEADS, q_len, DIM)
        keys = [random_bf16(torch, n, KV_HEADS, kv_len, DIM) for _ in range(layers)]
        values = [random_bf16(torch, n, KV_HEADS, kv_len, DIM) for _ in range(layers)]
        best = None
        for method, call in sdpa_methods(torch, q, keys, values, q_len, kv_len):
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
                try:
                    with sdpa_kernel(backend):
                        measured = time_graph(torch, call)
                except Exception as error:  # this backend does not accept the case
                    errors.append(f"{method} {backend.name}: {str(error).splitlines()[:1]}")
                    continue
                if best is None or measured["median"] < best[0]["median"]:
                    best = (measured, f"{method} {backend.name}")
        if best is None:
            raise RuntimeError("; ".join(errors))
        chosen.append(best[1])
        total = {key: total[key] + best[0][key] for key in total}
        del keys, values
    return {**total, "method": ", ".join(chosen)}


# flex_attention over PagedAttention


def paged_rows(torch, rows, n_layers):
    """A PagedAttention with permuted pages reserved for all rows, the rows' lengths, and K and V of each layer."""
    from torch.nn.attention.experimental._paged_attention import PagedAttention

    lengths = [kv for n, _, kv in rows for _ in range(n)]
    n_pages = sum(-(-kv // PAGE) for kv in lengths)
    paged = PagedAttention(n_pages, PAGE, len(lengths), device="cuda")
    random.Random(3).shuffle(paged.empty_pages)
    for row, kv_len in enumerate(lengths):
        paged.reserve(torch.tensor(row, device="cuda"), torch.tensor(kv_len, device="cuda"))
    keys = [random_bf16(torch, 1, KV_HEADS, n_pages * PAGE, DIM) for _ in range(n_layers)]
    values = [random_bf16(torch, 1, KV_HEADS, n_pages * PAGE, DIM) for _ in range(n_layers)]
    return paged, torch.tensor(lengths, device="cuda"), keys, values


def paged_mask(torch, paged, lengths, q_len, batch):
    """The physical causal block mask of the rows `batch`, whose query rows are their last q_len tokens."""
    from torch.nn.attention.flex_attention import create_block_mask

    batch_lengths = lengths[batch]
    longest = int(batch_lengths.max())

    def causal(b, h, q_idx, kv_idx):
        return kv_idx <= q_idx + batch_lengths[b] - q_len

    logical = create_block_mask(causal, len(batch), None, q_len, longest, device="cuda", BLOCK_SIZE=PAGE,
                                **({"_compile": True} if q_len > 1 else {}))
    try:
        return paged.convert_logical_block_mask(logical, batch_idx=batch, kv_len=batch_lengths)
    except TypeError:  # PyTorch versions without the kv_len argument
        return paged.convert_logical_block_mask(logical, batch_idx=batch)


def run_flex(torch, rows):
    """One call for each query length, because a batch of flex_attention has one query length."""
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    n_layers = layers_for(kv_bytes(rows))
    paged, lengths, keys, values = paged_rows(torch, rows, n_layers)
    parts, at = [], 0
    for q_len in dict.fromkeys(q for _, q, _ in rows):
        first = at
        at += sum(n for n, q, _ in rows if q == q_len)
        batch = torch.arange(first, at, device="cuda")
        parts.append((random_bf16(torch, at - first, Q_HEADS, q_len, DIM),
                      paged_mask(torch, paged, lengths, q_len, batch)))

    def call(i):
        for q, mask in parts:
            compiled(q, keys[i % n_layers], values[i % n_layers], block_mask=mask, enable_gqa=True)

    return {**time_graph(torch, call), "method": f"pages of {PAGE}"}


def run_append(torch, rows):
    n, new, kv_len = rows
    n_layers = 8
    paged, _, keys, values = paged_rows(torch, [rows], n_layers)
    batch = torch.arange(n, device="cuda")
    positions = torch.arange(kv_len - new, kv_len, device="cuda").expand(n, new)
    k, v = (random_bf16(torch, n, KV_HEADS, new, DIM) for _ in range(2))

    def call(i):
        paged.assign(batch, positions, k, v, keys[i % n_layers], values[i % n_layers])

    return {**time_graph(torch, call), "bytes": 2.0 * n * new * KV_HEADS * DIM * 2 * 2}


# Limits


def run_product(torch, _):
    n = 8192
    a, b = (random_bf16(torch, n, n) for _ in range(2))
    return {**time_graph(torch, lambda i: torch.mm(a, b), 8), "flops": 2.0 * n**3}


def run_copy(torch, _):
    a = random_bf16(torch, 1 << 29)
    b = torch.empty_like(a)
    return {**time_graph(torch, lambda i: b.copy_(a), 8), "bytes": 2.0 * 2 * a.numel()}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--limit-s", type=float, default=280)
    arguments.add_argument("--only", default="")
    chosen = arguments.parse_args()
    began = time.monotonic()
    try:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("torch sees no CUDA device")
    except Exception as error:
        print_case("torch", "all", skipped=str(error))
        return 0
    print_case("torch", "machine", machine=f"{torch.cuda.get_device_name()}, torch {torch.__version__}, "
         f"CUDA {torch.version.cuda}")
    todo = [("torch", "bf16 product of 8192", run_product, None), ("torch", "1 GB read and written", run_copy, None)]
    for name, rows in CASES:
        todo += [("sdpa", name, run_sdpa, rows), ("flex", name, run_flex, rows)]
    todo += [("flex", name, run_append, rows) for name, rows in APPENDS]
    for peer, name, run, rows in todo:
        if chosen.only not in name:
            continue
        if time.monotonic() - began > chosen.limit_s:
            print_case(peer, name, skipped=f"past {chosen.limit_s:.0f} s")
            continue
        try:
            with torch.no_grad():
                measured = run(torch, rows)
            print_case(peer, name, **(amount(rows) if isinstance(rows, list) else {}), **measured)
        except Exception as error:
            print_case(peer, name, skipped=f"{type(error).__name__}: {str(error)[:400]}")
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
