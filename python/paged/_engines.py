# SPDX-License-Identifier: Apache-2.0
"""What paged.transformers and paged.vllm have in common.

Which pool a model uses, the identity of its prefixes, and options of commands.
"""
from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping
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


def refusal(pool: str, setting: str, model: str | None) -> str | None:
    """Return why a model may not use a pool with the setting "model", or None if it may.

    Pages of another model of this geometry fit, but give wrong answers.
    """
    if model is None or any(paged.model_allowed(setting, name) for name in _names(model)):
        return None
    return (f'pool {pool} is for the model {setting}, not for {model}: use another pool, or if it is the same model, '
            'load it from a directory or link of that name')


def _names(model: str) -> Iterator[str]:
    """Return what a model is called that an engine loads by a name of the Hub or by a path."""
    yield model
    if not os.path.exists(model):
        return
    for path in (os.path.abspath(model), os.path.realpath(model)):
        yield path
        # Where the Hub's client keeps a revision of a model.
        in_cache = re.search(r"/models--(\S+?)/snapshots/[^/]+$", path)
        if in_cache:
            yield in_cache[1].replace("--", "/")


def choose_pool(client: paged.Client, geometry: Geometry, model: str | None, name: str | None = None) -> paged.Pool:
    """Open the named pool, or that of $PAGED_POOL, or else the one that is made for the model.

    model
        What the engine loads: a name of the Hugging Face Hub, a directory or a file.  A pool whose setting "model"
        names another one is never used; of several pools that fit, one that names this model is.  None: the caller
        knows that the pool is for its model.

    Raises ValueError if the named pool does not fit, and LookupError if no pool, or several pools fit.
    """
    reports = {report["name"]: report for report in client.pools()}
    name = name or os.environ.get(POOL_VARIABLE)
    if name:
        misfit = _misfit(reports[name], geometry, model) if name in reports else None
        if misfit:
            raise ValueError(misfit)
        return client.pool(name)
    fitting = [name for name, report in reports.items() if geometry.misfit(report) is None]
    needed = ", ".join(f"{field} = {value}" for field, value in geometry._asdict().items())
    if not fitting:
        raise LookupError(f"no pool has {needed}; there are {', '.join(reports)}: add one to pagedd.conf")
    refusals = {name: refusal(name, reports[name]["model"], model) for name in fitting}
    fitting = [name for name in fitting if refusals[name] is None]
    if not fitting:
        raise LookupError("; ".join(reason for reason in refusals.values() if reason is not None))
    named = [name for name in fitting if reports[name]["model"]]
    if len(named or fitting) > 1:
        raise LookupError(f"pools {', '.join(named or fitting)} have {needed}: name one, "
                          f"for example in ${POOL_VARIABLE}")
    return client.pool((named or fitting)[0])


def _misfit(report: Mapping[str, Any], geometry: Geometry, model: str | None) -> str | None:
    return geometry.misfit(report) or refusal(report["name"], report["model"], model)


def prefix_salt(pool: paged.Pool, model: str, *, adapter: str = "", tenant: str = "") -> bytes:
    """Return the salt of all prefixes that an engine publishes or looks for.

    Equal tokens have equal K and V only under the same weights.  The pool's own setting "model" names these if the
    operator has made it, and choose_pool() has held the engine's model against it; engines of different make then share
    prefixes.  Otherwise the engine's name of the model stands for them, and only processes that load the model under
    the same name share.

    adapter
        Identifies the adapter (LoRA) that changed the weights; "" if none.
    tenant
        Only requests with the same text share: vLLM's cache_salt.
    """
    return paged.salt(pool.model or model, adapter, tenant)


def without_names(value: Any, names: set[str]) -> Any:
    """Return a configuration without what these names have in it, and in the mappings inside of it."""
    if not isinstance(value, Mapping):
        return value
    return {str(key): without_names(element, names) for key, element in value.items() if key not in names}


# Types of command-line options, for argparse.

def positive_option(text: str) -> int:
    """Return the number of 1 or more that an option has."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"needs a number of 1 or more, not {text!r}")
    return number


def text_option(text: str) -> str:
    """Return the text of an option.  An empty one comes from a variable of a shell that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text
