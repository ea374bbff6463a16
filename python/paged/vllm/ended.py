# SPDX-License-Identifier: Apache-2.0
"""What the end of the daemon means for an engine, in words."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import paged


@contextmanager
def explain_end(pool: str) -> Iterator[None]:
    """Say what the end of the daemon means.

    For all calls of vLLM, in its scheduler's and in its worker's process: it ends the engine and its requests on any error.
    """
    try:
        yield
    except (paged.GoneError, paged.NoDaemonError, paged.StoppingError) as error:
        raise ConnectionError(f"pool {pool}: pagedd has ended, and with it the KV cache of this engine; start pagedd, "
                              f"then vLLM again ({error})") from error
