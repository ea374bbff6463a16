# SPDX-License-Identifier: Apache-2.0
"""A real pagedd, started and stopped."""
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import paged

# How long tests wait for what must happen.  It ends tests that hang, and decides no other result: tests pass however
# slow the machine is.  Clients and pagedctl, of this process and of its children, wait as long.
LIMIT_S = 300
os.environ.setdefault("PAGED_TIMEOUT_MS", str(LIMIT_S * 1000))


def pagedd_path() -> str:
    """pagedd of the build tree; that of the wheel, or the installed one, if paged comes from elsewhere."""
    package = Path(paged.__file__).parent
    build = Path(os.environ.get("PAGED_BUILDDIR", package.parents[1]))
    for path in (build / "daemon" / "pagedd", package / "bin" / "pagedd"):
        if path.exists():
            return str(path)
    return "pagedd"


class Daemon:
    """A pagedd with a runtime directory of its own."""

    def __init__(self, directory: Path, configuration: str) -> None:
        self.runtime_dir = directory / "run"
        self.log = directory / "log"
        self.configuration = directory / "pagedd.conf"
        self.configuration.write_text(configuration)
        self.runtime_dir.mkdir(mode=0o750)
        self.start()

    def start(self) -> None:
        """Start the daemon, and wait until it reports by systemd's sd_notify protocol that it is ready."""
        notify_path = self.runtime_dir.parent / "notify"
        notify_path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, open(self.log, "ab") as log:
            notify.bind(str(notify_path))
            notify.settimeout(LIMIT_S)
            environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
            self.process = subprocess.Popen(
                [pagedd_path(), "--config", self.configuration, "--runtime-dir", self.runtime_dir],
                stderr=log, env={**environment, "NOTIFY_SOCKET": str(notify_path)})
            try:
                while b"READY=1" not in notify.recv(4096):
                    pass
            except TimeoutError:
                self.kill()
                pytest.fail(f"pagedd was not ready in time:\n{self.log.read_text()}")

    def connect(self, **options: Any) -> paged.Client:
        # The same with and without torch, which other tests import.
        options.setdefault("threads", 1)
        options.setdefault("run", "own")
        return paged.connect(self.runtime_dir, **options)

    def connect_impatient(self, timeout: float, **options: Any) -> tuple[paged.Client, paged.Pool]:
        """A client whose calls wait for a short time only, and its pool.  On a busy machine the first calls take
        longer, and are made again."""
        end = time.monotonic() + LIMIT_S
        while True:
            client = None
            try:
                client = self.connect(timeout=timeout, **options)
                return client, client.pool("test")
            except paged.TimedOutError:
                if client is not None:
                    client.close()
                if time.monotonic() > end:
                    raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the daemon by SIGTERM; it must report no error of its own."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(LIMIT_S) == 0, self.log.read_text()
        assert "Sanitizer" not in self.log.read_text()
