# SPDX-License-Identifier: Apache-2.0
"""What the demonstration sees of the pool."""
import time
from typing import Any, NamedTuple

from engines import Engine, Failure, Setup

import paged

ENDED_LIMIT_S = 30.0


class Found(NamedTuple):
    """Tokens of prefixes that engines asked for, and of these, those that the pool had."""

    n_asked: int
    n_found: int


class Observer:
    def __init__(self, setup: Setup) -> None:
        self.client = paged.connect(str(setup.runtime_dir), name="demo", observer=True, threads=1, run="own")
        self._pool = setup.pool
        self.page_size: int = self.report()["page_size"]

    def report(self) -> dict[str, Any]:
        return next(report for report in self.client.pools() if report["name"] == self._pool)

    def found(self) -> Found:
        """Totals since the daemon started."""
        report = self.report()
        return Found(report["n_tokens_asked"], report["n_tokens_found"])

    def evict(self) -> None:
        """Free all published pages that no sequence has."""
        self.client.evict(self._pool)

    def check(self) -> str:
        """Let the daemon recount every page; raise Failure if the accounting does not hold."""
        result = self.client.check(self._pool)
        if not result.holds:
            raise Failure(f"pagedctl check: {result.text}")
        return (f"{result.n_pages} pages = {result.n_free} free + {result.n_referenced} referenced + "
                f"{result.n_cached} cached + {result.n_quarantined} quarantined: holds")

    def kill(self, engine: Engine) -> float:
        """Kill an engine; return the seconds from then until the daemon has freed what its sessions held."""
        members = {session["member"] for session in self.client.sessions() if engine.owns(session["pid"])}
        start = time.monotonic()
        engine.kill()
        while any(session["member"] in members or session["ended"] for session in self.client.sessions()):
            if time.monotonic() - start > ENDED_LIMIT_S:
                raise Failure(f"{ENDED_LIMIT_S:.0f} s after the end of {engine.name} its session is still there")
            time.sleep(0.0005)
        return time.monotonic() - start
