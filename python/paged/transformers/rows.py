# SPDX-License-Identifier: Apache-2.0
"""Padded batches of transformers, and the rows without padding that a pool holds.

A batch of transformers has as many columns as its longest row, and an attention mask that is 0 where a row has
padding.  A sequence of the pool has tokens only.  Padding says which columns are tokens, and Packing moves tensors of
one forward pass from columns to tokens and back.
"""
from __future__ import annotations

from collections.abc import Sequence

import torch

# Widths of arrays of positions are multiples of this: a mod is translated once for all arrays of a shape.
_POSITIONS_STEP = 256


def _ones(n_rows: int, n_columns: int) -> torch.Tensor:
    return torch.ones(n_rows, n_columns, dtype=torch.bool, device="cpu")


class Padding:
    """Which columns of a batch are tokens.  An object does not change.

    n_rows, n_columns
        The shape of the batch.
    kept
        bool [n_rows, n_columns] in host memory, false where a row has padding; None: there is no padding.
    """

    def __init__(self, n_rows: int, n_columns: int, kept: torch.Tensor | None = None) -> None:
        self.n_rows = n_rows
        self.n_columns = n_columns
        self.kept = kept
        # The number of tokens of each row.
        self.lengths: list[int] = [n_columns] * n_rows if kept is None else kept.sum(1).tolist()
        self._shift: torch.Tensor | None = None
        self._has_shift = False

    @classmethod
    def of_mask(cls, mask: torch.Tensor | None, n_rows: int, n_columns: int) -> Padding:
        """Return the padding of an attention mask [n_rows, at least n_columns], or of none where mask is None."""
        if mask is None:
            return cls(n_rows, n_columns)
        kept = mask[:, :n_columns].to(device="cpu", dtype=torch.bool)
        return cls(n_rows, n_columns, None if bool(kept.all()) else kept.clone())

    def extended(self, n_columns: int, new: torch.Tensor | None = None) -> Padding:
        """Return this with n_columns more; new is bool [n_rows, n_columns] in host memory, None for tokens only."""
        end = self.n_columns + n_columns
        if self.kept is None and new is None:
            return Padding(self.n_rows, end)
        added = _ones(self.n_rows, n_columns) if new is None else new
        return Padding(self.n_rows, end, torch.cat([self.columns(), added], 1))

    def columns(self) -> torch.Tensor:
        """Return `kept`, also where there is no padding."""
        return _ones(self.n_rows, self.n_columns) if self.kept is None else self.kept

    def cropped(self, n_columns: int) -> Padding:
        """Return the first n_columns of this."""
        return Padding.of_mask(self.kept, self.n_rows, n_columns)

    def selected(self, rows: Sequence[int]) -> Padding:
        """Return this with the given rows."""
        return Padding.of_mask(None if self.kept is None else self.kept[list(rows)], len(rows), self.n_columns)

    def shift(self) -> torch.Tensor | None:
        """Return the number of columns before the first token, int32 [n_rows], if rows have padding only there."""
        if not self._has_shift:
            self._has_shift = True
            if self.kept is None:
                self._shift = torch.zeros(self.n_rows, dtype=torch.int32, device="cpu")
            elif not bool((self.kept[:, 1:] < self.kept[:, :-1]).any()):
                self._shift = (~self.kept).sum(1, dtype=torch.int32)
        return self._shift

    def positions(self) -> torch.Tensor:
        """Return the column of each token, int32 [n_rows, width]; width is at least the longest row."""
        longest = max(self.lengths, default=0)
        width = max(-(-longest // _POSITIONS_STEP), 1) * _POSITIONS_STEP
        columns = torch.zeros(self.n_rows, width, dtype=torch.int32, device="cpu")
        if self.kept is None:
            columns[:, :longest] = torch.arange(longest, dtype=torch.int32, device="cpu")
        else:
            row, column = self.kept.nonzero(as_tuple=True)
            columns[row, self.kept.cumsum(1)[row, column] - 1] = column.to(torch.int32)
        return columns


class Packing:
    """Moves the tensors of one forward pass between columns and tokens.

    new
        bool [n_rows, n_columns] in host memory: which of the new columns are tokens.
    device
        Where the tensors lie.
    """

    def __init__(self, new: torch.Tensor, device: torch.device) -> None:
        self.n_rows, self.n_columns = new.shape
        # The columns of all rows, one row after the other, that are tokens.
        self.index = new.flatten().nonzero().flatten().to(device)

    def pack(self, columns: torch.Tensor) -> torch.Tensor:
        """Return the tokens of [n_rows, n_heads, n_columns, dim] as [n_tokens, n_heads, dim]."""
        return columns.transpose(1, 2).flatten(0, 1).index_select(0, self.index)

    def unpack(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return [n_tokens, n_heads, dim] as [n_rows, n_columns, n_heads, dim], with zeros where there is padding."""
        columns = tokens.new_zeros(self.n_rows * self.n_columns, *tokens.shape[1:])
        columns.index_copy_(0, self.index, tokens)
        return columns.view(self.n_rows, self.n_columns, *tokens.shape[1:])
