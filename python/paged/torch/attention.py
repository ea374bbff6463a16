# SPDX-License-Identifier: Apache-2.0
"""PyTorch's PagedAttention on a pool of paged."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.nn.attention.flex_attention import BlockMask, _identity, noop_mask
from torch.utils.dlpack import from_dlpack

import paged
from paged.torch.block_lists import Conversion, lists_of
from paged.torch.page_tables import PageTables

__all__ = ["PagedAttention", "PagedMod"]

MaskMod: TypeAlias = Callable[..., torch.Tensor]
ScoreMod: TypeAlias = Callable[..., torch.Tensor]
Integers: TypeAlias = int | Iterable[int] | torch.Tensor

_DTYPES = {
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class PagedMod(NamedTuple):
    """Where a mod of a PagedAttention comes from; the attribute `paged` of the function.

    attention
        The PagedAttention that made the function.
    mod
        The mask mod or score mod over logical positions that it calls.
    batch_idx
        The row of the page table that each batch index stands for; None: the same index.
    kv_len
        The number of keys of each batch index; None: the capacity of its row.
    """

    attention: PagedAttention
    mod: Callable[..., Any]
    batch_idx: torch.Tensor | None
    kv_len: torch.Tensor | None


class PagedAttention:
    """Page tables of a batch of sequences, for torch's flex_attention.

    This class has the methods and attributes of PyTorch's
    torch.nn.attention.experimental._paged_attention.PagedAttention, and hands out the same pages in the same
    order.  Its pages belong to a pool of paged, which other processes may share.

    n_pages
        Number of pages of the pool.
    page_size
        Tokens in a page, 1 to 256.
    max_batch_size
        Number of rows, each of which is a sequence of the pool.
    device
        Where the tensors `page_table`, `physical_to_logical` and `capacity` lie, and the pages.
    pool
        An open paged.Pool.  Its number of pages, page size and device must be those given before.
    n_layers, n_kv_heads, k_dim, v_dim, dtype
        Geometry of a pool that is made for this object, in the memory of this process.  `n_kv_heads` and `k_dim`
        belong together.  `v_dim` is `k_dim` by default; any other value is refused, because flex_attention reads K and
        V of a token at the same index.

    There are two kinds of caches.  Without `pool` and geometry, K and V lie in tensors of the caller, of shape
    [1, n_kv_heads, n_pages * page_size, dim], as with PyTorch's class.  With one of them, K and V lie in the pool's
    own pages: `caches()` returns these as tensors, which flex_attention reads in place.  In both kinds `assign()`
    writes, and block masks and mods made by this object are for that kind.

    The methods take batch indices and lengths as integers, lists or tensors.  Values in GPU memory have to be copied
    to the host first, which waits for the GPU: pass integers where the program has them.

    The attribute `pool` is the pool, and `pitch` the number of tokens from one page to the next in the caches.

    Raises ValueError if `pool` and the other arguments contradict each other, or if flex_attention cannot read the
    pool's pages, and the exceptions of paged.embedded().

    PyTorch's class has errors that this one does not repeat:

    * `erase()` also clears `physical_to_logical`, so mods no longer see pages that another row has taken.  It accepts
      an integer or a tensor without dimensions, and frees the pages of a row that is named twice only once.
    * `get_mask_mod()` and `get_score_mod()` have a parameter `batch_idx`, and `convert_logical_block_mask()` uses it:
      a mask of some rows sees these rows, not the first ones.
    * `convert_logical_block_mask()` drops blocks that have no page, where PyTorch writes negative indices.  With
      `kv_len`, blocks past it are dropped, and a full block that contains it becomes partial, so that the kernel
      applies the mask mod there.  A mask of one row is expanded to all rows of `batch_idx`.  The KV block size may be
      a multiple of the page size, or divide it.
    * `assign()` refuses positions past the capacity.  PyTorch writes them into the last page of the cache.
    * Mods are never called with positions that have no page or are past `kv_len`, so captured tensors need no
      padding.
    * `page_table` and `physical_to_logical` take memory only when they are used, and `reserve()` does not copy the
      list of free pages.

    The object is not thread-safe.
    """

    def __init__(self, n_pages: int, page_size: int, max_batch_size: int, device: str | torch.device = "cuda", *,
                 pool: paged.Pool | None = None, n_layers: int = 1, n_kv_heads: int | None = None,
                 k_dim: int | None = None, v_dim: int | None = None, dtype: torch.dtype = torch.float32) -> None:
        self.n_pages = _count("n_pages", n_pages, 1)
        self.page_size = _count("page_size", page_size, 1, paged.MAX_PAGE_SIZE)
        self.max_batch_size = _count("max_batch_size", max_batch_size, 0)
        _count("n_layers", n_layers, 1)
        for name, value in ("n_kv_heads", n_kv_heads), ("k_dim", k_dim), ("v_dim", v_dim):
            if value is not None:
                _count(name, value, 1)
        if v_dim is not None and k_dim is None:
            raise ValueError(f"v_dim is {v_dim}, but n_kv_heads and k_dim are not given: all three belong together")
        # torch resolves "cuda" to the current device, and refuses a device that it lacks.
        self.device = torch.empty(0, device=device).device
        self._client: paged.Client | None = None
        self._in_place = pool is not None or n_kv_heads is not None
        if pool is None:
            pool = self._embed(n_layers, n_kv_heads, k_dim, v_dim, dtype)
        else:
            _check_pool(pool, n_pages, page_size, self.device, n_kv_heads, k_dim)
        self.pool = pool
        self.pitch = _pitch(pool) if self._in_place else page_size
        self._tables = PageTables(pool, max_batch_size, self.device, alone=self._client is not None)

    def _embed(self, n_layers: int, n_kv_heads: int | None, k_dim: int | None, v_dim: int | None,
               dtype: torch.dtype) -> paged.Pool:
        """Make a pool in this process: with memory for K and V, or for page tables alone."""
        if (n_kv_heads is None) != (k_dim is None):
            raise ValueError(f"n_kv_heads and k_dim belong together, but got {n_kv_heads} and {k_dim}")
        if dtype not in _NAMES:
            raise ValueError(f"no pool has elements of {dtype}; dtype is one of {', '.join(map(str, _NAMES))}")
        params: dict[str, Any] = {
            "name": "PagedAttention", "n_pages": self.n_pages, "page_size": self.page_size,
            "n_slots": max(self.max_batch_size, 1),
        }
        if self._in_place:
            # As many slots again, for sequences that become rows by adopt().
            params |= {"n_layers": n_layers, "n_kv_heads": n_kv_heads, "k_dim": k_dim,
                       "v_dim": k_dim if v_dim is None else v_dim, "dtype": _NAMES[dtype],
                       "n_slots": 2 * max(self.max_batch_size, 1)}
            if self.device.type == "cuda":
                params |= {"backend": "cuda", "device": str(self.device.index)}
            self._client = paged.embedded(params)
        else:
            # Memory of the host is allocated on first touch, so the smallest geometry takes none.
            params |= {"n_layers": 1, "n_kv_heads": 1, "k_dim": 1, "dtype": "f16"}
            self._client = paged.embedded(params, threads=1, run="own")
        return self._client.pool("PagedAttention")

    # PyTorch's attributes.

    @property
    def page_table(self) -> torch.Tensor:
        """The page of each row's logical block, or -1: int64 [max_batch_size, n_pages].  Read only."""
        return self._tables.full_table()

    @property
    def physical_to_logical(self) -> torch.Tensor:
        """The logical block that a row has in each page, or -1: int64 [max_batch_size, n_pages].  Read only."""
        return self._tables.logical()

    @property
    def capacity(self) -> torch.Tensor:
        """The tokens that each row has pages for: int64 [max_batch_size].  Read only."""
        return self._tables.capacity()

    @property
    def empty_pages(self) -> list[int]:
        """The pages that reserve() can take; it takes them from the end of this list.

        The length is right for any pool, and counts cached pages, which a reserve evicts.  The numbers are known as
        long as all pages of the pool are used through this object.  If others use the pool, the numbers are -1.
        """
        return self._tables.empty_pages()

    @property
    def sequences(self) -> tuple[int, ...]:
        """The pool's id of each row's sequence, for calls of the pool and of its batches."""
        return tuple(self._tables.sequences)

    # PyTorch's methods.

    def reserve(self, batch_idx: Integers, seq_len: Integers) -> None:
        """Give rows the capacity for at least `seq_len` tokens.

        batch_idx
            A row, or several.
        seq_len
            Tokens; for several rows one number for each, or one for all.

        Rows never shrink.  Several rows are one request to the pool: all are reserved, or none.

        Raises AssertionError if the pool has too few empty pages, IndexError if a row does not exist, and the
        exceptions of paged.Pool.reserve().
        """
        rows, lengths = _integers(batch_idx), _integers(seq_len)
        if len(lengths) == 1:
            lengths *= len(rows)
        if len(lengths) != len(rows):
            raise ValueError(f"Expect one length for each row but got {len(lengths)} lengths and {len(rows)} rows")
        tables, wanted = self._tables, dict[int, int]()
        for row, length in zip(map(tables.row, rows), lengths):
            wanted[row] = max(length, wanted.get(row, 0))
        tables.update(wanted)
        wanted = {row: length for row, length in wanted.items() if length > tables.tokens(row)}
        if not wanted:
            return
        n_pages = sum(-((tables.tokens(row) - length) // self.page_size) for row, length in wanted.items())
        # A length that all pages together cannot hold is an error of another kind to the pool.
        if max(wanted.values()) > self.n_pages * self.page_size:
            raise _full(n_pages, tables.n_empty())
        try:
            self.pool.reserve([tables.sequences[row] for row in wanted], list(wanted.values()))
        except paged.FullError as error:
            raise _full(n_pages, tables.n_empty()) from error
        tables.update(wanted)

    def erase(self, batch_idx: Integers) -> None:
        """Return the pages of rows to the pool; their capacity is 0 then.

        batch_idx
            A row, or several.

        No kernel may be running that uses these pages.

        Raises IndexError if a row does not exist, and the exceptions of paged.Pool.truncate().
        """
        tables = self._tables
        rows = list(dict.fromkeys(map(tables.row, _integers(batch_idx))))
        tables.update(rows)
        rows = [row for row in rows if tables.tokens(row) > 0]
        if rows:
            self.pool.truncate([tables.sequences[row] for row in rows], 0)
            tables.update(rows)

    def assign(self, batch_idx: torch.Tensor, input_pos: torch.Tensor, k_val: torch.Tensor, v_val: torch.Tensor,
               k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
        """Write K and V of tokens into the caches.

        batch_idx
            Rows, [B].
        input_pos
            The position of each token in its row, [B, S], in any order.
        k_val, v_val
            [B, H, S, dim], with any strides.
        k_cache, v_cache
            Tensors of the caller of shape [1, H, n_pages * page_size, dim], or those of `caches()`.

        The positions are checked on the host, so with tensors on a GPU the call waits for it.

        Raises IndexError if a position is past its row's capacity, and RuntimeError if shapes do not fit, if a value
        requires gradient, or if a position is in a page that other sequences share.  Then nothing was written.
        """
        if k_val.requires_grad or v_val.requires_grad:
            raise RuntimeError("val must not require gradient")
        _check_values(batch_idx, input_pos, k_val, v_val, k_cache, v_cache)
        if self._in_place:
            self._check_caches(k_cache, v_cache)

        # To know the rows of a tensor on a GPU would take another wait than the one below.
        rows = list(map(self._tables.row, batch_idx.tolist())) if batch_idx.device.type == "cpu" else None
        table = self._tables.table(rows)
        batch_idx = batch_idx.to(self.device, torch.int64)
        position = input_pos.to(self.device, torch.int64)
        block = position // self.page_size
        page = table[batch_idx].gather(1, block.clamp(0, table.shape[1] - 1))
        missing = (page < 0) | (block < 0) | (block >= table.shape[1])
        if bool(missing.any()):
            i, j = (int(number) for number in missing.nonzero()[0])
            row = int(batch_idx[i])
            raise IndexError(f"position {int(position[i, j])} of row {row} has no page: its capacity is "
                             f"{self._tables.tokens(self._tables.row(row))} tokens; reserve() more first")
        if any(self._tables.writable_from):
            self._check_writable(batch_idx, position)

        address = page * self.pitch + position % self.page_size
        k_cache[0][:, address] = k_val.permute(1, 0, 2, 3)
        v_cache[0][:, address] = v_val.permute(1, 0, 2, 3)

    def _check_caches(self, k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
        """Refuse tensors that are not the pool's pages: addresses in them are others."""
        begin = min(self.pool.k.data_ptr, self.pool.v.data_ptr)
        for name, cache in ("k_cache", k_cache), ("v_cache", v_cache):
            if not begin <= cache.data_ptr() < begin + self.pool.size:
                raise RuntimeError(f"{name} is not a tensor of the pool's pages: use those that caches() returns")

    def _check_writable(self, batch_idx: torch.Tensor, position: torch.Tensor) -> None:
        """Refuse positions in pages that are published or shared with a fork."""
        begin = torch.tensor(self._tables.writable_from, device=self.device)[batch_idx]
        shared = position < begin[:, None]
        if bool(shared.any()):
            i, j = (int(number) for number in shared.nonzero()[0])
            raise RuntimeError(f"position {int(position[i, j])} of row {int(batch_idx[i])} is in a page that is "
                               f"shared: the row is writable from {int(begin[i])}")

    def convert_logical_block_mask(self, block_mask: BlockMask, batch_idx: torch.Tensor | None = None,
                                   kv_len: torch.Tensor | None = None, *, compute_q_blocks: bool = True) -> BlockMask:
        """Return the block mask over the caches, from one over logical positions.

        block_mask
            Of B rows.  Its KV block size is the page size, a multiple of it, or divides it.
        batch_idx
            The row of the page table for each row of the mask, [B]; default: 0 to B - 1.  A mask with B = 1 is
            expanded to all of them.
        kv_len
            The number of keys of each row of the mask, [B]; default: those of its capacity.
        compute_q_blocks
            Also make the lists by key block, which only a backward pass reads.

        Lists keep the order of the blocks.  The returned mask's KV block size is the smaller of page size and block
        size.

        Raises RuntimeError if the block sizes or the numbers of rows do not fit.
        """
        kv_block = block_mask.BLOCK_SIZE[1]
        if kv_block % self.page_size != 0 and self.page_size % kv_block != 0:
            raise RuntimeError("Expect block_mask has the same column block size as page_size, a multiple of it or one "
                               f"that divides it but got size={kv_block} and size={self.page_size}")
        device = block_mask.kv_indices.device
        n_rows = block_mask.kv_indices.shape[0]
        partial, full = lists_of(block_mask)
        if batch_idx is None:
            if n_rows > self.max_batch_size:
                raise RuntimeError(f"Expect block_mask has at most {self.max_batch_size} rows but got B={n_rows}")
            index = torch.arange(n_rows, device=self.device)
        else:
            index = torch.as_tensor(batch_idx).to(self.device, torch.int64)
            if n_rows == 1:
                n_rows = index.shape[0]
                partial, full = partial.expand(n_rows), None if full is None else full.expand(n_rows)
            if n_rows != index.shape[0]:
                raise RuntimeError(f"Expect block_mask and batch_idx have the same batch size "
                                   f"but got B={n_rows} and B={index.shape[0]}.")
        if kv_len is not None:
            kv_len = torch.as_tensor(kv_len).to(device)
            if kv_len.dim() != 1 or kv_len.shape[0] < n_rows:
                raise RuntimeError(f"Expect kv_len has a length for each of {n_rows} rows "
                                   f"but got shape {list(kv_len.shape)}.")
        conversion = Conversion(self._tables.table()[index].to(device), self.page_size, self.pitch, self.n_pages,
                                kv_block, kv_len)
        partial, full = conversion.convert(partial, full)
        return BlockMask.from_kv_blocks(
            partial.num_blocks, partial.indices, None if full is None else full.num_blocks,
            None if full is None else full.indices, (block_mask.BLOCK_SIZE[0], conversion.size),
            self.get_mask_mod(block_mask.mask_mod, kv_len, batch_idx=batch_idx),
            seq_lengths=(block_mask.seq_lengths[0], conversion.n_blocks * conversion.size),
            compute_q_blocks=compute_q_blocks)

    def get_mask_mod(self, mask_mod: MaskMod | None, kv_len: torch.Tensor | None = None, *,
                     batch_idx: torch.Tensor | None = None) -> MaskMod:
        """Return a mask mod over positions in the caches, from one over logical positions.

        mask_mod
            None: every key may be attended.
        kv_len
            The number of keys of each batch index; default: those of its capacity.
        batch_idx
            The row of the page table for each batch index; default: the same.

        The function follows later changes of the page table by methods of this object.  It has an attribute `paged`,
        a PagedMod.
        """
        mod = noop_mask if mask_mod is None else mask_mod
        logical, origin = self._origin(mod, kv_len, batch_idx)

        def new_mask_mod(b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                         physical_kv_idx: torch.Tensor) -> torch.Tensor:
            valid, kv_idx = logical(b, physical_kv_idx)
            return torch.where(valid, mod(b, h, q_idx, kv_idx), False)

        new_mask_mod.paged = origin  # type: ignore[attr-defined]
        return new_mask_mod

    def get_score_mod(self, score_mod: ScoreMod | None, kv_len: torch.Tensor | None = None, *,
                      batch_idx: torch.Tensor | None = None) -> ScoreMod:
        """Return a score mod over positions in the caches, from one over logical positions.

        score_mod
            None: scores stay as they are.
        kv_len, batch_idx
            As for get_mask_mod().

        The score of a position that has no page, or is past `kv_len`, is -inf.
        """
        mod = _identity if score_mod is None else score_mod
        logical, origin = self._origin(mod, kv_len, batch_idx)

        def new_score_mod(score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                          physical_kv_idx: torch.Tensor) -> torch.Tensor:
            valid, kv_idx = logical(b, physical_kv_idx)
            return torch.where(valid, mod(score, b, h, q_idx, kv_idx), float("-inf"))

        new_score_mod.paged = origin  # type: ignore[attr-defined]
        return new_score_mod

    def _origin(self, mod: Callable[..., Any], kv_len: torch.Tensor | None, batch_idx: torch.Tensor | None,
                ) -> tuple[Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]], PagedMod]:
        """A function from a position in the caches to whether it has a key, and the key's logical position or 0."""
        table, page_size, pitch = self._tables.logical(), self.page_size, self.pitch
        rows = None if batch_idx is None else torch.as_tensor(batch_idx).to(self.device, torch.int64)
        lengths = None if kv_len is None else torch.as_tensor(kv_len).to(self.device)

        def logical(b: torch.Tensor, physical_kv_idx: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            block = table[b if rows is None else rows[b], physical_kv_idx // pitch]
            offset = physical_kv_idx % pitch
            kv_idx = block * page_size + offset
            valid = block >= 0
            if pitch != page_size:
                valid = valid & (offset < page_size)
            if lengths is not None:
                valid = valid & (kv_idx < lengths[b])
            return valid, torch.where(valid, kv_idx, 0)

        return logical, PagedMod(self, mod, rows, lengths)

    # What PyTorch's class lacks.

    def caches(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of all pages of a layer as `k_cache` and `v_cache`, without a copy.

        Their shape is [1, n_kv_heads, (n_pages - 1) * pitch + page_size, dim].  A page begins every `pitch` tokens,
        because K and V of all heads of a page lie together; the elements between pages belong to other heads, or to
        V.  Only masks and mods of this object name the right elements.

        While one of the tensors lives, the pool cannot be closed.

        A page keeps what its former sequence wrote.  PyTorch's flex_attention multiplies the values of masked positions
        by 0, so an infinity or NaN left in the last page of a row reaches the output.  The library's kernels,
        paged.Batch.attention() and paged.torch.flex_attention(), read no position that is masked or past the length.

        Raises RuntimeError if the object has no pool with K and V, and IndexError if there is no such layer.
        """
        if not self._in_place:
            raise RuntimeError("this PagedAttention only has page tables: pass pool=, or n_kv_heads= and k_dim=")
        if not 0 <= layer < self.pool.n_layers:
            raise IndexError(f"layer {layer} is out of range: the pool has {self.pool.n_layers} layers")
        n_tokens = (self.n_pages - 1) * self.pitch + self.page_size
        k, v = (from_dlpack(pages) for pages in (self.pool.k, self.pool.v))
        k_cache, v_cache = (
            pages.as_strided((1, pages.shape[2], n_tokens, pages.shape[4]),
                             (pages.stride(1), pages.stride(2), pages.stride(3), 1),
                             pages.storage_offset() + layer * pages.stride(0))
            for pages in (k, v))
        return k_cache, v_cache

    def page_versions(self, rows: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """Return numbers that differ if the pages of these rows have changed."""
        indices = [self._tables.row(row) for row in rows]
        self._tables.update(indices)
        return self._tables.versions(indices)

    def adopt(self, batch_idx: int, seq: int) -> None:
        """Make a sequence of the pool a row, such as one of paged.Batch.fork() or paged.Pool.start().

        The row's former sequence is erased.  The row owns the sequence: close() erases it.

        Raises IndexError if the row does not exist, and the exceptions of paged.Pool.read() and erase().
        """
        row, sequences = self._tables.row(batch_idx), self._tables.sequences
        self.pool.read(seq)
        if seq in sequences:
            raise ValueError(f"sequence {seq} is row {sequences.index(seq)} already")
        self._tables.replace(row, seq)

    def close(self) -> None:
        """Erase the sequences of all rows, and close a pool that was made for this object.

        Also done when the object is collected.  Closing twice does nothing.

        Raises BufferError while a tensor of `caches()` lives, if the pool was made for this object.
        """
        if self._client is not None:
            self._client.close()
            self._tables.detach()
        else:
            self._tables.close()

    def __enter__(self) -> PagedAttention:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _integers(values: Integers) -> list[int]:
    """Integers as a list; a tensor of bool selects indices, as it does in a tensor."""
    if isinstance(values, int):
        return [values]
    tensor = torch.as_tensor(values)
    if tensor.dtype == torch.bool:
        tensor = tensor.nonzero()
    if tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"expected integers, but got {tensor.dtype}")
    return tensor.reshape(-1).tolist()


def _full(n_pages: int, n_empty: int) -> AssertionError:
    return AssertionError(f"requested {n_pages} pages but there are only {n_empty} empty pages")


def _check_values(batch_idx: torch.Tensor, input_pos: torch.Tensor, k_val: torch.Tensor, v_val: torch.Tensor,
                  k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
    """The checks of PyTorch's assign(), in its order and words."""
    B, H, S, K_D = k_val.shape
    V_D = v_val.shape[3]
    if B != batch_idx.shape[0]:
        raise RuntimeError(f"Expect val and batch_idx have the same batch size "
                           f"but got B={B} and B={batch_idx.shape[0]}.")
    if H != k_cache.shape[1]:
        raise RuntimeError(f"Expect val and cache has the same number of heads "
                           f"but got H={H} and H={k_cache.shape[1]}.")
    if S != input_pos.shape[1]:
        raise RuntimeError(f"Expect val and input_pos has the same length "
                           f"but got S={S} and S={input_pos.shape[1]}.")
    if K_D != k_cache.shape[3]:
        raise RuntimeError(f"Expect k_val and k_cache has the same hidden dim "
                           f"but got D={K_D} and D={k_cache.shape[3]}.")
    if V_D != v_cache.shape[3]:
        raise RuntimeError(f"Expect v_val and v_cache has the same hidden dim "
                           f"but got D={V_D} and D={v_cache.shape[3]}.")
    if input_pos.shape[0] != B or v_val.shape[:3] != k_val.shape[:3] or v_cache.shape[1] != H:
        raise RuntimeError(f"Expect input_pos, k_val and v_val of the same batch size, heads and length but got "
                           f"{list(input_pos.shape)}, {list(k_val.shape)} and {list(v_val.shape)} "
                           f"for a v_cache of {v_cache.shape[1]} heads")
    if k_val.dtype != k_cache.dtype or v_val.dtype != v_cache.dtype:
        raise RuntimeError(f"Expect val and cache of the same dtype but got {k_val.dtype}, {v_val.dtype} "
                           f"and {k_cache.dtype}, {v_cache.dtype}.")


def _count(name: str, value: Any, least: int, most: int = 2**32 - 1) -> int:
    """The value as an int; TypeError or ValueError names the argument."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value)}") from None
    if not least <= number <= most:
        limit = f"at least {least}" if number < least else f"at most {most}"
        raise ValueError(f"{name} is {number}, and must be {limit}")
    return number


def _check_pool(pool: paged.Pool, n_pages: int, page_size: int, device: torch.device, n_kv_heads: int | None,
                k_dim: int | None) -> None:
    if not isinstance(pool, paged.Pool):
        raise TypeError(f"pool must be a paged.Pool, not {type(pool)}")
    if n_kv_heads is not None or k_dim is not None:
        raise ValueError("a pool has its own geometry: pass pool, or n_kv_heads and k_dim")
    for name, ours, given in ("n_pages", pool.n_pages, n_pages), ("page_size", pool.page_size, page_size):
        if ours != given:
            raise ValueError(f"{name} is {given}, but pool {pool.name!r} has {ours}")
    where = from_dlpack(pool.k).device
    if where != device:
        raise ValueError(f"device is {device}, but the pages of pool {pool.name!r} are on {where}")


def _pitch(pool: paged.Pool) -> int:
    """Tokens from one page to the next, where flex_attention reads K and V at the same token index."""
    if pool.dtype not in _DTYPES:
        raise ValueError(f"flex_attention cannot read pages of {pool.dtype}, which have scales: use Batch.attention()")
    (_, k_page, _, k_token, _), (_, v_page, _, v_token, _) = pool.k.strides, pool.v.strides
    if k_token != v_token or k_page != v_page:
        raise ValueError(f"flex_attention cannot read K of dim {pool.k_dim} and V of dim {pool.v_dim} in place: use a "
                         f"pool in which both have the same, or caches of your own")
    if k_page % (k_token * pool.page_size) != 0:
        raise ValueError(f"flex_attention cannot read these pages in place: {k_page} elements from page to page are no "
                         f"multiple of the {k_token * pool.page_size} elements of a head; use a larger page or dim")
    return k_page // k_token
