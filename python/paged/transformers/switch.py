# SPDX-License-Identifier: Apache-2.0
"""Models that use the attention "paged" for a time."""
from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["Switched"]


class Switched:
    """While an object of this class lives, its model uses the attention "paged"; after the last one, that of before."""

    _lock = threading.Lock()
    # The number of objects, and what the model and its parts had before.
    _models: weakref.WeakKeyDictionary[Any, tuple[int, list[tuple[Any, str]]]] = weakref.WeakKeyDictionary()
    # Models of objects that are gone.  A garbage collection may end an object while this thread holds the lock.
    _left: deque[weakref.ref[Any]] = deque()

    def __init__(self, model: Any) -> None:
        with self._lock:
            n_objects, before = self._models.get(model, (0, []))
            if n_objects == 0:
                before = [(config, config._attn_implementation) for config in _configs(model)]
                model.set_attn_implementation("paged")
            self._models[model] = (n_objects + 1, before)
        weakref.finalize(self, self._leave, weakref.ref(model)).atexit = False
        self._drain()

    @classmethod
    @contextmanager
    def suspended(cls, model: Any) -> Iterator[None]:
        """Let a model use the attention of before, although objects of this class live."""
        with cls._lock:
            changed = [entry for entry in cls._models.get(model, (0, []))[1]
                       if entry[0]._attn_implementation == "paged"]
            for config, implementation in changed:
                config._attn_implementation_internal = implementation
        cls._drain()
        try:
            yield
        finally:
            with cls._lock:
                # The last object may be gone by now.
                if model in cls._models:
                    for config, implementation in changed:
                        if config._attn_implementation == implementation:
                            config._attn_implementation_internal = "paged"
            cls._drain()

    @classmethod
    def _leave(cls, reference: weakref.ref[Any]) -> None:
        cls._left.append(reference)
        cls._drain()

    @classmethod
    def _drain(cls) -> None:
        """Count those that are gone, unless a holder of the lock does so after its release."""
        while cls._left and cls._lock.acquire(blocking=False):
            try:
                model = cls._left.popleft()() if cls._left else None
                if model is not None:
                    cls._count_down(model)
            finally:
                cls._lock.release()

    @classmethod
    def _count_down(cls, model: Any) -> None:
        n_objects, before = cls._models[model]
        cls._models[model] = (n_objects - 1, before)
        if n_objects == 1:
            del cls._models[model]
            # Not set_attn_implementation(), which sets one implementation for all parts of the model.
            for config, implementation in before:
                if config._attn_implementation == "paged":
                    config._attn_implementation_internal = implementation


def _configs(model: torch.nn.Module) -> list[Any]:
    """Return the configurations of a model and its parts, each once."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    while waiting:
        config = waiting.pop()
        if id(config) not in found and hasattr(config, "_attn_implementation"):
            found[id(config)] = config
            waiting += [part for name in config.sub_configs if (part := getattr(config, name)) is not None]
    return list(found.values())
