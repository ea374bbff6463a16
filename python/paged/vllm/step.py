# SPDX-License-Identifier: Apache-2.0
"""What vLLM's scheduler process sends its worker process about a step, in addition to vLLM's own messages."""
from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata


@dataclass
class Step(KVConnectorMetadata):
    """The connector's metadata of one step: made by RequestSequences.build_step(), read by Worker, pickled between.

    Sequences are ids of the pool, blocks are vLLM's block ids.  A sequence stands for one running request of vLLM.
    The worker keeps the owner of each block from step to step, so a step lists only blocks that changed hands.
    """

    # How the worker reaches the pool.  Equal in all steps of an engine; the worker uses the first step's.
    runtime_dir: str | None     # as paged.connect() takes it
    join_token: str             # the session of the scheduler process
    pool: str

    # Blocks that a request received since the last step, and its sequence.  A request that starts, or resumes after
    # preemption, lists all of its blocks.
    placed: list[tuple[int, list[int]]] = field(default_factory=list)

    # The step's rows: of each sequence, how many tokens are computed, and how many it then has.  Those of each layer
    # must be the same.
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)

    # Sequences whose scheduled tokens have their K and V in the pool already: a whole prompt was found, and vLLM
    # computes its last token only for the logits.  The worker plans their rows without an append.
    written: set[int] = field(default_factory=set)
