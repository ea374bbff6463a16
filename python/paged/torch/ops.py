# SPDX-License-Identifier: Apache-2.0
"""Operators of a batch for torch.compile and torch.export.

Importing this module registers torch.ops.paged.append, torch.ops.paged.attention and
torch.ops.paged.attention_with_lse.  Graphs contain no Python objects, so the operators take a batch and its mods as
handles, which are tensors:

    from paged.torch import ops

    batch = pool.batch()
    handle = ops.handle(batch)

    @torch.compile(fullgraph=True)
    def layer(q, k, v):
        ops.append(handle, 0, k, v)
        return ops.attention(handle, 0, q)

    batch.plan(seqs, 1, kv_len)         # outside of the graph, for each step
    out = layer(q, k, v)

append() is declared to change the handle, and attention() to read it.  So compiled graphs keep their order, and do not
remove an append() whose result nothing reads.
"""
from __future__ import annotations

import itertools
import weakref

import torch

import paged

__all__ = ["append", "attention", "attention_with_lse", "handle"]

# Objects by the number in their handle.  An entry lives as long as the handle.
_objects: dict[int, paged.Batch | paged.ModSet] = {}
_numbers = itertools.count(1)


def handle(value: paged.Batch | paged.ModSet) -> torch.Tensor:
    """Return a tensor that stands for a batch or a set of mods in the operators of this module.

    value
        A paged.Batch or paged.ModSet.  It stays alive at least as long as the tensor.

    Returns int64 [1] in host memory.  Keep the tensor itself: a copy is valid only as long as the original lives.

    A new handle is another input of a compiled graph, and does not make it compile again.
    """
    if not isinstance(value, (paged.Batch, paged.ModSet)):
        raise TypeError(f"a handle stands for a paged.Batch or a paged.ModSet, not for {type(value)}")
    number = next(_numbers)
    tensor = torch.tensor([number], dtype=torch.int64, device="cpu")
    _objects[number] = value
    weakref.finalize(tensor, _objects.pop, number, None).atexit = False
    return tensor


def _batch(handle: torch.Tensor) -> paged.Batch:
    found = _objects.get(int(handle.item()))
    if not isinstance(found, paged.Batch):
        raise ValueError(f"handle {handle.item()} is that of no batch, or its tensor was collected")
    return found


def _mods(handle: torch.Tensor | None) -> paged.ModSet | None:
    if handle is None:
        return None
    found = _objects.get(int(handle.item()))
    if not isinstance(found, paged.ModSet):
        raise ValueError(f"handle {handle.item()} is that of no set of mods, or its tensor was collected")
    return found


_library = torch.library.Library("paged", "DEF")
_library.define("append(Tensor(a!) batch, int layer, Tensor k, Tensor? v) -> ()")
_library.define("attention(Tensor batch, int layer, Tensor q, int v_dim, Tensor? mods, bool causal, float? scale)"
                " -> Tensor")
_library.define("attention_with_lse(Tensor batch, int layer, Tensor q, int v_dim, Tensor? mods, bool causal, "
                "float? scale) -> (Tensor, Tensor)")


def _append(batch: torch.Tensor, layer: int, k: torch.Tensor, v: torch.Tensor | None) -> None:
    _batch(batch).append(layer, k, v)


def _attention(batch: torch.Tensor, layer: int, q: torch.Tensor, v_dim: int, mods: torch.Tensor | None, causal: bool,
               scale: float | None) -> torch.Tensor:
    out = q.new_empty((*q.shape[:-1], v_dim))
    _batch(batch).attention(layer, q, out, mods=_mods(mods), causal=causal, scale=scale)
    return out


def _attention_with_lse(batch: torch.Tensor, layer: int, q: torch.Tensor, v_dim: int, mods: torch.Tensor | None,
                        causal: bool, scale: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = _empty_results(q, v_dim)
    _batch(batch).attention(layer, q, out, mods=_mods(mods), causal=causal, scale=scale, lse=lse)
    return out, lse


def _empty_results(q: torch.Tensor, v_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    n_heads = q.shape[1]
    n_tokens = q.shape[0] if q.dim() == 3 else q.shape[0] * q.shape[2]
    return q.new_empty((*q.shape[:-1], v_dim)), q.new_empty((n_tokens, n_heads), dtype=torch.float32)


for _backend in "CPU", "CUDA":
    # The batch's handle is in host memory; q, k and v are where the pool is.
    _library.impl("append", _append, _backend)
    _library.impl("attention", _attention, _backend)
    _library.impl("attention_with_lse", _attention_with_lse, _backend)


@torch.library.register_fake("paged::append", lib=_library)
def _(batch: torch.Tensor, layer: int, k: torch.Tensor, v: torch.Tensor | None) -> None:
    return None


@torch.library.register_fake("paged::attention", lib=_library)
def _(batch: torch.Tensor, layer: int, q: torch.Tensor, v_dim: int, mods: torch.Tensor | None, causal: bool,
      scale: float | None) -> torch.Tensor:
    return q.new_empty((*q.shape[:-1], v_dim))


@torch.library.register_fake("paged::attention_with_lse", lib=_library)
def _(batch: torch.Tensor, layer: int, q: torch.Tensor, v_dim: int, mods: torch.Tensor | None, causal: bool,
      scale: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    return _empty_results(q, v_dim)


def _check_grad(*tensors: torch.Tensor | None) -> None:
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise NotImplementedError("paged computes no gradients: call under torch.no_grad(), or detach() the tensors")


def append(batch: torch.Tensor, layer: int, k: torch.Tensor, v: torch.Tensor | None = None) -> None:
    """Write K and V of this step into the pages of a layer, as paged.Batch.append() does.

    batch
        From handle(); the batch has a plan.
    layer
        Number of the layer.
    k
        [total_q, n_kv_heads, k_dim], or [n_rows, n_kv_heads, q_len, k_dim].
    v
        The same with v_dim; None in a pool whose V lies in K.

    May be used in functions that torch.compile compiles.  Raises ValueError if batch is not a handle of a batch, and
    the exceptions of paged.Batch.append(); NotImplementedError if gradients are recorded and a tensor requires one.
    """
    _check_grad(k, v)
    torch.ops.paged.append(batch, layer, k, v)


def attention(batch: torch.Tensor, layer: int, q: torch.Tensor, *, v_dim: int | None = None,
              mods: torch.Tensor | None = None, causal: bool = True, scale: float | None = None) -> torch.Tensor:
    """Compute attention over the pages of a layer, as paged.Batch.attention() does.

    batch
        From handle(); the batch has a plan.
    layer
        Number of the layer.
    q
        [total_q, n_heads, k_dim], or [n_rows, n_heads, q_len, k_dim].
    v_dim
        That of the pool.  None: k_dim.
    mods
        From handle(), of a paged.ModSet of the batch.  Its mods apply in addition to causal.
    causal
        True: a query sees keys up to its own position.
    scale
        Factor of the scores.  None: 1 / sqrt(k_dim).

    Returns q's shape with v_dim in place of k_dim.

    May be used in functions that torch.compile compiles.  Raises ValueError if a handle is not one, and the exceptions
    of paged.Batch.attention(); NotImplementedError if gradients are recorded and q requires one.
    """
    _check_grad(q)
    out: torch.Tensor = torch.ops.paged.attention(
        batch, layer, q, q.shape[-1] if v_dim is None else v_dim, mods, causal, scale)
    return out


def attention_with_lse(batch: torch.Tensor, layer: int, q: torch.Tensor, *, v_dim: int | None = None,
                       mods: torch.Tensor | None = None, causal: bool = True, scale: float | None = None,
                       ) -> tuple[torch.Tensor, torch.Tensor]:
    """As attention(), but return (out, lse): logarithms of the softmax denominators, float32 [total_q, n_heads]."""
    _check_grad(q)
    out: torch.Tensor
    lse: torch.Tensor
    out, lse = torch.ops.paged.attention_with_lse(
        batch, layer, q, q.shape[-1] if v_dim is None else v_dim, mods, causal, scale)
    return out, lse
