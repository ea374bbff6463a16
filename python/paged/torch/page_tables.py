# SPDX-License-Identifier: Apache-2.0
"""The page tables of sequences of a pool, as tensors."""
from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

import paged


class PageTables:
    """Sequences of a pool as the rows of a batch, and their page tables as tensors that are changed in place.

    Mods and compiled graphs keep these tensors, so they see the changes.  update() makes them: it compares the version
    and capacity of each row with those last seen, which takes no request, and copies the rows that differ.

    pool
        An open paged.Pool.
    n_rows
        Number of sequences to create.
    device
        Where the tensors lie.
    alone
        No other sequences use the pool, so the numbers of its free pages follow from what happens to these.
    """

    def __init__(self, pool: paged.Pool, n_rows: int, device: torch.device, alone: bool) -> None:
        self.pool = pool
        self.n_rows = n_rows
        self.device = device
        self.sequences: list[int] = []
        # Not at exit: the interpreter closes the pool, and that ends its sequences.
        self._finalizer = weakref.finalize(self, _erase, pool, self.sequences)
        self._finalizer.atexit = False
        for first in range(0, n_rows, paged.MAX_REQUEST_SEQS):
            self.sequences += pool.create(min(paged.MAX_REQUEST_SEQS, n_rows - first))

        # What the tensors show: for each row its pages, and the version and capacity at which they were read.
        self._pages: list[list[int]] = [[] for _ in range(n_rows)]
        self._seen: list[tuple[int, int]] = [(-1, 0)] * n_rows
        # The first position of each row that is in no shared page, as of the last update().
        self.writable_from = [0] * n_rows
        # The free pages; the pool takes them from the end.  None: not known.
        self._free: list[int] | None = list(range(pool.n_pages - 1, -1, -1)) if alone else None
        self._table: torch.Tensor | None = None     # [n_rows, at least the longest row]
        self._logical: torch.Tensor | None = None   # [n_rows, n_pages]
        self._capacity: torch.Tensor | None = None  # [n_rows]
        self.update()

    # Rows.

    def row(self, index: int) -> int:
        """A row by its index, which may be negative as in a tensor."""
        if not -self.n_rows <= index < self.n_rows:
            raise IndexError(f"batch index {index} is out of range: there are {self.n_rows} rows")
        return index % self.n_rows

    def tokens(self, row: int) -> int:
        """The capacity of a row, as of the last update()."""
        return self._seen[row][1]

    def versions(self, rows: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """Equal as long as the pages of these rows are, as of the last update()."""
        return tuple(self._seen[row] for row in rows)

    def update(self, rows: Iterable[int] | None = None) -> None:
        """Read those rows again that have changed; default: any."""
        changed = [row for row in (range(self.n_rows) if rows is None else rows) if self._read(row)]
        if changed:
            # A tensor made in inference mode could not be changed outside of it.
            with torch.inference_mode(False):
                self._write(changed)

    def _read(self, row: int) -> bool:
        info = self.pool.read(self.sequences[row])
        self.writable_from[row] = info.writable_from
        seen = info.version, info.capacity
        if seen == self._seen[row]:
            return False
        before, self._pages[row] = self._pages[row], self.pool.page_table(self.sequences[row])
        self._seen[row] = seen
        self._follow_free(before, self._pages[row])
        return True

    def replace(self, row: int, seq: int) -> None:
        """Erase a row's sequence and put another in its place."""
        self.pool.erase(self.sequences[row])
        self.sequences[row] = seq
        # Pages that it shares with others are neither free with the former sequence nor taken with this one.
        self._free = None
        self._seen[row] = (-1, 0)
        self.update([row])

    def close(self) -> None:
        """Erase the sequences."""
        self._finalizer()

    def detach(self) -> None:
        """Leave the sequences to the end of the pool's client."""
        self._finalizer.detach()

    # Free pages.

    def _follow_free(self, before: list[int], after: list[int]) -> None:
        """Do to the list of free pages what the pool did to its own when it changed a row."""
        if self._free is None:
            return
        n_before, n_after = len(before), len(after)
        if after[:n_before] == before and self._free[len(self._free) - (n_after - n_before):] == after[n_before:]:
            del self._free[len(self._free) - (n_after - n_before):]
        elif before[:n_after] == after:
            self._free += before[n_after:]
        else:
            self._free = None

    def n_empty(self) -> int:
        # A reserve evicts cached pages when the free ones do not suffice.
        counts = self.pool.counts()
        return counts.n_free + counts.n_cached

    def empty_pages(self) -> list[int]:
        """The pages that a reserve can take; it takes them from the end.  -1: the number is not known."""
        self.update()
        n_empty = self.n_empty()
        return [-1] * n_empty if self._free is None or len(self._free) != n_empty else self._free.copy()

    # Tensors.

    def _write(self, rows: list[int]) -> None:
        """Copy rows into those tensors that exist."""
        index = torch.tensor(rows, device=self.device)
        if self._table is not None:
            self._widen(max(len(self._pages[row]) for row in rows))
            self._table.index_copy_(0, index, self._table_rows(rows, self._table.shape[1]))
        if self._logical is not None:
            self._logical.index_copy_(0, index, self._logical_rows(rows))
        if self._capacity is not None:
            self._capacity.index_copy_(0, index, self._capacity_rows(rows))

    def _widen(self, width: int) -> None:
        """Give the table at least this width.  It doubles, so that a row that grows by pages does not copy it often."""
        assert self._table is not None
        n_rows, before = self._table.shape
        if width > before:
            wide = torch.full((n_rows, min(max(width, 2 * before), self.pool.n_pages)), -1, device=self.device)
            wide[:, :before] = self._table
            self._table = wide

    def _table_rows(self, rows: Iterable[int], width: int) -> torch.Tensor:
        lists = [self._pages[row] + [-1] * (width - len(self._pages[row])) for row in rows]
        return torch.tensor(lists, dtype=torch.int64, device=self.device).view(-1, width)

    def _logical_rows(self, rows: Iterable[int]) -> torch.Tensor:
        lists = [self._pages[row] for row in rows]
        logical = torch.full((len(lists), self.pool.n_pages), -1, dtype=torch.int64, device="cpu")
        for i, pages in enumerate(lists):
            logical[i, torch.tensor(pages, dtype=torch.int64, device="cpu")] = torch.arange(len(pages), device="cpu")
        return logical.to(self.device)

    def _capacity_rows(self, rows: Iterable[int]) -> torch.Tensor:
        return torch.tensor([self.tokens(row) for row in rows], dtype=torch.int64, device=self.device)

    def table(self, rows: Iterable[int] | None = None) -> torch.Tensor:
        """The page of each logical block or -1, int64, correct for these rows; default: all.

        It is as wide as the longest row or wider.
        """
        self.update(rows)
        if self._table is None:
            self.update()
            with torch.inference_mode(False):
                width = max(max(map(len, self._pages), default=0), 1)
                self._table = self._table_rows(range(self.n_rows), width)
        return self._table

    def full_table(self) -> torch.Tensor:
        """The same, as wide as the pool has pages; from now on the table has this width."""
        self.table()
        with torch.inference_mode(False):
            self._widen(self.pool.n_pages)
        assert self._table is not None
        return self._table

    def logical(self) -> torch.Tensor:
        """The logical block of each page or -1, int64 [n_rows, n_pages]."""
        self.update()
        if self._logical is None:
            with torch.inference_mode(False):
                self._logical = self._logical_rows(range(self.n_rows))
        return self._logical

    def capacity(self) -> torch.Tensor:
        """Tokens of each row, int64 [n_rows]."""
        self.update()
        if self._capacity is None:
            with torch.inference_mode(False):
                self._capacity = self._capacity_rows(range(self.n_rows))
        return self._capacity


def _erase(pool: paged.Pool, sequences: list[int]) -> None:
    """Return the sequences to the pool, if it can still be asked."""
    try:
        for first in range(0, len(sequences), paged.MAX_REQUEST_SEQS):
            pool.erase(sequences[first:first + paged.MAX_REQUEST_SEQS])
    except (paged.Error, ValueError, RuntimeError):
        # The pool or its client was closed, the daemon has ended, or this is a forked child: they are erased already,
        # or not ours to erase.
        pass
