# SPDX-License-Identifier: Apache-2.0
"""Makes vLLM give blocks only to requests whose sequence has, or gets, the pages for them."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.request import Request


def ask_first(manager: KVCacheManager, may_grow: Callable[[Request, int], bool]) -> None:
    """Call may_grow(request, n_tokens) before the manager allocates blocks for the request's first n_tokens tokens.

    vLLM's blocks are only numbers here: K and V are in pages of a pool that other engines use too, so vLLM's count of
    free blocks does not tell whether a request can grow.  If may_grow() returns False, vLLM is told that there are no
    free blocks.  It then preempts a running request by its own rules, and asks again.

    vLLM has no hook at this place, and takes the count of free blocks for exact.  Keeping blocks out of its free list
    instead does not do: pages that a preempted request shares with others do not become free with its blocks.
    """
    allocate = manager.allocate_slots

    def allocate_slots(request: Request, num_new_tokens: int, num_new_computed_tokens: int = 0, *arguments: Any,
                       **keywords: Any) -> KVCacheBlocks | None:
        n_tokens = (request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
                    + keywords.get("num_external_computed_tokens", 0) + keywords.get("num_lookahead_tokens", 0))
        if not may_grow(request, n_tokens):
            return None
        return allocate(request, num_new_tokens, num_new_computed_tokens, *arguments, **keywords)

    setattr(manager, "allocate_slots", allocate_slots)
