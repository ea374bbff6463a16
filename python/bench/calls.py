#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of a call: C, the extension, and ctypes, on work as small as it can be.

    PYTHONPATH=BUILDDIR/python python/bench/calls.py [--build BUILDDIR]

Prints microseconds for each call: the best of many rounds, which the bindings take in turns.  The tensors are torch's,
or NumPy's where torch is missing.
"""
import argparse
import ctypes
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

import paged

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_CALLS, N_ROUNDS = 5000, 40
N_PREFIX = 4096
POOL = {"name": "calls", "n_layers": 1, "n_kv_heads": 1, "k_dim": 8, "dtype": "f32", "n_pages": 4}
Call = Callable[[], Any]


def measure_c(build: pathlib.Path) -> dict[str, float]:
    libraries = build / "client" / ".libs"
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "calls")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, ROOT / "python" / "bench" / "calls.c",
                        f"-I{ROOT}/client", f"-I{ROOT}/common", f"-L{libraries}", f"-Wl,-rpath,{libraries}",
                        "-lpagedclient"], check=True)
        lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: float(ns) / 1000 for name, ns in (line.split() for line in lines)}


def tensors() -> tuple[str, list[Any], list[int]]:
    try:
        import torch
        torch.set_num_threads(1)
        made: list[Any] = [torch.randn(1, 1, 8) for _ in range(4)]
        return f"torch {torch.__version__}", made, [tensor.data_ptr() for tensor in made]
    except ImportError:
        import numpy
        made = [numpy.random.default_rng(i).standard_normal((1, 1, 8), dtype=numpy.float32) for i in range(4)]
        return f"numpy {numpy.__version__}", made, [array.ctypes.data for array in made]


def extension_calls(made: list[Any]) -> tuple[dict[str, Call], Any]:
    client = paged.embedded(POOL, threads=1)
    pool = client.pool("calls")
    seqs = pool.create(1, 4)
    batch = pool.batch()
    q, k, v, out = made
    batch.plan(seqs, 1, 1)
    return {"plan": lambda: batch.plan(seqs, 1, 1), "append": lambda: batch.append(0, k, v),
            "attention": lambda: batch.attention(0, q, out), "attention, out new": lambda: batch.attention(0, q)}, batch


class PoolParams(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p)] + \
        [(name, ctypes.c_uint32) for name in ("n_layers", "n_kv_heads", "k_dim", "v_dim", "v_in_k", "dtype",
                                              "page_size", "n_pages", "n_slots", "max_length")] + \
        [("backend", ctypes.c_char_p), ("device", ctypes.c_char_p)]


class SeqParams(ctypes.Structure):
    _fields_ = [("pool", ctypes.c_void_p), ("tag", ctypes.c_char_p), ("n_tokens", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32 * 5)]


class Row(ctypes.Structure):
    _fields_ = [("seq", ctypes.c_uint64), ("pages", ctypes.c_void_p), ("n_pages", ctypes.c_uint32),
                ("q_len", ctypes.c_uint32), ("kv_len", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("q_base", ctypes.c_int64), ("b", ctypes.c_uint32), ("reserved", ctypes.c_uint32 * 5)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_uint32), ("n_heads", ctypes.c_uint32),
                ("dim", ctypes.c_uint32), ("reserved", ctypes.c_uint32 * 5), ("token_stride", ctypes.c_int64),
                ("head_stride", ctypes.c_int64), ("batch_stride", ctypes.c_int64)]


def ctypes_calls(build: pathlib.Path, addresses: list[int]) -> dict[str, Call]:
    library = ctypes.CDLL(str(build / "client" / ".libs" / "libpagedclient.so"))
    client, pool, batch = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    params = PoolParams(ctypes.sizeof(PoolParams), b"calls", 1, 1, 8, 0, 0, 1, 0, 4)
    rows = (Row * 1)(Row(q_len=1, kv_len=1))
    ids = (ctypes.c_uint64 * 1)()

    def require(status: int) -> None:
        if status != 0:
            raise RuntimeError(status)

    require(library.paged_client_open_embedded(ctypes.byref(params), ctypes.c_size_t(1), None, ctypes.byref(client)))
    require(library.paged_pool_open(client, b"calls", ctypes.byref(pool)))
    require(library.paged_seq_create(client, ctypes.c_size_t(1), ctypes.byref(SeqParams(pool, None, 4)), ids))
    rows[0].seq = ids[0]
    require(library.paged_batch_create(pool, None, ctypes.byref(batch)))
    structs = [Tensor(data=address, dtype=1, n_heads=1, dim=8) for address in addresses]
    q, k, v, out = (ctypes.byref(struct) for struct in structs)
    one, zero = ctypes.c_size_t(1), ctypes.c_uint32(0)
    require(library.paged_batch_plan(batch, one, rows))
    return {"plan": lambda: (library.paged_batch_plan(batch, one, rows), structs),
            "append": lambda: library.paged_append(batch, zero, k, v, None),
            "attention": lambda: library.paged_attention(batch, zero, q, out, None)}


def measure(calls: list[Call], n_calls: int = N_CALLS) -> list[float]:
    best = [1e9] * len(calls)
    for _ in range(N_ROUNDS):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(n_calls):
                call()
            best[i] = min(best[i], (time.perf_counter() - start) / n_calls * 1e6)
    return best


def prefix_steps() -> str:
    """A decoding sequence publishes a page: its prefix made again, and extended, sampled in turns.

    All samples extend one prefix, so that all but the first copy its tokens, which a growing sequence does rarely.
    """
    tokens = list(range(N_PREFIX + 16))
    before, page = paged.Prefix(tokens[:N_PREFIX]).extended([]), tokens[N_PREFIX:]
    again, extended = measure([lambda: paged.Prefix(tokens), lambda: before.extended(page)], 100)
    return (f"prefix of {N_PREFIX} tokens and a page more: made again {again:.2f}, extended {extended:.2f}, "
            f"ratio {again / extended:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT, help="build tree; default the source tree")
    build = parser.parse_args().build.resolve()
    framework, made, addresses = tensors()
    by_c = measure_c(build)
    by_extension, _ = extension_calls(made)
    by_ctypes = ctypes_calls(build, addresses)
    names = list(by_extension)
    # On both sides of the others, because the machine may have other work.
    figures = measure([lambda: None] + list(by_extension.values()) + list(by_ctypes.values()))
    by_c = {name: min(us, by_c[name]) for name, us in measure_c(build).items()}
    empty, extension = figures[0], dict(zip(names, figures[1:], strict=False))
    kept = dict(zip(by_ctypes, figures[1 + len(names):], strict=True))
    print(f"microseconds a call, with {framework}; a Python call that does nothing, {empty:.3f}, is subtracted\n")
    print("| call | C | extension | over C | ctypes, structs kept |\n|---|---|---|---|---|")
    for name in names:
        c = by_c[name.split(",")[0]]
        cost = extension[name] - empty
        print(f"| {name} | {c:.2f} | {cost:.2f} | {cost - c:.2f} | "
              f"{f'{kept[name] - empty:.2f}' if name in kept else ''} |")
    print(f"\n{prefix_steps()}")


if __name__ == "__main__":
    main()
