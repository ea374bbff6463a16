#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch's attention on the CPU, for `paged-bench run decode|prefill --reference torch`.

peer_process.py has the protocol.  K and V are contiguous and bf16.  None of the methods
accepts a ragged batch, so each kind of rows takes one call; the fastest method of each
kind is used:

  flex       torch.compile(flex_attention), with a block mask if causality masks something
  sdpa       scaled_dot_product_attention, with enable_gqa
  sdpa fold  the query heads of a KV head folded into query rows of one head
"""
import sys

from peer_process import TRIES, Case, Tensors, seconds, serve


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


class Batch(Case):
    """Each kind of the batch's rows uses its fastest method."""

    def __init__(self, torch, what):
        super().__init__(what)
        self.torch = torch
        self.calls, methods, errors = [], [], []
        for q, k, v in self.kinds(Tensors(torch, what, what["data"])):
            calls = self.accepted((q, k, v), errors)
            if not calls:
                raise RuntimeError("; ".join(errors))
            # Interleaved, because a burst of load could spoil consecutive tries of one method.
            took = {name: [] for name in calls}
            for _ in range(1 if what["quick"] else TRIES):
                for name, call in calls.items():
                    took[name].append(seconds(call))
            best = min(calls, key=lambda name: min(took[name]))
            self.calls.append(calls[best])
            methods.append(best)
        self.method = ", ".join(dict.fromkeys(methods))
        self.set_repeats()

    def kinds(self, tensors):
        """Contiguous copies of q, K and V of each kind of rows, [n, heads, length, dim]."""
        q_at = kv_at = 0
        for n, q_len, kv_len in self.what["rows"]:
            parts = (tensors.q[q_at:q_at + n * q_len], q_len), *((x[kv_at:kv_at + n * kv_len], kv_len)
                                                                 for x in (tensors.k, tensors.v))
            yield [x.view(n, length, -1, self.what["dim"]).transpose(1, 2).contiguous() for x, length in parts]
            q_at, kv_at = q_at + n * q_len, kv_at + n * kv_len

    def accepted(self, tensors, errors):
        """{name: call} of the methods that accept this case, each called once."""
        found = {}
        for name, make in METHODS:
            if self.what["quick"] and name == "flex":
                continue
            try:
                call = make(self.torch, *tensors)
                call()
                found[name] = call
            except Exception as error:
                errors.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
        return found

    def run(self):
        for call in self.calls:
            call()

    def write_result(self, path):
        out, at = Tensors(self.torch, self.what, path).out, 0
        for (n, q_len, _), call in zip(self.what["rows"], self.calls):
            result = call().reshape(n, self.what["q_heads"], q_len, self.what["dim"]).transpose(1, 2)
            out[at:at + n * q_len].view(result.shape).copy_(result)
            at += n * q_len


def start():
    import torch

    return f"torch {torch.__version__}", lambda what: Batch(torch, what)


if __name__ == "__main__":
    sys.exit(serve(start))
