# SPDX-License-Identifier: Apache-2.0
"""The lists of a BlockMask: from blocks of logical positions to blocks of a paged cache."""
from __future__ import annotations

import dataclasses

import torch
from torch.nn.attention.flex_attention import BlockMask


@dataclasses.dataclass(frozen=True)
class BlockLists:
    """Number of blocks, int32 [B, H, rows], and their indices, int32 [B, H, rows, columns], of one kind of blocks.

    Entries past a list's number of blocks are not defined.
    """

    num_blocks: torch.Tensor
    indices: torch.Tensor

    def expand(self, n_rows: int) -> BlockLists:
        """The lists of one batch index for several."""
        return BlockLists(self.num_blocks.expand(n_rows, -1, -1), self.indices.expand(n_rows, -1, -1, -1))


def packed(blocks: torch.Tensor, live: torch.Tensor) -> BlockLists:
    """The lists of the live entries: these move to the front, and keep their order."""
    order = torch.argsort(~live, dim=-1, stable=True)
    return BlockLists(live.sum(-1, dtype=torch.int32), blocks.gather(-1, order))


def lists_of(mask: BlockMask) -> tuple[BlockLists, BlockLists | None]:
    """The lists of partial and of full blocks by query block."""
    partial = BlockLists(mask.kv_num_blocks, mask.kv_indices)
    if mask.full_kv_num_blocks is None or mask.full_kv_indices is None:
        return partial, None
    return partial, BlockLists(mask.full_kv_num_blocks, mask.full_kv_indices)


class Conversion:
    """From blocks of rows' logical positions to blocks of a cache.

    table
        The page of each logical page of the rows, or -1: int64 [B, columns].
    page_size, pitch
        Tokens in a page, and tokens from one page to the next in the cache.
    n_pages
        Pages in the cache.
    kv_block
        Tokens in a logical block: a multiple of the page size, or a divisor.
    kv_len
        The number of keys of each row; None: as many as there are pages for.
    """

    def __init__(self, table: torch.Tensor, page_size: int, pitch: int, n_pages: int, kv_block: int,
                 kv_len: torch.Tensor | None) -> None:
        self.table = table
        # Tokens of a block of the cache; such blocks in a logical one, in a page, from page to page, and in the cache.
        self.size = min(page_size, kv_block)
        self.n_parts = kv_block // self.size
        self.per_page = page_size // self.size
        self.per_pitch = pitch // self.size
        self.n_blocks = (n_pages - 1) * self.per_pitch + self.per_page
        self.kv_len = None if kv_len is None else kv_len[:table.shape[0]].view(-1, 1, 1, 1)

    def convert(self, partial: BlockLists, full: BlockLists | None) -> tuple[BlockLists, BlockLists | None]:
        """Convert both kinds of lists.  Blocks keep their order; those without a page or past `kv_len` are dropped.

        A full block in which `kv_len` lies follows the partial ones: the kernel applies a mask mod only to these.
        """
        blocks, live, _ = self._map(partial)
        if full is None:
            return self._pack(blocks, live), None
        full_blocks, full_live, whole = self._map(full)
        if self.kv_len is not None:
            cut = full_live & ~whole
            # The others are padding, which is 0 in PyTorch's lists.
            blocks = torch.cat([blocks, full_blocks.where(cut, 0)], dim=-1)
            live = torch.cat([live, cut], dim=-1)
        return self._pack(blocks, live), self._pack(full_blocks, whole)

    def _map(self, lists: BlockLists) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """For each entry its block of the cache, whether that has keys, and whether all its positions have.

        Entries past the end of a list are mapped too, as PyTorch does.
        """
        n_rows, width = self.table.shape
        parts = torch.arange(self.n_parts, device=lists.indices.device)
        block = (lists.indices.to(torch.int64)[..., None] * self.n_parts + parts).flatten(-2)
        column = torch.arange(block.shape[-1], device=block.device)
        logical = block // self.per_page
        page = self.table.gather(1, logical.clamp(0, width - 1).reshape(n_rows, -1)).view(block.shape)
        live = (column < lists.num_blocks[..., None] * self.n_parts) & (page >= 0) & (logical < width)
        whole = live
        if self.kv_len is not None:
            live = live & (block * self.size < self.kv_len)
            whole = live & ((block + 1) * self.size <= self.kv_len)
        return torch.where(page >= 0, page * self.per_pitch + block % self.per_page, 0), live, whole

    def _pack(self, blocks: torch.Tensor, live: torch.Tensor) -> BlockLists:
        """The lists of the live entries, as wide as the cache, which BlockMask requires."""
        lists = packed(blocks, live)
        width = min(blocks.shape[-1], self.n_blocks)
        indices = torch.zeros((*blocks.shape[:-1], self.n_blocks), dtype=torch.int32, device=blocks.device)
        indices[..., :width] = lists.indices[..., :width]
        return BlockLists(lists.num_blocks, indices)
