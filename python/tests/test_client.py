# SPDX-License-Identifier: Apache-2.0
"""Clients: life, forks, threads."""
import gc
import os
import signal
import subprocess
import sys
import threading
import types
import warnings

import pytest

import paged
from client_calls import CALLS
from conftest import POOL


def test_attributes(client):
    assert not client.closed
    assert client.session > 0
    assert client.threads == 1
    assert client.run == "own"
    assert repr(client) == f"<paged.Client session={client.session} threads=1 run=own>"
    client.ping()


def test_close(client):
    pool = client.pool("test")
    client.close()
    assert client.closed and pool.closed
    client.close()
    pool.close()
    assert repr(client) == "<paged.Client closed>"
    assert pool.name == "test"
    for call in CALLS.values():
        with pytest.raises(RuntimeError, match="the client is closed"):
            call(client, pool, 1 << 32)
    with pytest.raises(RuntimeError):
        _ = client.session
    with pytest.raises(RuntimeError):
        client.__enter__()


def test_with_closes_also_after_an_exception(daemon):
    with pytest.raises(KeyError), daemon.connect() as client:
        raise KeyError
    assert client.closed


def test_collected_client_leaves_its_session(daemon):
    with daemon.connect(observer=True) as observer:
        client = daemon.connect(name="left")
        pool = client.pool("test")
        pool.create(2, 16)
        del client
        gc.collect()
        assert [entry["name"] for entry in observer.sessions()] == ["left"], "the pool needs its client"
        del pool
        gc.collect()
        assert observer.sessions() == []
        assert observer.pool("test").counts().n_free == 64


def test_options(daemon, monkeypatch):
    with daemon.connect(name="a name", timeout=30, threads=2, isa="generic", run=None, cpus=None) as client:
        assert client.threads == 2
        assert client.pool("test").isa == "generic"
        assert client.sessions()[0]["name"] == "a name"
    with daemon.connect(observer=True) as observer:
        assert observer.session == 0
        assert observer.join_token == ""
    monkeypatch.setenv("PAGED_RUNTIME_DIR", str(daemon.runtime_dir))
    with paged.connect(threads=1) as client:
        assert client.status()["pid"] == daemon.process.pid


def test_connect_waits(daemon, tmp_path):
    with pytest.raises(paged.NoDaemonError):
        paged.connect(tmp_path, wait=0.3)
    with pytest.raises(ValueError, match="wait: -1 is not between"):
        paged.connect(tmp_path, wait=-1)
    # The directory appears while the client waits.
    link = tmp_path / "run"
    made = threading.Timer(0.5, link.symlink_to, [daemon.runtime_dir])
    made.start()
    with paged.connect(link, wait=600, threads=1) as client:
        assert client.status()["pid"] == daemon.process.pid
    made.join()


def test_threads_by_default(monkeypatch):
    cpus = sorted(os.sched_getaffinity(0))
    monkeypatch.setitem(sys.modules, "torch", None)
    with paged.embedded(POOL) as client:
        assert client.threads == len(cpus)
        assert client.run == "own"
    with paged.embedded(POOL, cpus=cpus[:1]) as client:
        assert client.threads == 1
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(get_num_threads=lambda: 3))
    with paged.embedded(POOL) as client:
        assert client.threads == 3
    with paged.embedded(POOL, run="own", threads=2) as client:
        assert client.threads == 2 and client.run == "own"
    with paged.embedded(POOL, cpus=cpus[:1]) as client:
        assert client.threads == 1 and client.run == "own"
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    with paged.embedded(POOL) as client:
        assert client.threads == len(cpus)


def test_openmp_needs_a_libgomp_that_is_loaded():
    source = """if True:
        import ctypes, paged, sys
        pool = {"name": "t", "n_layers": 1, "n_kv_heads": 1, "k_dim": 16, "dtype": "f32", "n_pages": 4}
        try:
            paged.embedded(pool, run="openmp")
        except paged.UnsupportedError as error:
            assert "has loaded no libgomp" in str(error), error
        else:
            sys.exit("libgomp was found though it is not loaded")
        try:
            ctypes.CDLL("libgomp.so.1")
        except OSError:
            sys.exit(77)
        client = paged.embedded(pool, run="openmp", threads=2)
        assert client.run == "openmp" and client.threads == 2
        try:
            paged.embedded(pool, run="openmp", cpus=[0])
        except ValueError as error:
            assert "OMP_PLACES" in str(error)
    """
    if subprocess.run([sys.executable, "-c", source], check=False).returncode == 77:
        pytest.skip("no libgomp")


def test_joined_session_ends_with_its_first_member(daemon, worker):
    first = daemon.connect()
    seq, = first.pool("test").create(1, 32)
    member = worker("""
        import os, paged
        with paged.connect(threads=1, join_token=os.environ["TOKEN"]) as client:
            assert client.join_token == ""
            print(client.session)
            pool = client.pool("test")
            seq, = pool.create(1, 16)
            client.reserve([int(os.environ["SEQ"]), seq], 40)
            print(pool.read(seq).capacity, pool.read(int(os.environ["SEQ"])).capacity)
            input()
            try:
                pool.create()
            except paged.GoneError as error:
                print(error)
    """, TOKEN=first.join_token, SEQ=str(seq), PAGED_RUNTIME_DIR=str(daemon.runtime_dir))
    session = first.session
    assert int(member.line()) == session
    assert member.line() == "48 48"
    first.close()
    member.go_on()
    assert f"session {session}" in member.line()
    member.end()
    with pytest.raises(paged.GoneError):
        daemon.connect(join_token=first_token(daemon))


def first_token(daemon):
    with daemon.connect() as client:
        return client.join_token


def test_outlive(daemon):
    first = daemon.connect(outlive=True)
    seq, = first.pool("test").create(1, 16)
    second = daemon.connect(join_token=first.join_token)
    first.close()
    assert second.pool("test").read(seq).capacity == 16
    second.erase(seq)
    second.close()


# ------------------------------------------------------------------------- fork

def run_in_fork(function):
    """Run the function in a forked child; it must return without an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)     # fork with threads
        child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException as error:
            print(f"in the child: {error!r}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_fork(client, pool):
    seqs = pool.create(2, 16)

    def child():
        for call in CALLS.values():
            with pytest.raises(paged.ForkError, match="belongs to the parent of this forked process"):
                call(client, pool, seqs[0])
        pool.close()
        client.close()
        assert client.closed
        with paged.embedded(POOL, threads=1) as own:
            own.pool("test").create()

    run_in_fork(child)
    pool.reserve(seqs, 40)
    assert pool.check().holds


class Inside:
    """A thread that is inside a call until leave(): the log function of the call does not return before that."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._leave = threading.Event()
        self.client = paged.embedded(POOL, threads=1, log=self._log)
        self.pool = self.client.pool("test")
        self._thread = threading.Thread(target=self._call)
        self._thread.start()
        self._entered.wait()

    def _log(self, level: int, text: str) -> None:
        if "12345" in text:
            self._entered.set()
            self._leave.wait()

    def _call(self) -> None:
        with pytest.raises(paged.InvalidError):
            self.pool.read(12345)

    def leave(self) -> None:
        self._leave.set()
        self._thread.join()


def test_fork_while_another_thread_is_inside():
    """The child has no other thread, so that it can close the objects."""
    inside = Inside()
    run_in_fork(lambda: (inside.pool.close(), inside.client.close()))
    inside.leave()
    inside.client.close()


# ---------------------------------------------------------------------- threads

def test_close_while_another_thread_is_inside():
    inside = Inside()
    with pytest.raises(RuntimeError, match="the client cannot be closed: 1 calls are inside it"):
        inside.client.close()
    with pytest.raises(RuntimeError, match="pool test cannot be closed: 1 calls are inside it"):
        inside.pool.close()
    with pytest.raises(RuntimeError), inside.client:
        pass
    assert not inside.client.closed and not inside.pool.closed
    inside.pool.create()
    inside.leave()
    inside.pool.close()
    inside.client.close()


def test_objects_end_while_another_thread_logs(daemon):
    """The library logs a late reply with the client's mutex locked, which the end of an object waits for."""
    entered, leave = threading.Event(), threading.Event()

    def log(level, text):
        if "no answer" in text:
            entered.set()
            leave.wait()

    def ping():
        with pytest.raises(paged.TimedOutError):
            client.ping()

    client, pool = daemon.connect_impatient(0.1, log=log)
    for make in (pool.batch, lambda: pool.mod("mask", "causal"), lambda: pool.block_mask(None, 8, 8)):
        thing = make()
        daemon.process.send_signal(signal.SIGSTOP)
        thread = threading.Thread(target=ping)
        thread.start()
        entered.wait()
        interval = sys.getswitchinterval()
        # From now on, the other thread gets the GIL only if this one releases it.
        sys.setswitchinterval(1000)
        leave.set()
        del thing
        sys.setswitchinterval(interval)
        thread.join()
        daemon.process.send_signal(signal.SIGCONT)
        entered.clear()
        leave.clear()
    client.close()


def test_calls_from_many_threads(client, pool):
    failures = []

    def work(number):
        try:
            for _ in range(50):
                seqs = pool.create(2, [16, 16 + number])
                pool.reserve(seqs, 40)
                assert [pool.read(seq).capacity for seq in seqs] == [48, 48]
                assert len(pool.page_table(seqs[1])) == 3
                pool.counts()
                client.erase(seqs)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert pool.counts().n_free == 64
    assert client.check("test").holds


def test_a_call_that_waits_lets_other_threads_run(pool):
    seq, = pool.create(1, 500)
    freed = threading.Timer(0.05, pool.erase, [seq])
    freed.start()
    pool.wait_free(64, 300)
    freed.join()


@pytest.mark.parametrize("wait", [lambda pool: pool.wait_free(64, 300),
                                  lambda pool: pool.wait_prefix(paged.Prefix(range(16)), 16, 300)])
def test_signal_ends_a_wait(pool, wait):
    class Stop(Exception):
        pass

    def handler(number, frame):
        raise Stop

    pool.create(1, 16)
    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1])
    timer.start()
    try:
        with pytest.raises(Stop):
            wait(pool)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert pool.counts().n_referenced == 1
