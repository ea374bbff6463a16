# SPDX-License-Identifier: Apache-2.0
"""Clients of a daemon that has died, stalls or stops, or has ended their session."""
import select
import signal
import threading

import pytest

import paged
from client_calls import CALLS


@pytest.mark.parametrize("name", CALLS)
def test_lost_daemon(daemon, name):
    """After kill -9, each kind of call raises GoneError, as the first call or as a later one."""
    client = daemon.connect()
    pool = client.pool("test")
    seqs = pool.create(2, 16)
    daemon.kill()
    # Calls that only read shared memory notice the end when a request or dispatch() has.
    if name in ("read", "pool table", "match", "counts", "totals", "publish", "pin"):
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
        pool.wait_free(64, 300)
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
    client, pool = daemon.connect_impatient(0.2)
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
