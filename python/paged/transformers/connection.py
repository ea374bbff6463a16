# SPDX-License-Identifier: Apache-2.0
"""The connection of a process to a daemon: opened at the first use, and again after the daemon has ended."""
from __future__ import annotations

import os
import threading
from typing import Any

import torch

import paged
from paged._engines import Geometry, choose_pool, refusal
from paged.transformers.sequences import pool_device

__all__ = ["Connection", "Unavailable"]

_MODEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Their pages need scales, which models of transformers do not have.
_SCALED_DTYPES = ("e4m3", "e5m2")


class Unavailable(Exception):
    """No pool can be used; str() is the reason, and what to do about it."""


class Connection:
    """Finds the pool of a model.

    pool
        An open paged.Pool, or the name of one; None: $PAGED_POOL, else the only one that fits.
    runtime_dir
        The daemon's; None: $PAGED_RUNTIME_DIR, else the library's default.

    May be used by several threads, and in forked children, which open a connection of their own, or have none if the
    pool was given.
    """

    def __init__(self, pool: paged.Pool | str | None = None, runtime_dir: str | None = None) -> None:
        self._given = pool if isinstance(pool, paged.Pool) else None
        self._name = None if isinstance(pool, paged.Pool) else pool
        self._runtime_dir = runtime_dir
        self._lock = threading.Lock()
        self._client: paged.Client | None = None
        self._pid = os.getpid()
        self._pools: dict[tuple[Geometry, str | None], paged.Pool] = {}

    def pool(self, geometry: Geometry, device: torch.device, dtype: torch.dtype,
             model: str | None = None) -> paged.Pool:
        """Return the pool for a model; its name is as choose_pool() has it.

        Raises Unavailable if there is no daemon, or no pool that the model can use.
        """
        if dtype not in _MODEL_DTYPES:
            raise Unavailable(f"the model's weights are {dtype}; pools take float32, float16 and bfloat16")
        with self._lock:
            pool = self._given_pool() if self._given is not None else self._of_daemon(geometry, model)
        for name, needed in geometry._asdict().items():
            if getattr(pool, name) != needed:
                raise Unavailable(f"pool {pool.name} has {name} = {getattr(pool, name)}, the model needs {needed}")
        reason = refusal(pool.name, pool.model, model)
        if reason is not None:
            raise Unavailable(reason)
        if pool.dtype in _SCALED_DTYPES or pool.v_in_k:
            kind = "v-in-k = yes" if pool.v_in_k else f"dtype = {pool.dtype}"
            raise Unavailable(f"pool {pool.name} has {kind}, which paged.transformers does not support")
        place = pool_device(pool)
        if place != device:
            raise Unavailable(f"the pages of pool {pool.name} are on {place}, the model is on {device}")
        return pool

    def open(self) -> None:
        """Connect.  Raises Unavailable if there is no daemon."""
        with self._lock:
            if self._given is not None:
                self._given_pool()
            else:
                self._connect()

    def _given_pool(self) -> paged.Pool:
        assert self._given is not None
        try:
            self._given.client.ping()
        except (paged.Error, RuntimeError) as error:
            raise Unavailable(f"the pool that enable() was given cannot be used: {error}") from error
        return self._given

    def close(self) -> None:
        """Close the connection that this object made, if any."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        client, self._client = self._client, None
        self._pools.clear()
        if client is not None and self._pid == os.getpid():
            try:
                client.close()
            except (BufferError, RuntimeError):
                # Tensors over its pages live, or a thread is inside of a call: it closes with its last reference.
                pass

    def _connect(self) -> paged.Client:
        self._check_alive()
        try:
            if self._client is None:
                self._client = paged.connect(self._runtime_dir, name="transformers")
                self._pid = os.getpid()
            return self._client
        except paged.NoDaemonError as error:
            raise Unavailable(f"{error} Start it with: pagedd --config FILE --runtime-dir {self._place()}") from error
        except (paged.Error, ValueError, LookupError) as error:
            raise Unavailable(f"{error} (daemon at {self._place()})") from error

    def _of_daemon(self, geometry: Geometry, model: str | None) -> paged.Pool:
        client = self._connect()
        pool = self._pools.get((geometry, model))
        if pool is None:
            try:
                pool = self._pools[geometry, model] = choose_pool(client, geometry, model, self._name)
            except (paged.Error, ValueError, LookupError) as error:
                raise Unavailable(f"{error} (daemon at {self._place()})") from error
        return pool

    def _check_alive(self) -> None:
        """Drop the connection if the daemon has ended, or if this is a forked child."""
        if self._client is None:
            return
        try:
            if self._pid == os.getpid():
                self._client.ping()
                return
        except (paged.Error, RuntimeError):
            pass
        self._drop()

    def _place(self) -> Any:
        return self._runtime_dir or os.environ.get("PAGED_RUNTIME_DIR") or "/run/paged"
