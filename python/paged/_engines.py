# SPDX-License-Identifier: Apache-2.0
"""What paged.transformers and paged.vllm have in common: which pool a model uses, and the identity of its prefixes."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import paged

# Names the pool that an engine uses, where the program does not.
POOL_VARIABLE = "PAGED_POOL"


class Geometry(NamedTuple):
    """What of a model's K and V a pool must fit."""

    n_layers: int
    n_kv_heads: int
    k_dim: int
    v_dim: int

    def misfit(self, report: Mapping[str, Any]) -> str | None:
        """Return why a pool, of Client.pools(), cannot hold the K and V of such a model, or None if it can."""
        for name, needed in self._asdict().items():
            if report[name] != needed:
                return f"pool {report['name']} has {name} = {report[name]}, the model needs {needed}"
        return None


def choose_pool(client: paged.Client, geometry: Geometry, name: str | None = None) -> paged.Pool:
    """Open the named pool, or that of $PAGED_POOL, or else the only pool that the model fits.

    Raises ValueError if the named pool does not fit, and LookupError if no pool, or several pools fit.
    """
    reports = {report["name"]: report for report in client.pools()}
    name = name or os.environ.get(POOL_VARIABLE)
    if name:
        misfit = geometry.misfit(reports[name]) if name in reports else None
        if misfit:
            raise ValueError(misfit)
        return client.pool(name)
    fitting = [name for name, report in reports.items() if geometry.misfit(report) is None]
    needed = ", ".join(f"{field} = {value}" for field, value in geometry._asdict().items())
    if not fitting:
        raise LookupError(f"no pool has {needed}; there are {', '.join(reports)}: add one to pagedd.conf")
    if len(fitting) > 1:
        raise LookupError(f"pools {', '.join(fitting)} have {needed}: name one, for example in ${POOL_VARIABLE}")
    return client.pool(fitting[0])


def prefix_salt(pool: paged.Pool, model: str, *, adapter: str = "", tenant: str = "") -> bytes:
    """Return the salt of all prefixes that an engine publishes or looks for.

    Equal tokens have equal K and V only under the same weights.  The pool's own setting "model" names these if the
    operator has made it; engines of different make then share prefixes.  Otherwise the engine's name of the model stands
    for them, and only processes that load the model under the same name share.

    adapter
        Identifies the adapter (LoRA) that changed the weights; "" if none.
    tenant
        Only requests with the same text share: vLLM's cache_salt.
    """
    return paged.salt(pool.model or model, adapter, tenant)
