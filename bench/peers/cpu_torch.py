#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch's attention on the CPU, for `paged-bench run decode|prefill --reference torch`.

Reads requests and writes replies as JSON lines on standard input and output:

  {"ready": "torch 2.x"} or {"missing": "..."}       once, at the start
  {"open": 3, "rows": [[n, q_len, kv_len], ...], "q_heads": .., "kv_heads": .., "dim": .., "quick": bool}
                              -> {"us": .., "method": ".."} or {"error": ".."}
  {"sample": 3}               -> {"us": ..}
  {"close": 3}                -> {}

K and V are contiguous and bf16.  None of the methods accepts a ragged batch, so
each kind of rows takes one call; the fastest method of each kind is used:

  flex       torch.compile(flex_attention), with a block mask if causality masks something
  sdpa       scaled_dot_product_attention, with enable_gqa
  sdpa fold  the query heads of a KV head folded into query rows of one head

The caller sets the number of threads, their CPUs and their wait policy by OMP_*.
"""
import json
import os
import sys
import time

TRIES = 3
SAMPLE_S = 0.005


def random_bf16(torch, *shape):
    return torch.randn(*shape, dtype=torch.float32).to(torch.bfloat16)


def causal_mask(torch, q_len, kv_len):
    """The causal mask of the last q_len of kv_len tokens."""
    return torch.arange(kv_len)[None, :] <= torch.arange(q_len)[:, None] + (kv_len - q_len)


def flex_method(torch, q, k, v):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q_len, kv_len = q.shape[2], k.shape[2]
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = None
    if q_len > 1:
        mask = create_block_mask(lambda b, h, i, j: j <= i + (kv_len - q_len), None, None, q_len, kv_len, device="cpu")
    return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)


def sdpa_method(torch, q, k, v):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q_len, kv_len = q.shape[2], k.shape[2]
    if q_len == kv_len:
        return lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True)
    mask = None if q_len == 1 else causal_mask(torch, q_len, kv_len)
    return lambda: sdpa(q, k, v, attn_mask=mask, enable_gqa=True)


def fold_method(torch, q, k, v):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    n, q_heads, q_len, dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    group = q_heads // kv_heads
    folded = q.reshape(n, kv_heads, group * q_len, dim)
    mask = None if q_len == 1 else causal_mask(torch, q_len, kv_len).repeat(group, 1)
    return lambda: sdpa(folded, k, v, attn_mask=mask)


METHODS = [("sdpa fold", fold_method), ("sdpa", sdpa_method), ("flex", flex_method)]


def seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class Case:
    """A batch; each kind of its rows uses its fastest method."""

    def __init__(self, torch, what):
        self.calls, self.methods, errors = [], [], []
        for n, q_len, kv_len in what["rows"]:
            q = random_bf16(torch, n, what["q_heads"], q_len, what["dim"])
            k, v = (random_bf16(torch, n, what["kv_heads"], kv_len, what["dim"]) for _ in range(2))
            calls = self.accepted(torch, what, (q, k, v), errors)
            if not calls:
                raise RuntimeError("; ".join(errors))
            # Interleaved, because a burst of load could spoil consecutive tries of one method.
            took = {name: [] for name in calls}
            for _ in range(1 if what["quick"] else TRIES):
                for name, call in calls.items():
                    took[name].append(seconds(call))
            best = min(calls, key=lambda name: min(took[name]))
            self.calls.append(calls[best])
            self.methods.append(best)
        self.repeats = 1
        took = seconds(self.run)
        while not what["quick"] and took * self.repeats < SAMPLE_S:
            self.repeats *= 2

    @staticmethod
    def accepted(torch, what, tensors, errors):
        """{name: call} of the methods that accept this case, each called once."""
        found = {}
        for name, make in METHODS:
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
        self.run()  # to bring its data into the caches, which the caller's own samples have used meanwhile
        return sum(seconds(self.run) for _ in range(self.repeats)) / self.repeats * 1e6


def reply_to(torch, cases, request):
    if "open" in request:
        cases[request["open"]] = case = Case(torch, request)
        return {"us": case.sample(), "method": ", ".join(dict.fromkeys(case.methods))}
    if "sample" in request:
        return {"us": cases[request["sample"]].sample()}
    cases.pop(request["close"], None)
    return {}


def main():
    # Replies use a copy of stdout; everything else that is printed goes to stderr.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(reply):
        print(json.dumps(reply), file=out, flush=True)

    try:
        import torch

        torch.manual_seed(1)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    except Exception as error:
        send({"missing": str(error)})
        return 0
    send({"ready": f"torch {torch.__version__}"})
    cases = {}
    for line in sys.stdin:
        try:
            with torch.no_grad():
                send(reply_to(torch, cases, json.loads(line)))
        except Exception as error:
            send({"error": f"{type(error).__name__}: {str(error)[:200]}"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
