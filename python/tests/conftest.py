# SPDX-License-Identifier: Apache-2.0
"""Fixtures: real daemons, and clients of them or with an embedded owner."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import paged
from daemon_process import Daemon

# Where PyTorch is not installed, "import torch" would find the directory torch here, as a namespace package.
_torch = importlib.util.find_spec("torch") if "torch" not in sys.modules else None
if _torch is not None and _torch.origin is None:
    sys.modules["torch"] = None     # type: ignore[assignment]

# The same pool for the daemon and for embedded clients.
POOL_CONFIGURATION = """
pool test {
    layers = 2
    kv-heads = 2
    head-dim = 16
    dtype = f32
    page-size = 16
    pages = 64
    sequences = 32
    max-length = 512
}
"""
POOL = {"name": "test", "n_layers": 2, "n_kv_heads": 2, "k_dim": 16, "dtype": "f32", "page_size": 16, "n_pages": 64,
        "n_slots": 32, "max_length": 512}


@pytest.fixture
def start_daemon() -> Iterator[Callable[..., Daemon]]:
    """A function that starts a daemon, with a configuration if one is passed."""
    daemons: list[Daemon] = []
    # pytest's tmp_path may be longer than the path of a socket.
    with tempfile.TemporaryDirectory(prefix="paged-py-") as directory:
        def start(configuration: str = POOL_CONFIGURATION) -> Daemon:
            path = Path(directory) / str(len(daemons))
            path.mkdir()
            daemons.append(Daemon(path, configuration))
            return daemons[-1]

        yield start
        for daemon in daemons:
            daemon.stop()


@pytest.fixture
def daemon(start_daemon: Callable[..., Daemon]) -> Daemon:
    return start_daemon()


@pytest.fixture
def embedded() -> Iterator[paged.Client]:
    with paged.embedded(POOL, threads=1, run="own") as client:
        yield client


@pytest.fixture
def served(daemon: Daemon) -> Iterator[paged.Client]:
    with daemon.connect() as client:
        yield client


@pytest.fixture(params=["embedded", "served"])
def client(request: pytest.FixtureRequest) -> paged.Client:
    """A client with one pool, "test", of either kind of owner."""
    owner: paged.Client = request.getfixturevalue(request.param)
    return owner


@pytest.fixture
def pool(client: paged.Client) -> paged.Pool:
    return client.pool("test")


class Worker:
    """Another Python process, which runs lines of code and prints."""

    def __init__(self, source: str, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(source), *arguments],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})

    def line(self) -> str:
        """The next line that it prints; "" after its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def go_on(self) -> None:
        """Let its input() return."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Wait for its end; it must succeed."""
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def worker() -> Iterator[Callable[..., Worker]]:
    """A function that starts a Worker."""
    workers: list[Worker] = []

    def start(source: str, *arguments: str, **environment: str) -> Worker:
        workers.append(Worker(source, *arguments, **environment))
        return workers[-1]

    yield start
    for process in workers:
        process.kill()
