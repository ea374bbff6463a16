# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler, which gives blocks only to requests whose sequence has, or gets, the pages for them."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import RequestStatus

from paged.vllm.arguments import CONNECTOR, SCHEDULER
from paged.vllm.connector import PagedConnector
from paged.vllm.ended import EndWatch

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request


class PoolBlocks:
    """vLLM's block manager for K and V that lie in a pool.

    vLLM's blocks are only numbers here: other engines use the pool's pages too, so vLLM's count of free blocks does not
    tell whether a request can grow.  Keeping blocks out of vLLM's free list instead does not do: pages that a preempted
    request shares with others do not become free with its blocks.

    may_grow(request, n_tokens)
        Reserves pages for the request's first n_tokens tokens, and returns whether it has them.
    """

    def __init__(self, manager: KVCacheManager, may_grow: Callable[[Request, int], bool]) -> None:
        self._manager = manager
        self._may_grow = may_grow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def allocate_slots(self, request: Request, num_new_tokens: int, num_new_computed_tokens: int = 0, *arguments: Any,
                       **keywords: Any) -> KVCacheBlocks | None:
        """Allocate blocks as KVCacheManager does.

        Returns None where the pool lacks pages, which vLLM takes for a lack of blocks: it preempts a running request by
        its own rules, and calls again.
        """
        n_tokens = (request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
                    + keywords.get("num_external_computed_tokens", 0) + keywords.get("num_lookahead_tokens", 0))
        if not self._may_grow(request, n_tokens):
            return None
        return self._manager.allocate_slots(request, num_new_tokens, num_new_computed_tokens, *arguments, **keywords)


class PoolScheduler(Scheduler):
    """vLLM's scheduler with PoolBlocks, which ends requests that can never start.

    Engines with a PagedConnector need it: --scheduler-cls.
    """

    connector: PagedConnector
    kv_cache_manager: Any

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if not isinstance(self.connector, PagedConnector):
            raise ValueError(f'--scheduler-cls {SCHEDULER} needs kv_connector "{CONNECTOR}": '
                             "paged.vllm.arguments() returns both")
        self.kv_cache_manager = PoolBlocks(self.kv_cache_manager, self.connector.may_grow)
        self._end_watch = EndWatch(self.connector.pool, lambda: self.get_num_unfinished_requests() == 0)

    def update_from_output(self, scheduler_output: SchedulerOutput,
                           model_runner_output: ModelRunnerOutput) -> dict[int, EngineCoreOutputs]:
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        # As vLLM ends a request whose grammar does not compile.
        for request in self.finish_requests(self.connector.take_failed(), RequestStatus.FINISHED_ERROR):
            outputs.setdefault(request.client_index, EngineCoreOutputs()).outputs.append(
                EngineCoreOutput(request.request_id, [], finish_reason=request.get_finished_reason(),
                                 events=request.take_events(), trace_headers=request.trace_headers))
        return outputs

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Forget all that was computed.  The pool is the engine's only prefix cache: the connector is always reset."""
        return super().reset_prefix_cache(reset_running_requests, reset_connector=True)

    def shutdown(self) -> None:
        self._end_watch.close()
        super().shutdown()
