# SPDX-License-Identifier: Apache-2.0
"""What the end of the daemon means for an engine, in words; and for an engine that has nothing to do."""
from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vllm.logger import init_logger

import paged

# vLLM configures the loggers below its own name.
logger = init_logger(f"vllm.{__name__}")

# The daemon's end makes these of all calls.
ENDED = (paged.GoneError, paged.NoDaemonError)
# Between looks at the daemon.
PERIOD_S = 1.0


def _explanation(pool: str, error: paged.Error) -> str:
    return (f"pool {pool}: pagedd has ended, and with it the KV cache of this engine; start pagedd, then vLLM again "
            f"({error})")


@contextmanager
def explain_end(pool: str) -> Iterator[None]:
    """Say what the end of the daemon means.

    For all calls of vLLM, in its scheduler's and in its worker's process: it ends the engine and its requests on any
    error.
    """
    try:
        yield
    except (*ENDED, paged.StoppingError) as error:
        raise ConnectionError(_explanation(pool, error)) from error


class EndWatch:
    """A thread that ends an engine which has nothing to do when the daemon ends.

    Any call for a request would fail then, and end the engine.  Without requests there is no call, and vLLM's /health
    asks no more than whether the engine's process lives.

    is_idle
        Whether the engine has nothing to do.

    vLLM ends the process of an engine in order at SIGTERM.  In another process, that of a program with an engine
    inside, the thread only writes the log.
    """

    def __init__(self, pool: paged.Pool, is_idle: Callable[[], bool]) -> None:
        self._name = pool.name
        self._client = pool.client
        self._is_idle = is_idle
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="paged end", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        ended: paged.Error | None = None
        while not self._closed.wait(PERIOD_S):
            if ended is None:
                try:
                    self._client.dispatch()
                except ENDED as error:
                    ended = error
                except paged.Error:
                    pass    # of a request, which reports it
            if ended is not None and self._is_idle():
                logger.error("%s", _explanation(self._name, ended))
                if multiprocessing.current_process().name.startswith("EngineCore"):
                    os.kill(os.getpid(), signal.SIGTERM)
                return
