# SPDX-License-Identifier: Apache-2.0
"""The sequences of a pool that are the rows of a batch: their lengths, their pages, and the plan of a forward pass."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import paged
from paged.transformers.rows import Packing, Padding

__all__ = ["Sequences", "Step", "pool_device"]

_MIN_BATCH_ROWS = 64


def pool_device(pool: paged.Pool) -> torch.device:
    """Return where tensors for the pool are."""
    on_host = pool.device is None
    return torch.device("cpu") if on_host else torch.device("cuda", pool.k.__dlpack_device__()[1])


class Step:
    """The plan of one forward pass.

    before
        The rows before the pass.
    end
        The columns of the batch after the pass, which begins at the column `begin`.
    batch
        The planned paged.Batch.
    packing
        Moves tensors between columns and tokens; None: all columns are tokens.
    """

    def __init__(self, before: Padding, end: int, batch: paged.Batch, packing: Packing | None) -> None:
        self.before = before
        self.begin = before.n_columns
        self.end = end
        self.batch = batch
        self.packing = packing
        # The plans of layers that compute the last columns only, by the number of these.
        self.last: dict[int, Step] = {}
        # What attention() needs of each mask of this pass, and the objects whose ids are in its keys.
        self.views: dict[Any, Any] = {}
        self.alive: list[Any] = []
        self.n_of_texts: dict[Any, int] = {}


class Sequences:
    """One sequence of a pool for each row of a batch.

    pool
        An open paged.Pool.
    salt
        That of all prefixes, from prefix_salt(); None: nothing is shared or published.
    reserve_ahead
        Tokens that a request for pages asks for in advance.
    window
        Tokens that a query sees, its own included, in every layer; None: all.
    slack
        Tokens before the window that are kept, for crop().

    Does not refer to the PagedCache, so that this is collected without a garbage collection, and the pages with it.
    """

    def __init__(self, pool: paged.Pool, salt: bytes | None, reserve_ahead: int, window: int | None, slack: int,
                 ) -> None:
        self.pool = pool
        self.salt = salt
        self.reserve_ahead = reserve_ahead
        self.window = window
        self.slack = slack
        self.device = pool_device(pool)
        self.closed = False
        # The list is that of the finalizer of the cache: it is changed in place.
        self.ids: list[int] = []
        self.padding = Padding(0, 0)
        # For each row the tokens whose K and V were in the pool at its start(), which may be more than its length.
        self.n_existing: list[int] = []
        # For each row the tokens that were passed to publish().
        self.n_published: list[int] = []
        # For each row the tokens at its beginning whose pages were given back, because the window has left them behind.
        self.n_trimmed: list[int] = []
        # Rows whose length may be inside of a page that others share, so that they cannot append.
        self.cut: set[int] = set()
        # The first column that was computed under a mask of the caller's; tokens do not identify its K and V.
        self.n_plain: int | None = None
        self.step: Step | None = None
        # The PagedLayer whose K and V have not been written into the pages yet.
        self.pending: Any = None
        # In a trial, the window of each layer's mask.
        self.windows: dict[int, int | None] | None = None
        # Sets of mods by their texts; they belong to the batch.
        self.mod_sets: dict[Any, paged.ModSet] = {}
        # One that appends, and one for layers that compute fewer columns than the others.
        self._batches: list[paged.Batch] = []
        self._max_rows = 0

    def check_open(self) -> None:
        """Raise ValueError after PagedCache.close()."""
        if self.closed:
            raise ValueError("the cache is closed")

    def batch(self, which: int = 0) -> paged.Batch:
        """Return one of the two batches, with room for all rows."""
        if not self._batches or len(self.ids) > self._max_rows:
            self._max_rows = max(len(self.ids), 2 * self._max_rows, _MIN_BATCH_ROWS)
            # With reserve_ahead 0, a batch would not reserve pages at all.
            self._batches = [self.pool.batch(max_rows=min(self._max_rows, paged.MAX_REQUEST_SEQS), reserve_ahead=ahead)
                             for ahead in (max(self.reserve_ahead, 1), 0)]
            self.mod_sets = {}
        return self._batches[which]

    def _set_rows(self, padding: Padding, n_existing: list[int], n_published: list[int], n_trimmed: list[int],
                  ) -> None:
        self.padding, self.n_existing, self.n_published = padding, n_existing, n_published
        self.n_trimmed = n_trimmed
        self.cut = {row for row, length in enumerate(padding.lengths) if length < n_existing[row]}
        self.step = None

    # Plans.

    def plan(self, n_rows: int, n_columns: int, new: torch.Tensor | None, plain: bool, window: int | None = None,
             ) -> Step:
        """Plan the computation of n_columns more; new is which of them are tokens, None: all.

        plain
            The tokens alone decide which keys a query sees.
        window
            That of the pass's mask.

        Raises ValueError if the batch has other rows than before, or another mask than the window over tokens that
        were given back, and the exceptions of paged.Batch.plan().  After an exception the rows are as before.
        """
        self.step = None
        self._fit(n_rows)
        # A mask of so few columns does not hide any, whatever its window.
        has_window = window == self.window or self.window is not None and self.padding.n_columns < self.window
        self._trim(plain and has_window)
        before, after = self.padding, self.padding.extended(n_columns, new)
        no_append = self._make_writable(after.lengths) if self.cut else False
        batch = self.batch()
        q_len: int | list[int] = n_columns
        if new is not None:
            q_len = [end - begin for begin, end in zip(before.lengths, after.lengths)]
        batch.plan(self.ids, q_len, after.lengths, no_append=no_append)
        self.padding = after
        self.cut = {row for row in self.cut if after.lengths[row] < self.n_existing[row]
                    or after.lengths[row] == before.lengths[row]}
        if not plain and self.n_plain is None:
            self.n_plain = before.n_columns
        packing = None if new is None else Packing(new, self.device)
        self.step = Step(before, after.n_columns, batch, packing)
        return self.step

    def _trim(self, plain: bool) -> None:
        """Give back the pages that no query of this pass or later ones sees.

        Those of the pass itself are kept, so that it can be undone.
        """
        if self.window is None:
            return
        if not plain:
            # Another mask may show every token.
            if any(self.n_trimmed):
                raise ValueError(f"a mask of the caller's needs all tokens, but those before the window of "
                                 f"{self.window} were given back: use a PagedCache without a window")
            self.window = None
            return
        size, kept = self.pool.page_size, self.window + self.slack - 1
        first = [max(length - kept, 0) // size * size for length in self.padding.lengths]
        rows = [row for row, n_trimmed in enumerate(self.n_trimmed) if first[row] > n_trimmed]
        if not rows:
            return
        # On a GPU, the stream may still read them.
        if self.pool.device is not None:
            self.batch().finish()
        self.pool.trim([self.ids[row] for row in rows], [first[row] for row in rows])
        for row in rows:
            self.n_trimmed[row] = first[row]

    def plan_last(self, step: Step, n_columns: int) -> Step:
        """Plan the last n_columns of a pass, for a layer that reads the K and V of another."""
        found = step.last.get(n_columns)
        if found is None:
            before = self.padding.cropped(step.end - n_columns)
            q_len = [end - begin for begin, end in zip(before.lengths, self.padding.lengths)]
            batch = self.batch(1)
            batch.plan(self.ids, q_len, self.padding.lengths, no_append=True)
            packing = None
            if min(q_len, default=n_columns) < n_columns:
                packing = Packing(self.padding.columns()[:, -n_columns:], self.device)
            found = step.last[n_columns] = Step(before, step.end, batch, packing)
        return found

    def undo(self, n_columns: int) -> None:
        """Take the plan back if it is that of a pass after n_columns."""
        if self.step is not None and self.step.begin == n_columns:
            self._set_rows(self.step.before, self.n_existing, self.n_published, self.n_trimmed)
            self.cut = set(range(len(self.ids)))
            if self.n_plain == n_columns:
                self.n_plain = None

    def _fit(self, n_rows: int) -> None:
        """Create the sequences of the first pass."""
        self.check_open()
        if len(self.ids) == n_rows:
            return
        if self.padding.n_columns:
            raise ValueError(f"the cache has {len(self.ids)} rows, the batch {n_rows}")
        self.reset()
        self.ids[:] = self.pool.create(n_rows)
        self._set_rows(Padding(n_rows, 0), [0] * n_rows, [0] * n_rows, [0] * n_rows)

    def _make_writable(self, lengths: list[int]) -> list[bool]:
        """Give rows that will append, up to these lengths, pages of their own; return which rows append nothing."""
        before = self.padding.lengths
        no_append = [before[row] < length <= self.n_existing[row] for row, length in enumerate(lengths)]
        # On a GPU, what was published may not be visible yet.
        changed = [row for row in self.cut if lengths[row] > before[row] and not no_append[row] and before[row]
                   < max(self.n_published[row], self.pool.read(self.ids[row]).writable_from)]
        whole = [row for row in changed if before[row] % self.pool.page_size == 0]
        partial = [row for row in changed if before[row] % self.pool.page_size]
        if whole:
            self.pool.truncate([self.ids[row] for row in whole], [before[row] for row in whole])
        if partial:
            parents = [self.ids[row] for row in partial]
            children = self.batch().fork(parents, [before[row] for row in partial])
            self._erase(parents)
            for row, child in zip(partial, children):
                self.ids[row] = child
        for row in changed:
            self.n_existing[row] = min(self.n_existing[row], before[row])
            self.n_published[row] = min(self.n_published[row], before[row])
        return no_append

    # Rows.

    def crop(self, n_columns: int) -> None:
        """Keep the first n_columns; pages stay for later tokens.

        Raises ValueError if the next query would see tokens that were given back.
        """
        if n_columns >= self.padding.n_columns:
            self.step = None
            return
        cropped = self.padding.cropped(n_columns)
        for length, n_trimmed in zip(cropped.lengths, self.n_trimmed):
            if n_trimmed and self.window is not None and n_trimmed > length + 1 - self.window:
                raise ValueError(f"cannot crop to {n_columns} columns: the window of {self.window} would begin at "
                                 f"token {max(length + 1 - self.window, 0)}, and those before {n_trimmed} were given "
                                 "back; use a PagedCache with more slack, or without a window")
        self.step = None
        self.padding = cropped
        # The next tokens may be others.
        self.n_existing = list(map(min, self.n_existing, self.padding.lengths))
        self.cut = set(range(len(self.ids)))
        if self.n_plain is not None and n_columns <= self.n_plain:
            self.n_plain = None

    def select(self, rows: Sequence[int]) -> None:
        """Make row i of the batch what row rows[i] was.

        Raises FullError if the pool lacks pages for copies of the last pages; then nothing has changed, except where
        another process took pages that this one had just given back: the rows are empty then.
        """
        if list(rows) == list(range(len(self.ids))):
            return
        if not rows:
            self.reset()
            return
        first = {row: i for i, row in reversed(list(enumerate(rows)))}
        copies = [i for i, row in enumerate(rows) if first[row] != i]
        unused = [seq for row, seq in enumerate(self.ids) if row not in first]
        children = self._fork_rows([rows[i] for i in copies], unused)
        ids = [self.ids[row] for row in rows]
        for i, child in zip(copies, children):
            ids[i] = child
        self.ids[:] = ids
        self._set_rows(self.padding.selected(rows), [self.n_existing[row] for row in rows],
                       [self.n_published[row] for row in rows], [self.n_trimmed[row] for row in rows])
        # A copy shares the whole pages of its parent, and a row that was cropped may end inside of one.
        self.cut.update(range(len(ids)))

    def _fork_rows(self, rows: list[int], unused: list[int]) -> list[int]:
        """Return copies of rows, and erase unused sequences."""
        children: list[int] = []
        try:
            children = self.fork(rows)
        except (paged.FullError, paged.QuotaError):
            if not unused:
                raise
            self._erase(unused)
            unused = []
            try:
                children = self.fork(rows)
            except (paged.FullError, paged.QuotaError):
                self.reset()
                raise
        if unused:
            self._erase(unused)
        return children

    def fork(self, rows: Sequence[int]) -> list[int]:
        """Return new sequences with the contents of rows."""
        if not rows:
            return []
        lengths = [max(self.padding.lengths[row], self.n_existing[row]) for row in rows]
        return self.batch().fork([self.ids[row] for row in rows], lengths)

    def copy_rows(self, source: Sequences) -> None:
        """Make these rows, of which there are none yet, copies of others."""
        self.ids[:] = source.fork(range(len(source.ids)))
        self._set_rows(source.padding, source.n_existing.copy(), source.n_published.copy(), source.n_trimmed.copy())
        self.n_plain = source.n_plain
        self.window = source.window
        self.cut.update(source.cut)

    def _erase(self, seqs: list[int]) -> None:
        # On a GPU, forks copy the last pages of these on the stream.
        if self.pool.device is not None:
            self.batch().finish()
        self.pool.erase(seqs)

    def reset(self) -> None:
        """Erase the sequences."""
        seqs = self.ids.copy()
        self.ids.clear()
        self.n_plain = None
        self._set_rows(Padding(0, 0), [], [], [])
        if seqs:
            self.pool.erase(seqs)

    # Prefixes.

    def start(self, tokens: torch.Tensor, mask: torch.Tensor | None, dense: bool) -> int:
        """Create the rows on their longest published prefixes; return the columns that need no computation.

        dense
            The sequences will hold padding, too, so padded rows share nothing.
        """
        n_rows, n_columns = tokens.shape
        padding = Padding.of_mask(mask, n_rows, n_columns)
        if dense and padding.kept is not None:
            return 0
        items: list[tuple[paged.Prefix | None, int]] = []
        for row, length in enumerate(padding.lengths):
            ids = row_tokens(tokens, padding, row)
            items.append((paged.Prefix(ids, salt=self.salt) if self.salt is not None and ids else None, length))
        started = self.pool.start(items)
        self.ids[:] = [item.seq for item in started]
        n_shared = [item.n_shared for item in started]
        n_done = min((_n_done(padding, row, n) for row, n in enumerate(n_shared) if padding.lengths[row]), default=0)
        self._set_rows(padding.cropped(n_done), n_shared, n_shared.copy(), [0] * n_rows)
        return n_done

    def publish(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Publish those full pages of the rows that are not published yet."""
        n_columns = self.padding.n_columns
        if tokens.shape[1] < n_columns:
            raise ValueError(f"input_ids has {tokens.shape[1]} columns, the cache {n_columns}: pass the tokens of all")
        if self.n_plain is not None:
            n_columns = min(n_columns, self.n_plain)
        padding = self.padding.cropped(n_columns) if n_columns < self.padding.n_columns else self.padding
        given = padding if mask is None else Padding.of_mask(mask, len(self.ids), n_columns)
        seqs: list[int] = []
        prefixes: list[paged.Prefix] = []
        for row, length in enumerate(padding.lengths):
            length -= length % self.pool.page_size
            if length <= self.pool.read(self.ids[row]).published or not _same_row(padding, given, row):
                continue
            seqs.append(self.ids[row])
            prefixes.append(paged.Prefix(row_tokens(tokens, padding, row)[:length], salt=self.salt))
            self.n_published[row] = max(self.n_published[row], length)
        if seqs:
            self.batch().publish(seqs, prefixes)


def row_tokens(tokens: torch.Tensor, padding: Padding, row: int) -> list[int]:
    """Return the tokens of a row without its padding."""
    columns = tokens[row, :padding.n_columns].cpu()
    found: list[int] = (columns if padding.kept is None else columns[padding.kept[row]]).tolist()
    return found


def _n_done(padding: Padding, row: int, n_tokens: int) -> int:
    """Return the columns that need no computation if a row has its first n_tokens; its last token needs it always."""
    at = min(n_tokens, padding.lengths[row] - 1)
    return at if padding.kept is None else int(padding.kept[row].nonzero()[at])


def _same_row(a: Padding, b: Padding, row: int) -> bool:
    return a.kept is None and b.kept is None or torch.equal(a.columns()[row], b.columns()[row])
