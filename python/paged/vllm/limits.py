# SPDX-License-Identifier: Apache-2.0
"""Whether the longest request of an engine can have its pages at all: those of the pool, and those of its tenant."""
from __future__ import annotations

from typing import Any

from vllm.config import VllmConfig

import paged
from paged.vllm.supported import pages_needed


def check_pages(config: VllmConfig, pool: paged.Pool, n_seen: int | None) -> None:
    """Raise ValueError if a request may need more pages than it can ever have; n_seen: supported.tokens_seen().

    Such a request would wait for ever.
    """
    n_needed = pages_needed(config, n_seen)
    tenant, n_pages = _limit(pool)
    if n_needed <= n_pages:
        return
    owner, larger = f"pool {pool.name}", "make the pool larger"
    if tenant is not None:
        owner, larger = f"tenant {tenant}, pool {pool.name}: the tenant", f"raise its limit of {pool.name}"
    if n_pages == 0:
        reason, remedy = "may have no pages", "use another pool"
    elif n_seen is None:
        n_tokens = n_pages * pool.page_size
        reason = f"has pages for {n_tokens} tokens, vLLM allows requests of {config.model_config.max_model_len}"
        remedy = f"start vLLM with --max-model-len {n_tokens}"
    else:
        reason = (f"has {n_pages} pages; a request needs {n_needed} at a time, for the window and for a step of "
                  f"{config.scheduler_config.max_num_batched_tokens} tokens")
        remedy = "start vLLM with fewer --max-num-batched-tokens"
    raise ValueError(f"{owner} {reason}: {remedy}, or {larger} in pagedd.conf")


def _limit(pool: paged.Pool) -> tuple[str | None, int]:
    """Return the most pages that the engine may have, and the tenant whose limit that is; None: all of the pool."""
    quota = _quota(pool)
    if quota is not None and quota["limited"] and quota["limit"] < pool.n_pages:
        return quota["tenant"], quota["limit"]
    return None, pool.n_pages


def _quota(pool: paged.Pool) -> dict[str, Any] | None:
    """Return what the tenant of the engine's session has in the pool; None: it has no tenant."""
    client = pool.client
    tenant = next((entry["tenant"] for entry in client.sessions() if entry["session"] == client.session), "")
    if not tenant:
        return None
    return next((entry for entry in client.quotas() if (entry["tenant"], entry["pool"]) == (tenant, pool.number)), None)


def n_created_if_unused(pool: paged.Pool, refusal: paged.Error) -> int | None:
    """Return how many sequences the pool has had, if a refused request has nothing to wait for; else None.

    It waits for the sequences of its tenant if the tenant's limit refused it (paged.QuotaError), else for those of the
    pool.  Two equal results mean that there was none between them.
    """
    n_created = int(pool.totals()["n_created"])
    if isinstance(refusal, paged.QuotaError):
        quota = _quota(pool)
        is_used = quota is None or quota["n_charged"] + quota["n_sequences"] > 0
    else:
        counts = pool.counts()
        is_used = counts.n_referenced + counts.n_quarantined + pool.totals()["n_sequences"] > 0
    return None if is_used else n_created
