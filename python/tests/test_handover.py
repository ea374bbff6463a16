# SPDX-License-Identifier: Apache-2.0
"""Sequences between sessions: give, adopt, cancel, the list of tickets; a giver that is killed."""
import os

import pytest

import paged
from test_admin import fields


@pytest.fixture
def taker(daemon):
    with daemon.connect(name="taker") as client:
        yield client.pool("test")


@pytest.fixture
def giver(daemon):
    with daemon.connect(name="giver") as client:
        yield client.pool("test")


def test_give_and_adopt(giver, taker):
    seqs = giver.create(2, [20, 40])
    pages = [giver.page_table(seq) for seq in seqs]
    ticket = giver.give(seqs, [17, 40])
    assert isinstance(ticket, bytes) and len(ticket) == 16
    assert [giver.read(seq).frozen for seq in seqs] == [True, True]
    with pytest.raises(paged.PermissionDeniedError, match="was given away"):
        giver.reserve(seqs, 64)

    adopted = taker.adopt(ticket)
    assert adopted == [(seqs[0], 17), (seqs[1], 40)]
    assert adopted[0].seq == seqs[0] and adopted[1].length == 40
    assert [taker.page_table(seq) for seq in seqs] == pages
    assert [taker.read(seq).owner for seq in seqs] == [taker.client.session] * 2
    taker.reserve(seqs, 64)
    with pytest.raises(paged.PermissionDeniedError):
        giver.erase(seqs)
    with pytest.raises(paged.NotFoundError, match="unknown, used or expired"):
        taker.adopt(ticket)
    taker.erase(seqs)
    assert taker.counts().n_free == 64


def test_one_length_for_all(giver, taker):
    seqs = giver.create(3, 16)
    assert [length for _, length in taker.adopt(giver.give(seqs, 16))] == [16] * 3
    seq, = giver.create(1, 16)
    assert taker.adopt(ticket=giver.give(seqs=seq, lengths=3)) == [(seq, 3)]


def test_cancel(giver, taker):
    seq, = giver.create(1, 16)
    ticket = giver.give(seq, 16)
    with pytest.raises(paged.PermissionDeniedError):
        taker.client.cancel_ticket(ticket)
    giver.client.cancel_ticket(ticket)
    giver.erase(seq)
    for call in (lambda: giver.client.cancel_ticket(ticket), lambda: taker.adopt(ticket)):
        with pytest.raises(paged.NotFoundError):
            call()


def test_tickets_that_name_their_taker(giver, taker):
    seq, = giver.create(1, 16)
    ticket = giver.give(seq, 16, session=giver.client.session, uid=os.getuid())
    with pytest.raises(paged.PermissionDeniedError):
        taker.adopt(ticket)
    giver.client.cancel_ticket(ticket)
    with pytest.raises(paged.PermissionDeniedError):
        taker.adopt(giver.give(seq, 16, uid=os.getuid() + 1))
    with pytest.raises(paged.NotFoundError):
        giver.give(giver.create(1, 16), 16, session=taker.client.session + 1)


def test_tickets_are_listed(giver, taker):
    assert taker.client.tickets() == []
    seqs = giver.create(2, [20, 40])
    ticket = giver.give(seqs, [17, 40], timeout=600, session=taker.client.session)
    entry, = taker.client.tickets()
    assert list(entry) == fields("paged_ticket_entry")
    assert 0 < entry.pop("expires_ms") <= 600_000
    assert entry.pop("number") > 0
    assert entry == {"session": giver.client.session, "ended": False, "pool": giver.number, "n_sequences": 2,
                     "n_pages": 5, "n_tokens": 57, "flags": 1, "to_session": taker.client.session, "to_uid": 0}
    taker.adopt(ticket)
    assert taker.client.tickets() == []


def test_expired_sequences_return(giver, taker):
    seq, = giver.create(1, 16)
    ticket = giver.give(seq, 16, timeout=0.001)
    while giver.read(seq).frozen:
        giver.client.ping()
    with pytest.raises(paged.NotFoundError):
        taker.adopt(ticket)
    giver.erase(seq)


def test_errors(giver, client, pool):
    seq, = giver.create(1, 16)
    with pytest.raises(paged.CapacityError):
        giver.give(seq, 17)
    with pytest.raises(paged.InvalidError):
        giver.give([seq, seq], 16)
    with pytest.raises(ValueError, match="lengths"):
        giver.give([seq], [1, 2])
    for timeout in (0, -1, "soon"):
        with pytest.raises((ValueError, TypeError), match="timeout"):
            giver.give(seq, 16, timeout=timeout)
    for call in (pool.adopt, client.cancel_ticket):
        with pytest.raises(TypeError, match="ticket must be bytes, not <class 'str'>"):
            call("ticket")
        with pytest.raises(ValueError, match="ticket has 15 bytes; a ticket has 16"):
            call(bytes(15))
        with pytest.raises(paged.NotFoundError):
            call(bytes(16))
    assert not giver.read(seq).frozen


def test_giver_is_killed(daemon, taker, worker):
    """The ticket keeps the sequence: the taker adopts it from a process that is gone."""
    process = worker("""
        import paged
        pool = paged.connect(threads=1).pool("test")
        seq, = pool.create(1, 40)
        print(pool.page_table(seq))
        print(pool.give(seq, 33, timeout=600).hex())
        input()
    """, PAGED_RUNTIME_DIR=str(daemon.runtime_dir))
    pages, ticket = process.line(), bytes.fromhex(process.line())
    process.kill()
    while not taker.client.tickets()[0]["ended"]:
        taker.client.ping()
    [(seq, length)] = taker.adopt(ticket)
    assert length == 33 and str(taker.page_table(seq)) == pages
    assert taker.counts().n_quarantined == 0
    assert taker.client.check("test").holds
