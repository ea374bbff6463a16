# SPDX-License-Identifier: Apache-2.0
"""What an engine does and says while its requests cannot start."""
from __future__ import annotations

import time
from contextlib import suppress

from vllm.logger import init_logger
from vllm.v1.request import Request

import paged

# vLLM configures the loggers below its own name.
logger = init_logger(f"vllm.{__name__}")

# How long schedule() may sleep for free pages when nothing else is running; vLLM accepts no requests meanwhile.
WAIT_S = 0.01
# An engine in which nothing runs says after this time what its requests wait for.
SAY_S = 1.0


class Waiting:
    """Waits for pages where vLLM would ask again and again, and says once what for, each time that it begins."""

    def __init__(self, pool: paged.Pool) -> None:
        self._pool = pool
        self._is_stopping = False   # it was said that new requests wait
        self._since: float | None = None    # nothing runs, and a request waits; when that began
        self._has_said = False      # and it was said what for

    def end(self) -> None:
        """Requests run."""
        self._since = None

    def say_stopping(self, error: paged.Error) -> None:
        """Say once that new requests are refused until the engine ends, if the error means that."""
        if isinstance(error, paged.StoppingError) and not self._is_stopping:
            self._is_stopping = True
            logger.warning("pool %s: new requests wait: %s", self._pool.name, error)

    def wait(self, request: Request, error: paged.Error, n_pages: int) -> None:
        """Sleep a little, until others may have freed so many pages.  Nothing runs, and the request was refused."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._has_said = now, isinstance(error, paged.StoppingError)
        if not self._has_said and now - self._since >= SAY_S:
            self._has_said = True
            logger.warning("pool %s: no request runs in this engine; request %s waits, and asks again: %s",
                           self._pool.name, request.request_id, error)
        with suppress(paged.StoppingError):
            try:
                self._pool.wait_free(min(n_pages, self._pool.n_pages), WAIT_S)
            except paged.TimedOutError:
                return
        time.sleep(WAIT_S)      # pages are free: sequences, the quota or the session's permission are what is missing
