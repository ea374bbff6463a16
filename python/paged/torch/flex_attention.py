# SPDX-License-Identifier: Apache-2.0
"""PyTorch's flex_attention, computed by the library's kernels."""
from __future__ import annotations

import math
import os
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.attention.flex_attention import AuxOutput, AuxRequest, BlockMask
from torch.utils.dlpack import from_dlpack

import paged
from paged.torch.block_lists import BlockLists, lists_of, packed
from paged.torch.graph import Kind
from paged.torch.mods import Translated, translate

if TYPE_CHECKING:
    from paged.torch.attention import PagedAttention, PagedMod

__all__ = ["flex_attention"]

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)

# PyTorch's block size of a BlockMask that stands for "no blocks are listed".
NO_BLOCKS = 1 << 30

# Smaller ones are 0 in the kernels.
SMALLEST_SCALE = torch.finfo(torch.float32).smallest_normal

PAGE_SIZE = 128
MAX_SCRATCH_POOLS = 8
MAX_MOD_SETS = 64


@torch.compiler.disable
def flex_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   score_mod: Callable[..., Any] | None = None, block_mask: BlockMask | None = None,
                   scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
                   kernel_options: dict[str, Any] | None = None, *, return_aux: AuxRequest | None = None) -> Any:
    """Compute attention as PyTorch's flex_attention does, by the library's kernels and without compilation.

    query
        [B, Hq, L, E] of float32, bfloat16 or float16.
    key
        [B, Hkv, S, E] of float32, bfloat16, float16, float8_e4m3fn or float8_e5m2.  With a block_mask of B rows also
        [1, Hkv, S, E], which all rows then read.
    value
        [B, Hkv, S, Ev], or [1, Hkv, S, Ev] as key, and of its dtype.
    score_mod
        score_mod(score, b, h, q_idx, kv_idx) returns the new score; see translate().
    block_mask
        As torch's create_block_mask() makes it.  None: every query sees every key.  Each query block attends the KV
        blocks in its lists, and the mask mod applies in those that are not full: compiled flex_attention computes the
        same.
    scale
        Factor of the scores.  None: 1 / sqrt(E).
    enable_gqa
        True: Hq may be a multiple of Hkv.
    return_lse
        True: return (out, lse).  return_aux=AuxRequest(lse=True) is PyTorch's newer form.
    kernel_options
        Ignored: these are options of Triton's kernels.
    return_aux
        Return (out, AuxOutput) with the results that it requests, also max_scores.

    Returns [B, Hq, L, Ev] of query's dtype.  lse (natural logarithms) and max_scores are [B, Hq, L] of float32.  A
    query that attends no key has output 0, and lse and maximum -inf.

    There are two ways to the keys and values:

    * key and value are PagedAttention.caches(), and block_mask and score_mod were made by that object's
      convert_logical_block_mask() and get_score_mod().  The pages are read in place.
    * Each call copies other tensors into the pages of a pool, which is slower and takes memory for a second copy.  The
      module keeps the pools of the last eight geometries.

    Threads that call with the same pool take turns.  On a GPU, make all calls on one stream.

    Raises UntranslatableError if a mod uses an operation that the mod language lacks; ValueError if shapes, types or
    devices do not fit each other; RuntimeError if block_mask was made for other lengths, lies on another device, or is
    a slice; NotImplementedError if a tensor does not have four dimensions, or gradients are recorded and an argument or
    a captured tensor requires one; and paged.RangeError if a mod reads a captured tensor out of bounds (on
    a GPU it reads 0 instead).
    """
    _check(query, key, value, block_mask, enable_gqa, return_lse, return_aux)
    if key.dtype in FP8:  # exact in float16
        key, value = key.to(torch.float16), value.to(torch.float16)
    wants_lse = return_lse or return_aux is not None and return_aux.lse
    wants_max = return_aux is not None and return_aux.max_scores

    lse: torch.Tensor | None
    max_scores: torch.Tensor | None
    if query.numel() == 0 or key.shape[2] == 0:
        out = query.new_zeros((*query.shape[:3], value.shape[3]))
        lse, max_scores = (query.new_full(query.shape[:3], -math.inf, dtype=torch.float32) for _ in range(2))
    else:
        call = _in_place(key, value, score_mod, block_mask)
        if call is not None:
            out, lse, max_scores = _attend_in_place(query, key, call, block_mask, scale, wants_lse, wants_max)
        else:
            out, lse, max_scores = _attend_copy(query, key, value, score_mod, block_mask, scale, wants_lse, wants_max)
    if return_aux is not None:
        return out, AuxOutput(lse=lse if return_aux.lse else None, max_scores=max_scores if wants_max else None)
    return (out, lse) if return_lse else out


# ---------------------------------------------------------------------------------------------------------- checks


def _check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, block_mask: BlockMask | None,
           enable_gqa: bool, return_lse: bool, return_aux: AuxRequest | None) -> None:
    """PyTorch's checks, in its order, and those of what the kernels cannot do."""
    tensors = {"query": query, "key": key, "value": value}
    if any(t.is_nested for t in tensors.values()):
        raise NotImplementedError("query, key and value are dense tensors, not nested ones")
    for name, tensor in tensors.items():
        if tensor.device != query.device:
            raise ValueError(f"query is on {query.device}, {name} on {tensor.device}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query has embedding dimension {query.shape[-1]}, key {key.shape[-1]}")
    _check_grad(tensors)
    for name, tensor in tensors.items():
        if tensor.dim() != 4:
            raise NotImplementedError(f"{name} has {tensor.dim()} dimensions, not 4: [batch, heads, tokens, dim]")
        if tensor.shape[3] == 0:
            raise ValueError(f"{name} has embedding dimension 0")
    if query.dtype not in DTYPES:
        raise ValueError(f"query has dtype {query.dtype}; float32, bfloat16 and float16 are possible")
    if key.dtype != value.dtype or key.dtype not in DTYPES and key.dtype not in FP8:
        raise ValueError(f"key and value have dtypes {key.dtype} and {value.dtype}; both have the same, of float32, "
                         "bfloat16, float16 and float8")
    if key.shape[:3] != value.shape[:3]:
        raise ValueError(f"key has shape {tuple(key.shape)}, value {tuple(value.shape)}; batch, heads and tokens have "
                         "to be equal")
    n_heads, n_kv_heads = query.shape[1], key.shape[1]
    if not enable_gqa and n_heads != n_kv_heads:
        raise ValueError(f"query has {n_heads} heads, key and value {n_kv_heads}; enable_gqa=True allows this")
    if n_heads and (n_kv_heads == 0 or n_heads % n_kv_heads != 0):
        raise ValueError(f"query's {n_heads} heads are no multiple of the {n_kv_heads} of key and value")
    _check_batch(query, key, block_mask)
    if return_lse and return_aux is not None:
        raise ValueError("return_lse and return_aux exclude each other: use return_aux=AuxRequest(lse=True)")


def _check_grad(tensors: dict[str, torch.Tensor]) -> None:
    if torch.is_grad_enabled():
        for name, tensor in tensors.items():
            if tensor.requires_grad:
                raise NotImplementedError(f"{name} requires a gradient, and paged computes none: call under "
                                          "torch.no_grad(), or detach() the tensor")


def _check_batch(query: torch.Tensor, key: torch.Tensor, block_mask: BlockMask | None) -> None:
    batch, kv_batch = query.shape[0], key.shape[0]
    rows = None if block_mask is None else block_mask.kv_num_blocks.shape[0]
    if batch != kv_batch and (kv_batch != 1 or rows != batch):
        mask = "there is no block_mask" if rows is None else f"block_mask has {rows}"
        raise ValueError(f"query has batch size {batch}, key and value {kv_batch}, and {mask}; key and value may only "
                         "have batch size 1 if block_mask has that of query")
    if block_mask is None:
        return
    if getattr(block_mask.mask_mod, "__name__", "") == "_sliced_mask_mod_error":
        raise RuntimeError("block_mask is a slice, which has no mask_mod: set that of the slice")
    if block_mask.kv_num_blocks.device != query.device:
        raise RuntimeError(f"query is on {query.device}, block_mask on {block_mask.kv_num_blocks.device}")
    if _lists_no_blocks(block_mask):
        return
    lengths, wanted = tuple(block_mask.seq_lengths), (query.shape[2], key.shape[2])
    if lengths != wanted:
        raise RuntimeError(f"block_mask was made for {lengths[0]} queries and {lengths[1]} keys, but there are "
                           f"{wanted[0]} and {wanted[1]}")
    for what, size, of in ("rows", rows, batch), ("heads", block_mask.kv_num_blocks.shape[1], query.shape[1]):
        if size not in (1, of):
            raise ValueError(f"block_mask has {size} {what}, query {of}")


def _lists_no_blocks(block_mask: BlockMask) -> bool:
    return tuple(block_mask.BLOCK_SIZE) == (NO_BLOCKS, NO_BLOCKS)


# --------------------------------------------------------------------------------------------- batches and their mods


class _Rows(NamedTuple):
    """The plan of a call."""

    seqs: list[int]
    kv_len: list[int]


class _Place(NamedTuple):
    """The K or V of a pool as PagedAttention.caches() returns it, of layer 0."""

    address: int
    layer_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, pages: paged.Pages) -> _Place:
        tensor = from_dlpack(pages)
        _, n_pages, n_heads, page_size, dim = tensor.shape
        layer, page, head, token, element = tensor.stride()
        n_tokens = (n_pages - 1) * (page // token) + page_size
        return cls(tensor.data_ptr(), layer * tensor.element_size(), (1, n_heads, n_tokens, dim),
                   (page, head, token, element), tensor.dtype)

    def layer(self, tensor: torch.Tensor) -> int | None:
        """The layer whose cache a tensor is; None: it is another tensor, such as a slice of it."""
        layer, rest = divmod(tensor.data_ptr() - self.address, self.layer_bytes)
        same = (self.shape, self.strides, self.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
        return layer if same and rest == 0 and layer >= 0 else None


class _ListsState(NamedTuple):
    """The tensors of a BlockMask, and what tells whether their contents have changed."""

    tensors: tuple[torch.Tensor, ...]
    #: Version of a tensor; of one made in inference mode, which has none, a copy.
    contents: tuple[int | torch.Tensor, ...]

    @classmethod
    def of(cls, block_mask: BlockMask) -> _ListsState:
        lists = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks,
                 block_mask.full_kv_indices)
        tensors = tuple(t for t in lists if t is not None)
        return cls(tensors, tuple(t.clone() if t.is_inference() else t._version for t in tensors))

    def equal(self, other: _ListsState) -> bool:
        return len(self.tensors) == len(other.tensors) and all(
            a is b and (torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else x == y)
            for a, b, x, y in zip(self.tensors, other.tensors, self.contents, other.contents))


class _Made(NamedTuple):
    """A mask of the library, and what it was made from."""

    state: Any
    lists: _ListsState
    mask: paged.BlockMask


class _Runner:
    """A batch of a pool, with the mods that were used in it."""

    def __init__(self, pool: paged.Pool) -> None:
        self.pool = pool
        self.k_place, self.v_place = _Place.of(pool.k), _Place.of(pool.v)
        self.lock = threading.Lock()
        self._batch: paged.Batch | None = None
        self._bounds = (0, 0, 0)
        self._mods: dict[Any, paged.Mod] = {}
        self._sets: OrderedDict[Any, paged.ModSet] = OrderedDict()
        self._masks: weakref.WeakKeyDictionary[BlockMask, _Made] = weakref.WeakKeyDictionary()

    def batch(self, n_rows: int, n_tokens: int, n_heads: int) -> paged.Batch:
        """A batch for so many rows, query rows and heads; only GPUs need the bounds of the latter two."""
        bounds = (n_rows, n_tokens, n_heads) if self.pool.backend == "cuda" else (n_rows, 0, 0)
        if self._batch is None or any(a > b for a, b in zip(bounds, self._bounds)):
            self.forget_batch()
            self._bounds = (max(256, n_rows, self._bounds[0]), max(bounds[1], self._bounds[1]),
                            max(bounds[2], self._bounds[2]))
            self._batch = self.pool.batch(max_rows=self._bounds[0], max_q_tokens=self._bounds[1],
                                          max_q_heads=self._bounds[2])
        return self._batch

    def forget_batch(self) -> None:
        self._sets.clear()
        if self._batch is not None:
            self._batch.finish()
            self._batch.close()
            self._batch = None

    def _mod(self, translated: Translated | None, types: Any) -> paged.Mod | None:
        if translated is None:
            return None
        key = (translated.kind, translated.text, types)
        if key not in self._mods:
            if len(self._mods) >= MAX_MOD_SETS:
                self._mods.clear()
            self._mods[key] = self.pool.mod(translated.kind, translated.text, **translated.arrays)
        return self._mods[key]

    def mods(self, batch: paged.Batch, mask: Translated | None, score: Translated | None,
             blocks: paged.BlockMask | None) -> paged.ModSet | None:
        """The set of the two mods, bound to their arrays and the block mask."""
        if mask is None and score is None and blocks is None:
            return None
        mask, score, arrays = _together(mask, score)
        types = tuple((name, t.dtype, t.dim()) for name, t in arrays.items())
        key = (mask and mask.text, score and score.text, types)
        mod_set = self._sets.get(key)
        if mod_set is None:
            mod_set = batch.mods(mask=self._mod(mask, types), score=self._mod(score, types), blocks=blocks, **arrays)
            self._sets[key] = mod_set
            if len(self._sets) > MAX_MOD_SETS:
                self._sets.popitem(last=False)
        else:
            self._sets.move_to_end(key)
            mod_set.bind(blocks=blocks, **arrays)
        return mod_set

    def block_mask(self, block_mask: BlockMask | None, q_len: int, kv_len: list[int],
                   pages: _LogicalBlocks | None = None) -> paged.BlockMask | None:
        """The library's form of the lists of a BlockMask; with `pages`, these name blocks of the caches."""
        if block_mask is None or _lists_no_blocks(block_mask):
            return None
        lists = _ListsState.of(block_mask)
        n_rows = lists.tensors[0].shape[0]
        lengths = kv_len if n_rows > 1 else [max(kv_len)]
        state = q_len, lengths, pages and pages.versions
        known = self._masks.get(block_mask)
        if known is not None and known.state == state and known.lists.equal(lists):
            return known.mask
        parts = [part if pages is None else pages.logical(part) for part in lists_of(block_mask) if part is not None]
        num_blocks, indices, *full = [
            t.to("cpu", torch.int32).contiguous() for part in parts for t in (part.num_blocks, part.indices)]
        made = self.pool.block_mask_from_arrays(
            [q_len] * n_rows, lengths, num_blocks=num_blocks, indices=indices,
            full_num_blocks=full[0] if full else None, full_indices=full[1] if full else None, q_base=0,
            n_heads=num_blocks.shape[1], q_block=min(block_mask.BLOCK_SIZE[0], q_len),
            kv_block=min(block_mask.BLOCK_SIZE[1], max(lengths)))
        self._masks[block_mask] = _Made(state, lists, made)
        return made

    def attend(self, layer: int, rows: _Rows, query: torch.Tensor, mask: Translated | None, score: Translated | None,
               blocks: paged.BlockMask | None, scale: float | None, wants_lse: bool, wants_max: bool,
               ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        n_rows, n_heads, q_len, _ = query.shape
        batch = self.batch(n_rows, n_rows * q_len, n_heads)
        batch.plan(rows.seqs, q_len, rows.kv_len, q_base=0, no_append=True)
        lse, max_scores = (torch.empty((n_rows * q_len, n_heads), dtype=torch.float32, device=query.device) if wanted
                           else None for wanted in (wants_lse, wants_max))
        if scale is not None and abs(scale) < SMALLEST_SCALE:  # 0 is the library's default
            query, scale = torch.zeros_like(query), 1.0
        out = batch.attention(layer, _strided(query), mods=self.mods(batch, mask, score, blocks), causal=False,
                              scale=scale, lse=lse, max_score=max_scores)
        if self.pool.backend == "host":  # on a GPU it would wait
            batch.validate()
        return out, *(None if t is None else t.view(n_rows, q_len, n_heads).transpose(1, 2) for t in (lse, max_scores))


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """[rows, heads, tokens, dim] with strides that the kernels accept: dense vectors that do not overlap."""
    *outer, last = tensor.stride()
    dense = last == 1 or tensor.shape[3] == 1
    apart = all(s >= tensor.shape[3] or n == 1 for s, n in zip(outer, tensor.shape))
    return tensor if dense and apart else tensor.contiguous()


def _together(mask: Translated | None, score: Translated | None,
              ) -> tuple[Translated | None, Translated | None, dict[str, torch.Tensor]]:
    """Both mods with the union of their arrays; arrays of the score mod get other names where names clash."""
    if mask is None or score is None:
        only = mask or score
        return mask, score, only.arrays if only is not None else {}
    arrays, text, renamed = dict(mask.arrays), score.text, {}
    for name, tensor in score.arrays.items():
        other = arrays.get(name)
        if other is not None and (other.data_ptr(), other.dtype, other.shape, other.stride()) != (
                tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()):
            new = next(n for i in range(256) if (n := f"s{i}") not in arrays and n not in score.arrays
                       and n not in renamed)
            text = re.sub(rf"\b{name}\b", new, text)
            name = new
        renamed[name] = tensor
    return mask, score._replace(text=text, arrays=renamed), arrays | renamed


def _translate(mod: Callable[..., Any] | None, kind: Kind) -> Translated | None:
    """None for the functions that PyTorch uses for "no mod"."""
    if mod is None or getattr(mod, "__module__", None) == BlockMask.__module__ and \
            getattr(mod, "__name__", None) in ("noop_mask", "_identity"):
        return None
    translated = translate(mod, kind)
    _check_grad(translated.arrays)
    return translated


# ----------------------------------------------------------------------------------- keys and values in a pool's pages

_runners: weakref.WeakKeyDictionary[Any, _Runner] = weakref.WeakKeyDictionary()
_runners_lock = threading.Lock()


class _InPlace(NamedTuple):
    """A call whose K and V are pages."""

    runner: _Runner
    layer: int
    mask: PagedMod
    score: PagedMod | None


def _in_place(key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., Any] | None,
              block_mask: BlockMask | None) -> _InPlace | None:
    """The mods by logical positions, if K and V are the pages of the PagedAttention that made all arguments."""
    mask: PagedMod | None = getattr(block_mask.mask_mod, "paged", None) if block_mask is not None else None
    score: PagedMod | None = getattr(score_mod, "paged", None)
    if mask is None or score_mod is not None and (
            score is None or score.attention is not mask.attention or not _equal(score.batch_idx, mask.batch_idx)):
        return None
    with _runners_lock:
        runner = _runners.get(mask.attention)
        if runner is None:
            runner = _runners[mask.attention] = _Runner(mask.attention.pool)
    layer = runner.k_place.layer(key)
    if layer is None or layer >= runner.pool.n_layers or layer != runner.v_place.layer(value):
        return None
    return _InPlace(runner, layer, mask, score)


def _equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return a is b or a is not None and b is not None and torch.equal(a, b)


def _attend_in_place(query: torch.Tensor, key: torch.Tensor, call: _InPlace, block_mask: BlockMask | None,
                     scale: float | None, wants_lse: bool, wants_max: bool,
                     ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    runner, layer, mask, score = call
    assert block_mask is not None
    attention = mask.attention
    index = list(range(query.shape[0])) if mask.batch_idx is None else mask.batch_idx.tolist()
    capacity = attention.capacity.tolist()
    listed = _limited([capacity[i] for i in index], mask.kv_len)
    kv_len = _limited(listed, score.kv_len if score is not None else None)
    sequences = attention.sequences
    pages = _LogicalBlocks(attention, index, block_mask.BLOCK_SIZE[1], listed, attention.page_versions(index))
    with runner.lock:
        blocks = runner.block_mask(block_mask, query.shape[2], listed, pages)
        return runner.attend(layer, _Rows([sequences[i] for i in index], kv_len), query, _translate(mask.mod, "mask"),
                             _translate(score.mod, "score") if score is not None else None, blocks, scale, wants_lse,
                             wants_max)


def _limited(kv_len: list[int], limit: torch.Tensor | None) -> list[int]:
    return kv_len if limit is None else [max(0, min(a, b)) for a, b in zip(kv_len, limit.tolist())]


class _LogicalBlocks(NamedTuple):
    """From blocks of the caches, in which a page begins every `pitch` tokens, to blocks of the rows' positions."""

    attention: PagedAttention
    rows: list[int]
    block: int
    kv_len: list[int]
    versions: Any

    def logical(self, lists: BlockLists) -> BlockLists:
        """Drops blocks whose pages the rows no longer have."""
        attention, device = self.attention, lists.indices.device
        table = attention.physical_to_logical[self.rows].to(device)
        column = torch.arange(lists.indices.shape[-1], device=device)
        listed = column < lists.num_blocks[..., None]
        physical = torch.where(listed, lists.indices, 0).to(torch.int64) * self.block
        page, within = physical // attention.pitch, physical % attention.pitch
        logical = table.gather(1, page.reshape(len(self.rows), -1)).view(page.shape)
        position = logical * attention.page_size + within
        limit = torch.tensor(self.kv_len, device=device).view(-1, 1, 1, 1)
        return packed(position // self.block, listed & (logical >= 0) & (position < limit))


# ------------------------------------------------------------------------------------ keys and values in other tensors


class _Scratch:
    """A pool in this process, into which K and V of each call are copied."""

    def __init__(self, geometry: dict[str, Any], n_pages: int, n_rows: int) -> None:
        self.n_pages, self.n_rows = n_pages, n_rows
        self.client = paged.embedded({**geometry, "name": "scratch", "n_layers": 1, "page_size": PAGE_SIZE,
                                      "n_pages": n_pages, "n_slots": n_rows})
        self.pool = self.client.pool("scratch")
        self.seqs = self.pool.create(n_rows)
        self.runner = _Runner(self.pool)
        self.shape = (0, 0)

    def fill(self, key: torch.Tensor, value: torch.Tensor) -> list[int]:
        n_rows, _, n_tokens, _ = key.shape
        seqs = self.seqs[:n_rows]
        if self.shape != (n_rows, n_tokens):
            self.pool.truncate(self.seqs, 0)
            self.pool.reserve(seqs, n_tokens)
            self.shape = n_rows, n_tokens
        batch = self.runner.batch(n_rows, n_rows * n_tokens, key.shape[1])
        batch.plan(seqs, n_tokens, n_tokens)
        batch.append(0, _strided(key), _strided(value))
        return seqs

    def close(self) -> None:
        with self.runner.lock:
            self.runner.forget_batch()
            self.client.close()


_scratch: OrderedDict[Any, _Scratch] = OrderedDict()
_scratch_lock = threading.Lock()


def _forget_scratch() -> None:
    """In a forked child, the parent's pools are unusable."""
    global _scratch_lock, _runners_lock
    _scratch_lock, _runners_lock = threading.Lock(), threading.Lock()
    _scratch.clear()


os.register_at_fork(after_in_child=_forget_scratch)


def _scratch_for(key: torch.Tensor, value: torch.Tensor) -> _Scratch:
    geometry: dict[str, Any] = {"n_kv_heads": key.shape[1], "k_dim": key.shape[3], "v_dim": value.shape[3],
                                "dtype": DTYPES[key.dtype]}
    if key.device.type == "cuda":
        geometry |= {"backend": "cuda", "device": str(key.device.index)}
    n_rows, n_pages = key.shape[0], key.shape[0] * -(-key.shape[2] // PAGE_SIZE)
    name = tuple(geometry.items())
    with _scratch_lock:
        scratch = _scratch.get(name)
        if scratch is None or scratch.n_pages < n_pages or scratch.n_rows < n_rows:
            if scratch is not None:
                # Grow by factors, so that lengths that grow do not make a pool each time.
                n_pages, n_rows = max(n_pages, scratch.n_pages * 3 // 2), max(n_rows, scratch.n_rows)
                _scratch.pop(name).close()
            scratch = _scratch[name] = _Scratch(geometry, n_pages, n_rows)
            if len(_scratch) > MAX_SCRATCH_POOLS:
                _scratch.popitem(last=False)[1].close()
        _scratch.move_to_end(name)
        # Still under the lock, so that no other thread closes it before the caller has it.
        scratch.runner.lock.acquire()
        return scratch


def _attend_copy(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., Any] | None,
                 block_mask: BlockMask | None, scale: float | None, wants_lse: bool, wants_max: bool,
                 ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    mask = _translate(block_mask.mask_mod, "mask") if block_mask is not None else None
    score = _translate(score_mod, "score")
    n_rows = query.shape[0]
    scratch = _scratch_for(key, value)
    try:
        seqs = scratch.fill(key, value)
        rows = _Rows(seqs * n_rows if len(seqs) == 1 else seqs, [key.shape[2]] * n_rows)
        blocks = scratch.runner.block_mask(block_mask, query.shape[2], rows.kv_len)
        return scratch.runner.attend(0, rows, query, mask, score, blocks, scale, wants_lse, wants_max)
    finally:
        scratch.runner.lock.release()
