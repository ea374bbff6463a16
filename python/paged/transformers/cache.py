# SPDX-License-Identifier: Apache-2.0
"""A cache of transformers whose K and V lie in the pages of a pool."""
from __future__ import annotations

import weakref
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

import paged
from paged.transformers.sequences import Sequences

__all__ = ["LAYER", "PagedCache", "PagedLayer"]

# The attribute of tensors of K and V that names the layer whose pages the attention reads.
LAYER = "_paged_layer"


class PagedLayer(CacheLayerMixin):
    """One layer of a PagedCache."""

    is_compileable = False
    is_croppable = True
    is_sliding = False
    supports_early_init = False

    def __init__(self, state: Sequences, index: int, dense: bool) -> None:
        super().__init__()
        self.state = state
        self.index = index
        self.dense = dense
        # Columns, those of the present forward pass included.
        self.length = 0
        self.is_initialized = True
        # K and V of this pass, until attention has written them into the pages.
        self.key: torch.Tensor | None = None
        self.value: torch.Tensor | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the first forward pass creates the sequences."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any,
               ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take K and V [n_rows, n_kv_heads, n_columns, dim] of a forward pass.

        Returns them as they are, for the attention "paged", which writes them into the pages and reads all others
        there.  A dense cache writes them at once, and returns K and V of all columns.

        Raises RuntimeError if the layer before was not computed by the attention "paged".
        """
        state = self.state
        if state.pending is not None:
            refuse_attention(state.pending)
        self.length += key_states.shape[2]
        self.key, self.value = key_states, value_states
        if self.dense:
            return self._append_and_gather(key_states, value_states)
        state.pending = self
        setattr(key_states, LAYER, self)
        setattr(value_states, LAYER, self)
        return key_states, value_states

    def written(self) -> None:
        """Forget K and V of the pass, which the pages have."""
        self.key = self.value = self.state.pending = None

    def check_begin(self, begin: int) -> None:
        """Raise RuntimeError unless a pass begins where the last one has ended."""
        n_columns = self.state.padding.n_columns
        if begin != n_columns:
            raise RuntimeError(f"layer {self.index} has {begin} columns, the cache {n_columns}: a forward pass was "
                               "interrupted; remove its columns with crop(), or reset() the cache")

    def undo(self) -> None:
        """Take a forward pass back that failed in this layer, its first."""
        assert self.key is not None
        self.length -= self.key.shape[2]
        self.written()
        self.state.undo(self.length)

    def _append_and_gather(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n_rows, _, n_columns, _ = key.shape
        step = self.state.step
        if step is None or step.end != self.length:
            try:
                self.check_begin(self.length - n_columns)
                step = self.state.plan(n_rows, n_columns, None, True)
            except BaseException:
                self.undo()
                raise
        step.batch.append(self.index, key, value)
        self.written()
        pool = self.state.pool
        k = key.new_empty(n_rows, self.length, pool.n_kv_heads, pool.k_dim)
        v = value.new_empty(n_rows, self.length, pool.n_kv_heads, pool.v_dim)
        step.batch.gather(self.index, k.flatten(0, 1), v.flatten(0, 1))
        return k.transpose(1, 2), v.transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the columns that a mask covers, and the first."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Return the columns computed so far."""
        return self.length

    def get_max_length(self) -> int:
        """Return the most tokens of a row."""
        return self.state.pool.max_length


class PagedCache(Cache):
    """A cache for `past_key_values` whose K and V lie in the pages of a pool; row b is one sequence of it.

    pool
        An open paged.Pool whose layers, heads and dimensions are those of the model.
    salt
        Identifies the weights, from paged._engines.prefix_salt().  None: start() and publish() share nothing.
    reserve_ahead
        Tokens for which pages are reserved in advance, so that few steps of a generation wait for the daemon.
    dense
        False: the model uses the attention "paged" (`model.set_attn_implementation("paged")`), which reads the pages
        in place.  True: for models whose attention cannot be exchanged; update() returns copies of K and V.
    window
        Tokens that a query sees, its own included, in every layer of the model (model_window() says how many).  Pages
        that no later query can reach go back to the pool as the sequences grow.  None, or a dense cache: all stay.
    slack
        Tokens before the window that stay, so that crop() may remove so many.

    The sequences hold tokens only: columns whose attention_mask is 0 take no pages.  A dense cache is the exception.

    A forward pass raises paged.FullError if the pool lacks pages.  The cache is as before then: wait, and repeat the
    pass.  In a forked child every use raises paged.ForkError.

    The pages go back to the pool when the cache is closed or collected.  copy.deepcopy() shares them.  The object is
    not thread-safe.
    """

    def __init__(self, pool: paged.Pool, *, salt: bytes | None = None, reserve_ahead: int = 64, dense: bool = False,
                 window: int | None = None, slack: int = 0) -> None:
        if slack < 0 or (window is not None and window < 1):
            raise ValueError(f"window is {window} and slack {slack}: at least 1 and 0")
        self.state = Sequences(pool, salt, reserve_ahead, None if dense else window, slack)
        self.dense = dense
        self._paged_layers = [PagedLayer(self.state, index, dense) for index in range(pool.n_layers)]
        super().__init__(layers=list(self._paged_layers))
        # Not at exit: the interpreter closes the pool, and that ends its sequences.
        self._finalizer = weakref.finalize(self, _release, pool, self.state.ids)
        self._finalizer.atexit = False
        # Lives as long as the cache and its copies.
        self.hold: Any = None

    @property
    def pool(self) -> paged.Pool:
        """The pool."""
        return self.state.pool

    @property
    def sequences(self) -> list[int]:
        """The ids of the rows' sequences; empty before the first forward pass."""
        return self.state.ids.copy()

    @property
    def batch_size(self) -> int:
        """The number of rows; -1 before the first forward pass."""
        return len(self.state.ids) or -1

    # Prefixes.

    def start(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> int:
        """Put each row on its longest published prefix.

        input_ids
            Tokens [n_rows, n_columns] that the next forward passes compute.
        attention_mask
            [n_rows, n_columns], 0 where a row has padding; None: there is none.

        Returns the number of columns that need no computation, less than n_columns; so does get_seq_length() then.
        The next pass begins at that column.

        Raises ValueError if the cache has tokens, and the exceptions of paged.Pool.start(): nothing has changed then.
        """
        self.state.check_open()
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids has the shape {tuple(input_ids.shape)}, not [n_rows, n_columns]")
        if self.state.padding.n_columns or self.get_seq_length():
            raise ValueError(f"the cache has {self.state.padding.n_columns} columns: start() is for an empty one")
        self.reset()
        self._set_length(self.state.start(input_ids, attention_mask, self.dense))
        return self.get_seq_length()

    def publish(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> None:
        """Let others share the full pages of the rows.  From then on these cannot be written.

        input_ids
            Tokens [n_rows, at least get_seq_length()] of all columns so far; those past them are ignored.
        attention_mask
            As the forward passes had it.  A row with other padding is not published.

        The tokens must have had consecutive positions, beginning with 0.  Columns computed under a mask of the
        caller's are not published; a dense cache does not see masks, so do not publish it after such a one.  Does
        nothing without a salt, and in a pool that does not publish.
        """
        if self.state.salt is not None and self.pool.publishes and self.state.ids:
            self.state.publish(input_ids, attention_mask)

    # Methods of Cache.

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Make row i what row beam_idx[i] was: a row that is named twice is forked, one that is not is erased."""
        self._select(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Replace each row by so many copies, which share its pages."""
        self._select([row for row in range(len(self.state.ids)) for _ in range(repeats)])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the rows of these indices, or those where a bool tensor is true."""
        self._select(torch.arange(len(self.state.ids))[indices.cpu()].tolist())

    def _select(self, rows: list[int]) -> None:
        if not self.state.ids:
            return
        try:
            self.state.select(rows)
        finally:
            if not self.state.ids:
                self._set_length(0)

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -tokens_to_remove columns; the number is negative, as in DynamicCache.

        With a window, raises ValueError if the next query would see tokens whose pages were given back: nothing has
        changed then.  A number up to `slack` is always possible.
        """
        if tokens_to_remove > 0:
            raise ValueError(f"crop({tokens_to_remove}): pass the number of columns to remove, as a negative number")
        length = max(self.get_seq_length() + tokens_to_remove, 0)
        self.state.crop(length)
        self._set_length(length)

    def reset(self) -> None:
        """Erase the rows."""
        self._set_length(0)
        self.state.reset()

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedCache:
        self.state.check_open()
        copied = PagedCache(self.pool, salt=self.state.salt, reserve_ahead=self.state.reserve_ahead, dense=self.dense,
                            window=self.state.window, slack=self.state.slack)
        copied.state.copy_rows(self.state)
        copied._set_length(self.get_seq_length())
        copied.hold = self.hold
        return copied

    def close(self) -> None:
        """Give the pages back.  A second call does nothing."""
        self.state.closed = True
        self.state.step = None
        self._finalizer()

    def _set_length(self, length: int) -> None:
        for layer in self._paged_layers:
            layer.length = length
            layer.key = layer.value = None
        self.state.pending = None


def refuse_attention(layer: PagedLayer) -> None:
    """Raise, because K and V of a layer were not written into the pages."""
    if layer.key is not None:
        layer.undo()
    raise RuntimeError(f'layer {layer.index} of the model was not computed by the attention "paged" from the K and V '
                       'that the cache returned: call model.set_attn_implementation("paged"), or use '
                       'PagedCache(pool, dense=True)')


def _release(pool: paged.Pool, ids: list[int]) -> None:
    """Return the sequences to the pool, if it can still be asked."""
    try:
        if ids:
            pool.erase(ids)
    except (paged.Error, ValueError, RuntimeError):
        # The pool or its client was closed, the daemon has ended, or this is a forked child: they are erased already,
        # or not ours to erase.
        pass
    ids.clear()
