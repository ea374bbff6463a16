# SPDX-License-Identifier: Apache-2.0
"""Mask mods and score mods of tests: a list, and strategies of hypothesis that make more.

They are for N_B rows, N_H heads and N_Q queries and keys.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

N_B, N_H, N_Q = 3, 4, 24

generator = torch.Generator().manual_seed(7)
prefix = torch.tensor([3, 9, 17])
lengths = torch.tensor([24, 11, 5], dtype=torch.int32)
documents = torch.arange(N_Q) // 5
offsets = torch.tensor([0, 4, 2])
tree = torch.rand(N_Q, N_Q, generator=generator) < 0.4
window = torch.tensor(6)
slopes = torch.randn(N_H, generator=generator)
gate = torch.randn(N_H, generator=generator)
by_q_kv = torch.randn(N_Q, N_Q, generator=generator)
by_all = torch.randn(N_B, N_H, N_Q, N_Q, generator=generator)
by_distance = torch.randn(N_Q, generator=generator).bfloat16()
by_offset = torch.randn(2 * N_Q + 1, generator=generator)
order = torch.randperm(N_Q, generator=generator)
scale = torch.tensor(0.7)


class SoftCap:
    def __init__(self, cap: float) -> None:
        self.cap = cap

    def __call__(self, score, b, h, q_idx, kv_idx):
        return self.cap * torch.tanh(score / self.cap)

    def method(self, score, b, h, q_idx, kv_idx):
        return torch.tanh(score / self.cap) * self.cap


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding_window(b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) & (q_idx - kv_idx < window)


def document(b, h, q_idx, kv_idx):
    return documents[q_idx] == documents[kv_idx]


def natten(b, h, q_idx, kv_idx):
    q_x, q_y, kv_x, kv_y = q_idx // 6, q_idx % 6, kv_idx // 6, kv_idx % 6
    x = q_x.clamp(1, 2)
    y = q_y.clamp(1, 4)
    return ((x - kv_x).abs() <= 1) & ((y - kv_y).abs() <= 1)


def dilated_by(step, b, h, q_idx, kv_idx):
    return (q_idx - kv_idx) % step == 0


def nested(score, b, h, q_idx, kv_idx):
    def distance(a, c):
        return (a - c).abs()

    return score - 0.1 * distance(q_idx, kv_idx)


MASKS: dict[str, Callable[..., Any]] = {
    "causal": causal,
    "sliding window": sliding_window,
    "prefix": lambda b, h, q, kv: (kv < prefix[b]) | (q >= kv),
    "document": document,
    "offset": lambda b, h, q, kv: q + offsets[b] >= kv,
    "padding": lambda b, h, q, kv: kv < lengths[b],
    "dilated": lambda b, h, q, kv: (q >= kv) & ((q - kv) % 3 == 0),
    "natten": natten,
    "tree": lambda b, h, q, kv: tree[q, kv],
    "block diffusion": lambda b, h, q, kv: kv // 4 <= q // 4,
    "per head": lambda b, h, q, kv: torch.where(h % 2 == 0, q >= kv, (q - kv).abs() < 4),
    "not": lambda b, h, q, kv: ~(q < kv),
    "sink window": lambda b, h, q, kv: (q >= kv) & ((kv < 2) | (q - kv < 8)),
    "new_ones": noop_mask,
    "and": and_masks(causal, document, noop_mask),
    "or": or_masks(sliding_window, document),
    "partial": functools.partial(dilated_by, 4),
}

SCORES: dict[str, Callable[..., Any]] = {
    "identity": lambda s, b, h, q, kv: s,
    "times 2": lambda s, b, h, q, kv: s * 2,
    "squared": lambda s, b, h, q, kv: s * s,
    "causal": lambda s, b, h, q, kv: torch.where(q >= kv, s, float("-inf")),
    "relative bias": lambda s, b, h, q, kv: s + (q - kv),
    "relative causal": lambda s, b, h, q, kv: torch.where(q <= kv, s + (q - kv), float("-inf")),
    "alibi": lambda s, b, h, q, kv: s + torch.exp2(-((h + 1) * 8.0 / N_H)) * (kv - q),
    "alibi slopes": lambda s, b, h, q, kv: s + slopes[h] * (kv - q),
    "soft cap object": SoftCap(30.0),
    "soft cap method": SoftCap(20.0).method,
    "head offset": lambda s, b, h, q, kv: s + 0.5 * h,
    "trigonometric": lambda s, b, h, q, kv: torch.sin(s) + torch.cos(s * 2) + torch.tan(s / 4),
    "[q, kv]": lambda s, b, h, q, kv: s + by_q_kv[q, kv],
    "[b, h, q, kv]": lambda s, b, h, q, kv: s + by_all[b, h, q, kv],
    "distance": lambda s, b, h, q, kv: s + by_distance[(q - kv).abs()],
    "negative index": lambda s, b, h, q, kv: s + by_q_kv[q - N_Q, -1 - kv],
    "clamped window": lambda s, b, h, q, kv: s + by_offset[torch.clamp(q - kv + N_Q, 0, 2 * N_Q)],
    "indirect": lambda s, b, h, q, kv: s + by_offset[order[q]],
    "scalar": lambda s, b, h, q, kv: s * scale,
    "silu": lambda s, b, h, q, kv: torch.nn.functional.silu(s),
    "sigmoid gate": lambda s, b, h, q, kv: s * torch.sigmoid(gate[h]),
    "pow": lambda s, b, h, q, kv: s**3 + 2.0 ** (-0.5 * h) + (s.abs() + 1) ** -0.5,
    "log1p": lambda s, b, h, q, kv: torch.log1p(s.abs()),
    "double": lambda s, b, h, q, kv: (s.double() + kv.double() * 0.25).float(),
    "nested": nested,
}


Function = Callable[..., Any]
captured_ints = torch.randint(-9, 9, (5,), generator=generator)
captured_bytes = torch.randint(0, 255, (5, 3), generator=generator, dtype=torch.uint8)
captured_floats = torch.randn(4, 7, generator=generator)


def leaf(n: int) -> Function:
    return lambda s, b, h, q, kv: (b, h, q, kv)[n]


def bounded(function: Function) -> Function:
    """Keeps integers far from 32 bits, where Python and the language differ."""
    return lambda *a: torch.clamp(function(*a), -1000, 1000)


def both(f: Function, x: Function, y: Function) -> Function:
    return lambda *a: f(x(*a), y(*a))


INT_BINARY = [torch.add, torch.sub, torch.mul, torch.minimum, torch.maximum, torch.bitwise_and, torch.bitwise_or]
COMPARE = [torch.lt, torch.le, torch.gt, torch.ge, torch.eq, torch.ne]
FLOAT_BINARY = [torch.add, torch.sub, torch.mul, torch.minimum, torch.maximum]
FLOAT_UNARY = [torch.tanh, torch.sin, torch.cos, torch.sigmoid, torch.abs, torch.neg, torch.relu,
               torch.nn.functional.silu]

ints = st.recursive(
    st.one_of(st.integers(0, 3).map(leaf),
              st.integers(-40, 40).map(lambda n: lambda s, b, h, q, kv: torch.full_like(q, n))),
    lambda inner: st.one_of(
        st.builds(lambda f, x, y: bounded(both(f, x, y)), st.sampled_from(INT_BINARY), inner, inner),
        st.builds(lambda x, n: lambda *a: x(*a) // n, inner, st.sampled_from([-7, -2, 3, 5])),
        st.builds(lambda x, n: lambda *a: x(*a) % n, inner, st.sampled_from([-7, -2, 3, 5])),
        st.builds(lambda x, n: bounded(lambda *a: x(*a) << n), inner, st.integers(0, 4)),
        st.builds(lambda x, n: lambda *a: x(*a) >> n, inner, st.integers(0, 4)),
        st.builds(lambda x: lambda *a: captured_ints[x(*a) % 5 - 2], inner),
        st.builds(lambda x, y: lambda *a: captured_bytes[x(*a) % 5][y(*a) % 3].to(torch.int32), inner, inner),
        st.builds(lambda x: lambda *a: x(*a).abs(), inner),
    ), max_leaves=6)
conditions = st.recursive(
    st.builds(both, st.sampled_from(COMPARE), ints, ints),
    lambda inner: st.one_of(
        st.builds(both, st.sampled_from([torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor, torch.logical_and]),
                  inner, inner),
        st.builds(lambda x: lambda *a: ~x(*a), inner),
        st.builds(lambda c, x, y: lambda *a: torch.where(c(*a), x(*a), y(*a)), inner, inner, inner),
    ), max_leaves=4)
floats = st.recursive(
    st.one_of(st.just(lambda s, b, h, q, kv: s), ints,
              st.builds(lambda x, y: lambda *a: captured_floats[x(*a) % 4, y(*a) % 7], ints, ints)),
    lambda inner: st.one_of(
        st.builds(both, st.sampled_from(FLOAT_BINARY), inner, inner),
        st.builds(lambda f, x: lambda *a: f(x(*a) * 1.0), st.sampled_from(FLOAT_UNARY), inner),
        st.builds(lambda c, x, y: lambda *a: torch.where(c(*a), x(*a), y(*a)), conditions, inner, inner),
        st.builds(lambda x, n: lambda *a: x(*a) / n, inner, st.sampled_from([-3, 0.5, 7.25])),
    ), max_leaves=5)
