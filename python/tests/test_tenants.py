# SPDX-License-Identifier: Apache-2.0
"""Tenants and their limits, and drained sessions."""
import os
import select

import pytest

import paged
from conftest import POOL_CONFIGURATION
from test_admin import fields

TENANT = f"tenant team {{ allow-user = {os.getuid()} limit test = 4 share = 75% }}\n"


@pytest.fixture
def limited(start_daemon):
    """A client whose tenant may have 4 pages of the pool's 64."""
    with start_daemon(POOL_CONFIGURATION + TENANT).connect() as client:
        yield client


def test_quotas(limited):
    entry, = limited.quotas()
    assert list(entry) == fields("paged_quota_entry")
    assert {name: value for name, value in entry.items() if value and not name.startswith(("max_", "table_"))} == {
        "tenant": "team", "limited": True, "limit": 4, "shared": True, "cache_share": 4, "n_sessions": 1,
        "n_members": 1}
    assert entry["max_sessions"] == entry["max_members"] == entry["max_tickets"] == entry["max_pins"] == 768
    pool = limited.pool("test")
    seq, = pool.create(1, 33)
    pool.give([seq], [33])
    entry, = limited.quotas()
    assert (entry["n_charged"], entry["n_sequences"], entry["n_tickets"]) == (3, 1, 1)
    assert [entry["tenant"] for entry in limited.sessions()] == ["team"]


def test_no_tenants(client):
    client.pool("test").create(1, 33)
    assert client.quotas() == []
    assert [entry["tenant"] for entry in client.sessions()] == [""]


def test_limit(limited):
    """QuotaError has the message of the library, which names tenant, pool, and the numbers."""
    pool = limited.pool("test")
    with pytest.raises(paged.QuotaError, match="tenant team, pool test: 5 pages requested, 0 charged, limit 4: ask "
                                               "for less, or raise the limit") as caught:
        pool.create(1, 65)
    assert caught.value.status_name == "PAGED_ERR_QUOTA"
    seq, = pool.create(1, 48)
    with pytest.raises(paged.QuotaError, match="2 pages requested, 3 charged, limit 4: free pages of its sequences"):
        pool.reserve(seq, 80)
    with pytest.raises(paged.QuotaError):
        pool.start([(None, 32)])
    pool.reserve(seq, 64)
    batch = pool.batch(reserve_ahead=16)
    batch.plan([seq], q_len=1, kv_len=64)
    with pytest.raises(paged.QuotaError, match="1 pages requested, 4 charged"):
        batch.plan([seq], q_len=1, kv_len=65)
    assert batch.pages_missing() == [1]
    pool.erase(seq)
    pool.create(4, 16)


def test_drain(daemon):
    """dispatch() reports a drain; the session goes on with the sequences that it has."""
    with daemon.connect() as client, daemon.connect(observer=True) as admin:
        pool = client.pool("test")
        seq, = pool.create(1, 16)
        with pytest.raises(paged.NotFoundError):
            admin.drain(client.session + 1)
        client.dispatch()
        admin.drain(client.session)
        admin.drain(session=client.session)
        assert select.select([client], [], [], 30) == ([client], [], [])
        for call in (client.dispatch, pool.create, lambda: pool.start([(None, 16)])):
            with pytest.raises(paged.StoppingError, match=f"session {client.session} is drained and gets no new "
                                                          "sequences"):
                call()
        assert [(entry["draining"], entry["ended"]) for entry in client.sessions()] == [(True, False)]
        pool.reserve(seq, 64)
        pool.erase(seq)


def test_drain_embedded(embedded):
    embedded.drain(embedded.session)
    with pytest.raises(paged.StoppingError):
        embedded.dispatch()
