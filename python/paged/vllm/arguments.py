# SPDX-License-Identifier: Apache-2.0
"""vLLM's arguments for a pool: what it has to know before it has connected to pagedd."""
from __future__ import annotations

import json
import os
from typing import Any

import paged
from paged._engines import POOL_VARIABLE

CONNECTOR = "PagedConnector"
SCHEDULER = "paged.vllm.pool_scheduler.PoolScheduler"
WORKER = "paged.vllm.pool_worker.PoolWorker"
# vLLM's blocks cost little here, and should not be what limits requests that share pages.
BLOCKS_PER_PAGE = 4
# vLLM numbers blocks in 32 bits.
MAX_BLOCKS = (1 << 31) - 2
# The size of vLLM's own KV cache, of which nothing is touched.  Without a number, its worker on CPUs starts only if
# 92 % of the machine's memory is available.  num_gpu_blocks_override determines the number of blocks, so any number
# above 0 does.
OWN_CACHE_BYTES = 1 << 20
# What a shell splits or replaces in the output of $(...), as JSON can write it otherwise.
SPLIT_BY_SHELLS = {ord(letter): f"\\u{ord(letter):04x}" for letter in " *?[]"}


# What an engine does with the sequences of requests that are computed in two engines.
ROLES = ("both", "producer", "consumer")


def arguments(pool: str | None = None, *, runtime_dir: str | None = None, n_blocks: int | None = None,
              role: str = "both", wait: float | None = None) -> dict[str, Any]:
    """Return keyword arguments for vllm.LLM or vllm.EngineArgs with which vLLM keeps its K and V in a pool.

    Asks pagedd for the pool's geometry.  Whether the model fits the pool is checked when vLLM starts.

    pool
        The pool's name; None: that of $PAGED_POOL, or else the only pool.
    runtime_dir
        pagedd's runtime directory; None: that of $PAGED_RUNTIME_DIR, or the usual one.
    n_blocks
        How many blocks of vLLM's may be in use; None: four times as many as the pool has pages.  Requests that share a
        prefix count its blocks once each, although they use the same pages.  The pool's pages limit the engine in any
        case.
    role
        Where prompts are computed in one engine and answers in another: "producer" hands sequences over, "consumer"
        continues them, "both" does both.  Other requests are served in all roles.
    wait
        How long to wait for pagedd, if it is not running yet, in seconds; None: not at all.

    Raises ValueError if there is no such role or number of blocks, LookupError if there is no such pool, or several and
    none is named, and paged.NoDaemonError.
    """
    if role not in ROLES:
        raise ValueError(f"there is no role {role!r}; there are {', '.join(ROLES)}")
    if n_blocks is not None and not 1 <= n_blocks <= MAX_BLOCKS:
        raise ValueError(f"vLLM may have 1 to {MAX_BLOCKS} blocks, not {n_blocks}")
    report = _report(pool, runtime_dir, wait)
    extra = {"pool": report["name"]}
    if runtime_dir is not None:
        extra["runtime_dir"] = os.fspath(runtime_dir)
    return {
        "kv_transfer_config": {
            "kv_connector": CONNECTOR,
            "kv_role": f"kv_{role}",
            "kv_connector_extra_config": extra,
        },
        "block_size": report["page_size"],
        # One of vLLM's blocks stands for no block.
        "num_gpu_blocks_override": min(n_blocks or BLOCKS_PER_PAGE * report["n_pages"], MAX_BLOCKS) + 1,
        "kv_cache_memory_bytes": OWN_CACHE_BYTES,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "scheduler_cls": SCHEDULER,
        "worker_cls": WORKER,
    }


def command_line(keywords: dict[str, Any]) -> list[str]:
    """Return arguments() as options of vllm serve.  A shell takes each for one word, also in the output of $(...)."""
    options = []
    for name, value in keywords.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{option}" if value else f"--no-{option}")
        else:
            text = str(value)
            if isinstance(value, dict):
                text = json.dumps(value, separators=(",", ":")).translate(SPLIT_BY_SHELLS)
            options += [f"--{option}", text]
    return options


def _report(name: str | None, runtime_dir: str | None, wait: float | None) -> dict[str, Any]:
    with paged.connect(runtime_dir, name="paged.vllm", threads=1, run="own", wait=wait) as client:
        reports = {report["name"]: report for report in client.pools()}
    name = name or os.environ.get(POOL_VARIABLE)
    if name is None and len(reports) > 1:
        raise LookupError(f"pagedd has pools {', '.join(reports)}: name one, for example in ${POOL_VARIABLE}")
    if name is not None and name not in reports:
        raise LookupError(f"there is no pool {name}; there are {', '.join(reports)}")
    return reports[name or next(iter(reports))]
