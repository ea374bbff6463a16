# SPDX-License-Identifier: Apache-2.0
"""Clients: life, threads, forks, a lost daemon, log, subinterpreters."""
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import types
import warnings
import weakref

import pytest

import paged

from conftest import POOL

# Calls of every kind that need the owner, or its shared memory.
CALLS = {
    "ping": lambda c, p, s: c.ping(),
    "dispatch": lambda c, p, s: c.dispatch(),
    "pool": lambda c, p, s: c.pool("test"),
    "reserve": lambda c, p, s: c.reserve(s, 16),
    "truncate": lambda c, p, s: c.truncate(s, 0),
    "erase": lambda c, p, s: c.erase(s),
    "status": lambda c, p, s: c.status(),
    "pools": lambda c, p, s: c.pools(),
    "sessions": lambda c, p, s: c.sessions(),
    "sequences": lambda c, p, s: c.sequences("test"),
    "table": lambda c, p, s: c.page_table(s),
    "check": lambda c, p, s: c.check("test"),
    "kick": lambda c, p, s: c.kick(c.session + 1),
    "prefixes": lambda c, p, s: c.prefixes("test"),
    "evict": lambda c, p, s: c.evict("test"),
    "pin_page": lambda c, p, s: c.pin_page("test", 0, 1, 1),
    "drop": lambda c, p, s: c.drop("x"),
    "counts": lambda c, p, s: p.counts(),
    "wait_free": lambda c, p, s: p.wait_free(64, 60),
    "create": lambda c, p, s: p.create(),
    "pool reserve": lambda c, p, s: p.reserve(s, 16),
    "read": lambda c, p, s: p.read(s),
    "pool table": lambda c, p, s: p.page_table(s),
    "match": lambda c, p, s: p.match(paged.Prefix(range(16))),
    "wait_prefix": lambda c, p, s: p.wait_prefix(paged.Prefix(range(16)), 16, 60),
    "start": lambda c, p, s: p.start([(None, 16)]),
    "publish": lambda c, p, s: p.publish(s, paged.Prefix(range(16))),
    "pin": lambda c, p, s: p.pin(paged.Prefix(range(16)), 1),
}


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
    for name, call in CALLS.items():
        with pytest.raises(RuntimeError, match="the client is closed"):
            call(client, pool, 1 << 32)
    with pytest.raises(RuntimeError):
        client.session
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


# ------------------------------------------------------------------ a lost daemon

@pytest.mark.parametrize("name", CALLS)
def test_lost_daemon(daemon, name):
    """After kill -9, each kind of call raises GoneError, as the first call or as a later one."""
    client = daemon.connect()
    pool = client.pool("test")
    seqs = pool.create(2, 16)
    daemon.kill()
    # Calls that only read shared memory notice the end when a request or dispatch() has.
    if name in ("read", "pool table", "match", "counts", "publish", "pin"):
        with pytest.raises(paged.GoneError):
            client.ping()
    for _ in range(2):
        with pytest.raises(paged.GoneError, match="the daemon") as caught:
            CALLS[name](client, pool, seqs[0])
        assert isinstance(caught.value, ConnectionError)
    client.close()


def test_lost_daemon_ends_a_wait(daemon):
    client = daemon.connect()
    pool = client.pool("test")
    pool.create(1, 16)
    killer = threading.Timer(0.2, daemon.kill)
    killer.start()
    with pytest.raises(paged.GoneError):
        pool.wait_free(64, 60)
    killer.join()
    with pytest.raises(paged.GoneError):
        client.dispatch()
    client.close()


def test_next_daemon_refuses_what_the_last_one_issued(daemon):
    client = daemon.connect()
    seq, = client.pool("test").create(1, 16)
    token = client.join_token
    daemon.kill()
    daemon.start()
    with pytest.raises(paged.GoneError):
        client.ping()
    with pytest.raises(paged.GoneError):
        daemon.connect(join_token=token)
    with daemon.connect() as other:
        with pytest.raises(paged.StaleError):
            other.pool("test").read(seq)
    client.close()


def test_stalled_daemon(daemon):
    client = daemon.connect(timeout=0.2)
    pool = client.pool("test")
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(paged.TimedOutError) as caught:
            pool.create()
        assert isinstance(caught.value, TimeoutError)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    client.close()


def test_stopping_daemon(daemon):
    """fileno() is readable when the daemon stops; dispatch() says so."""
    client = daemon.connect()
    assert select.select([client], [], [], 0) == ([], [], [])
    client.dispatch()
    daemon.process.send_signal(signal.SIGTERM)
    assert select.select([client], [], [], 30) == ([client], [], [])
    with pytest.raises(paged.StoppingError):
        while True:
            client.dispatch()
            select.select([client], [], [], 1)
    with pytest.raises(paged.StoppingError):
        client.pool("test").create()
    client.close()


def test_kicked_session(daemon):
    client = daemon.connect()
    with daemon.connect(observer=True) as admin:
        admin.kick(client.session)
    with pytest.raises(paged.GoneError, match=f"session {client.session} (has|was) ended"):
        client.ping()
    client.close()


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
        for name, call in CALLS.items():
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

    client = daemon.connect(timeout=0.1, log=log)
    pool = client.pool("test")
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
            for i in range(50):
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
    pool.wait_free(64, 60)
    freed.join()


@pytest.mark.parametrize("wait", [lambda pool: pool.wait_free(64, 60),
                                  lambda pool: pool.wait_prefix(paged.Prefix(range(16)), 16, 60)])
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


# -------------------------------------------------------------------------- log

def test_log(daemon):
    lines = []
    with daemon.connect(log=lambda level, text: lines.append((level, text))) as client:
        with pytest.raises(paged.NotFoundError) as caught:
            client.pool("other")
    assert any(level == paged.LOG_DEBUG and str(caught.value) in text for level, text in lines)


def test_log_function_that_fails(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)

    def log(level, text):
        raise KeyError(text)

    with paged.embedded(POOL, threads=1, log=log) as client:
        with pytest.raises(paged.NotFoundError):
            client.pool("other")
    assert seen[0].exc_type is KeyError
    assert seen[0].object is log


def test_log_function_must_not_call_paged():
    errors = []

    def log(level, text):
        for call in (client.ping, client.close, lambda: client.session, pool.counts, pool.close):
            try:
                call()
            except RuntimeError as error:
                errors.append(str(error))

    with paged.embedded(POOL, threads=1, log=log) as client:
        pool = client.pool("test")
        with pytest.raises(paged.InvalidError):
            pool.read(12345)
        assert len(errors) == 5
        assert errors[0] == "a log function must not call paged"
        client.ping()


def test_log_function_of_one_client_and_another_client(daemon):
    """The end of a client inside a log function may log too: the outer function must still not call paged."""
    errors = []

    def log(level, text):
        others.clear()
        for call in (client.ping, pool.counts, kept.close):
            try:
                call()
            except RuntimeError as error:
                errors.append(str(error))

    others = [daemon.connect(timeout=0.1, log=lambda level, text: lines.append(text))]
    lines = []
    with paged.embedded(POOL, threads=1) as kept, paged.embedded(POOL, threads=1, log=log) as client:
        pool = client.pool("test")
        daemon.kill()
        with pytest.raises(paged.NotFoundError):
            client.pool("other")
        assert errors == ["a log function must not call paged"] * 3
        assert not kept.closed


def test_log_function_may_drop_a_pool():
    pools = []

    with paged.embedded(POOL, threads=1, log=lambda level, text: pools.clear()) as client:
        pools.append(client.pool("test"))
        with pytest.raises(paged.NotFoundError):
            client.pool("other")
        assert pools == []


def test_cycle_through_the_log_function_is_collected():
    class Owner:
        pass

    owner = Owner()
    owner.client = paged.embedded(POOL, threads=1, log=lambda level, text, owner=owner: None)
    owner.pool = owner.client.pool("test")
    client = weakref.ref(owner.client)
    del owner
    gc.collect()
    assert client() is None


# --------------------------------------------------------------------- process

def test_subinterpreter_is_refused():
    source = """if True:
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        if len(sys.argv) > 1:
            import paged
        try:
            text = interpreters.run_string(interpreters.create(), "import paged")
        except Exception as error:
            text = error
        # From 3.12 on, Python itself refuses an interpreter with a GIL of its own.
        assert "subinterpreter" in str(text) and "ImportError" in repr(text), text
    """
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    for arguments in ([], ["after the main interpreter"]):
        subprocess.run([sys.executable, "-c", source, *arguments], check=True)


def test_module_is_loaded_once():
    source = """if True:
        import sys, paged
        first = paged.connect
        for name in [name for name in sys.modules if name.startswith("paged")]:
            del sys.modules[name]
        try:
            import paged
        except ImportError as error:
            assert "cannot be loaded twice" in str(error), error
        else:
            sys.exit("loaded twice")
    """
    subprocess.run([sys.executable, "-c", source], check=True)


def test_end_of_the_interpreter_with_open_objects(daemon):
    source = """if True:
        import os, paged, sys, threading
        client = paged.connect(threads=1, log=lambda level, text: None)
        pool = client.pool("test")
        pool.create(1, 16)
        threading.Thread(target=pool.wait_free, args=(64, 60), daemon=True).start()
        while not threading.active_count() == 2:
            pass
    """
    subprocess.run([sys.executable, "-X", "dev", "-c", source], check=True,
                   env={**os.environ, "PAGED_RUNTIME_DIR": str(daemon.runtime_dir)})


def test_no_call_leaks_references(embedded):
    """Failing and succeeding calls leave the number of references to their arguments alone."""
    pool = embedded.pool("test")
    name, tokens = "a name".upper(), [1 << 40] * 20
    thing = object()
    arguments = [name, tokens, thing]
    before = [sys.getrefcount(argument) for argument in arguments]
    for _ in range(3):
        for call in [lambda: pool.create(1, tokens), lambda: embedded.pool(name), lambda: pool.match(name),
                     lambda: pool.erase(thing), lambda: pool.create(2, tag=thing), lambda: paged.Prefix(tokens),
                     lambda: paged.embedded({"name": name}), lambda: paged.embedded({**POOL, "name": thing}),
                     lambda: paged.embedded({**POOL, "name": name}, log=thing), lambda: pool.start([(thing, 1)]),
                     lambda: pool.publish(tokens, [thing] * 20), lambda: embedded.kick(thing)]:
            with pytest.raises((TypeError, OverflowError, paged.Error, ValueError)):
                call()
    assert [sys.getrefcount(argument) for argument in arguments] == before
