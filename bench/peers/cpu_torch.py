#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's attention on the CPU, one sample at a time, for `paged-bench run decode|prefill --against torch`.

Speaks JSON lines on its standard input and output:

  {"ready": "torch 2.x"} or {"missing": "..."}       once, by itself
  {"open": 3, "rows": [[n, q_len, kv_len], ...], "q_heads": .., "kv_heads": .., "dim": .., "quick": bool}
                              -> {"us": .., "how": ".."} or {"error": ".."}
  {"sample": 3}               -> {"us": ..}
  {"close": 3}                -> {}

K and V are contiguous and bf16.  Each kind of rows is a call of its own, for
none of these takes a ragged batch, and the fastest way of each kind counts:

  flex       torch.compile(flex_attention), with a block mask where causality hides something
  sdpa       scaled_dot_product_attention, heads shared by enable_gqa
  sdpa fold  the query heads of a KV head as query rows of one head

Threads, their places and how they wait are the caller's to say, by OMP_*.
"""
import json
import os
import sys
import time

TRIES = 3
SAMPLE_S = 0.005


def halves(torch, *shape):
    return torch.randn(*shape, dtype=torch.float32).to(torch.bfloat16)


def sees(torch, q_len, kv_len):
    """The lower right triangle."""
    return torch.arange(kv_len)[None, :] <= torch.arange(q_len)[:, None] + (kv_len - q_len)


def flex_way(torch, q, k, v):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q_len, kv_len = q.shape[2], k.shape[2]
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = None
    if q_len > 1:
        mask = create_block_mask(lambda b, h, i, j: j <= i + (kv_len - q_len), None, None, q_len, kv_len, device="cpu")
    return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)


def sdpa_way(torch, q, k, v):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q_len, kv_len = q.shape[2], k.shape[2]
    if q_len == kv_len:
        return lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True)
    mask = None if q_len == 1 else sees(torch, q_len, kv_len)
    return lambda: sdpa(q, k, v, attn_mask=mask, enable_gqa=True)


def fold_way(torch, q, k, v):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    n, q_heads, q_len, dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    group = q_heads // kv_heads
    folded = q.reshape(n, kv_heads, group * q_len, dim)
    mask = None if q_len == 1 else sees(torch, q_len, kv_len).repeat(group, 1)
    return lambda: sdpa(folded, k, v, attn_mask=mask)


WAYS = [("sdpa fold", fold_way), ("sdpa", sdpa_way), ("flex", flex_way)]


def seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class Case:
    """A batch, each kind of its rows by the fastest way."""

    def __init__(self, torch, what):
        self.calls, self.how, errors = [], [], []
        for n, q_len, kv_len in what["rows"]:
            q = halves(torch, n, what["q_heads"], q_len, what["dim"])
            k, v = (halves(torch, n, what["kv_heads"], kv_len, what["dim"]) for _ in range(2))
            ways = self.ways(torch, what, (q, k, v), errors)
            if not ways:
                raise RuntimeError("; ".join(errors))
            # In turn, for a busy machine may spoil the tries of any one in a row.
            took = {name: [] for name in ways}
            for _ in range(1 if what["quick"] else TRIES):
                for name, call in ways.items():
                    took[name].append(seconds(call))
            best = min(ways, key=lambda name: min(took[name]))
            self.calls.append(ways[best])
            self.how.append(best)
        self.repeats = 1
        took = seconds(self.run)
        while not what["quick"] and took * self.repeats < SAMPLE_S:
            self.repeats *= 2

    @staticmethod
    def ways(torch, what, tensors, errors):
        """Those that take this case, warmed up."""
        found = {}
        for name, make in WAYS:
            if what["quick"] and name == "flex":
                continue
            try:
                call = make(torch, *tensors)
                call()
                found[name] = call
            except Exception as error:
                errors.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
        return found

    def run(self):
        for call in self.calls:
            call()

    def sample(self):
        self.run()  # the caller's figures have been in the caches meanwhile
        return sum(seconds(self.run) for _ in range(self.repeats)) / self.repeats * 1e6


def answer(torch, cases, asked):
    if "open" in asked:
        cases[asked["open"]] = case = Case(torch, asked)
        return {"us": case.sample(), "how": ", ".join(dict.fromkeys(case.how))}
    if "sample" in asked:
        return {"us": cases[asked["sample"]].sample()}
    cases.pop(asked["close"], None)
    return {}


def main():
    # Whatever else prints does not get in between.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(what):
        print(json.dumps(what), file=out, flush=True)

    try:
        import torch

        torch.manual_seed(1)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    except Exception as error:
        tell({"missing": str(error)})
        return 0
    tell({"ready": f"torch {torch.__version__}"})
    cases = {}
    for line in sys.stdin:
        try:
            with torch.no_grad():
                tell(answer(torch, cases, json.loads(line)))
        except Exception as error:
            tell({"error": f"{type(error).__name__}: {str(error)[:200]}"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
