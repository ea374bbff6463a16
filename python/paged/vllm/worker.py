# SPDX-License-Identifier: Apache-2.0
"""The part of the connector in vLLM's worker process: it computes on sequences that the scheduler process manages."""
from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy
import numpy.typing
import torch
from vllm.model_executor.models.utils import extract_layer_index

import paged
from paged._engines import Geometry
from paged.vllm.ended import explain_end
from paged.vllm.guard import Guard, check_model
from paged.vllm.mods import Mods
from paged.vllm.step import Step

Ids = numpy.typing.NDArray[numpy.int64]

# Each row of a step: its sequence, how many tokens it computes, and how many it then has.
Rows = list[tuple[int, int, int]]

# The owner of a block that no request has.  Ids of sequences are above 0.
NO_SEQUENCE = 0


class Worker:
    """Joins the scheduler's session at the first step, keeps which sequence each block belongs to, and plans steps.

    layer_names
        vLLM's names of the attention layers that have K and V.  In the order of the numbers in the names they are the
        pool's layers 0, 1, ...
    n_blocks
        Size of vLLM's block table: ids are below it.
    max_rows
        Most requests in a step.

    The newest object is Worker.current(), where the attention layers find it.  It lives as long as the connector.
    """

    _newest: weakref.ref[Worker] | None = None

    def __init__(self, layer_names: Iterable[str], n_blocks: int, max_rows: int) -> None:
        names = sorted(layer_names, key=extract_layer_index)
        self.layers = {name: i for i, name in enumerate(names)}
        self.pool: paged.Pool | None = None
        self.batch: paged.Batch | None = None
        self.step: Step | None = None
        self.guard: Guard | None = None         # while the model is examined
        self._max_rows = max_rows
        self._owners: Ids = numpy.full(n_blocks, NO_SEQUENCE, dtype=numpy.int64)
        self._row_numbers = numpy.arange(max_rows)
        self._mod_sets: dict[Mods, paged.ModSet | None] = {}
        self._planned: Rows | None = None       # of the step
        Worker._newest = weakref.ref(self)

    @classmethod
    def current(cls) -> Worker:
        worker = cls._newest() if cls._newest is not None else None
        if worker is None:
            raise RuntimeError("paged.vllm: no PagedConnector in this process")
        return worker

    @classmethod
    def guard_of_process(cls) -> Guard | None:
        """Return the guard of the newest object; None if it has none, or if there is no object yet."""
        worker = cls._newest() if cls._newest is not None else None
        return worker.guard if worker is not None else None

    # What the connector calls

    def examine(self, runner: Any, geometry: Geometry, dtype: torch.dtype) -> None:
        """Check the attention of a model runner's model.  Raises RuntimeError if it is not what a pool computes."""
        self.guard = Guard(geometry, self.layers, dtype)
        try:
            check_model(runner, self.guard)
        finally:
            guard, self.guard = self.guard, None
            guard.close()

    def begin_step(self, step: Step) -> None:
        """Begin a step, before its first attention layer."""
        if self.pool is None:
            self._join(step)
        for sequence, blocks in step.placed:
            self._owners[blocks] = sequence
        self.step = step
        self._planned = None

    def end_step(self) -> None:
        """End a step, after its last attention layer."""
        self.step = None

    def close(self) -> None:
        """Leave the session."""
        self._mod_sets.clear()
        batch, pool, self.batch, self.pool = self.batch, self.pool, None, None
        if batch is not None and pool is not None:
            batch.close()
            pool.close()
            pool.client.close()

    def _join(self, step: Step) -> None:
        client = paged.connect(step.runtime_dir, name="vllm worker", join_token=step.join_token)
        self.pool = client.pool(step.pool)
        self.batch = self.pool.batch(max_rows=self._max_rows)

    # What the attention backend calls

    def mod_set(self, mods: Mods) -> paged.ModSet | None:
        """Return the mod set of all layers with equal mods; None if these need none."""
        if mods not in self._mod_sets:
            assert self.batch is not None
            self._mod_sets[mods] = mods.bind(self.batch)
        return self._mod_sets[mods]

    def plan(self, q_starts: torch.Tensor, kv_lens: torch.Tensor, block_table: torch.Tensor) -> bool:
        """Plan the step's batch.  False in vLLM's warm-up: the rows are no requests, and their output is not used.

        q_starts
            [n_rows + 1]: where each row's queries begin.
        kv_lens
            [n_rows]: tokens of each request, those of this step included.
        block_table
            [n_rows, n]: block ids.  In a layer with a sliding window vLLM replaces those that it no longer needs by 0,
            so the last block of each row tells the sequence.

        vLLM makes this metadata for each kind of attention in the model.  All layers compute on one plan, so
        RuntimeError is raised if the rows are not those that the scheduler has scheduled.
        """
        if self.step is None or self.pool is None or self.batch is None:
            return False
        starts, lens, table = q_starts.numpy(), kv_lens.numpy(), block_table.numpy()
        n_rows = len(lens)
        last = table[self._row_numbers[:n_rows], (lens - 1) // self.pool.page_size]
        sequences = self._owners[last]
        q_lens = starts[1:] - starts[:-1]
        if not sequences.all():
            row = int(numpy.flatnonzero(sequences == NO_SEQUENCE)[0])
            raise RuntimeError(f"paged.vllm: row {row} of {n_rows} has {lens[row]} tokens, and block {last[row]}, "
                               f"which belongs to no sequence of pool {self.pool.name}")
        rows = list(zip(sequences.tolist(), q_lens.tolist(), lens.tolist()))
        if self._planned is not None:
            if rows != self._planned:
                raise RuntimeError(_difference("layers of one step have different rows", self._planned, rows))
            return True
        scheduled = [(sequence, *lengths) for sequence, lengths in self.step.rows.items()]
        if sorted(rows) != sorted(scheduled):
            raise RuntimeError(_difference("a layer's rows are not those of the step", scheduled, rows))
        written = self.step.written
        with explain_end(self.pool.name):
            self.batch.plan(sequences, q_lens, lens,
                            no_append=numpy.isin(sequences, list(written)).tolist() if written else False)
        self._planned = rows
        return True


def _difference(what: str, expected: Rows, rows: Rows) -> str:
    """Return a sentence with the first rows in which the lists differ."""
    def text(some: Rows, others: Rows) -> str:
        first = [row for row in some if row not in others] or some
        texts = [f", among them sequence {seq} with {n_new} new tokens of {n_all}" for seq, n_new, n_all in first]
        return f"{len(some)} rows{texts[0] if texts else ''}"

    return f"paged.vllm: {what}: {text(rows, expected)}, instead of {text(expected, rows)}"
