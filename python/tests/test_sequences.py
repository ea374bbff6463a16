# SPDX-License-Identifier: Apache-2.0
"""Sequences: create, reserve, truncate, erase, read; compared with a plain model of the accounting."""
import random

import pytest

import paged

PAGE = 16


def pages_of(n_tokens):
    return -(-n_tokens // PAGE)


def test_create(client, pool):
    assert pool.create(1) != pool.create()
    seqs = pool.create(3, [0, 1, 17], tag="täg")
    assert len(set(seqs)) == 3
    assert [pool.read(seq).n_pages for seq in seqs] == [0, 1, 2]
    assert [len(pool.page_table(seq)) for seq in seqs] == [0, 1, 2]
    info = pool.read(seqs[2])
    assert (info.owner, info.capacity, info.writable_from, info.published) == (client.session, 32, 0, 0)
    assert {entry["tag"] for entry in client.sequences("test") if entry["seq"] in seqs} == {"täg"}
    assert [pool.read(seq).capacity for seq in pool.create(2, n_tokens=16)] == [16, 16]


def test_reserve_is_absolute(pool):
    a, b = pool.create(2)
    pool.reserve([a, b], [20, 40])
    table = pool.page_table(b)
    pool.reserve((a, b), 30)
    assert (pool.read(a).capacity, pool.read(b).capacity) == (32, 48)
    pool.reserve(a, n_tokens=33)
    assert pool.read(a).capacity == 48
    assert pool.page_table(b) == table


def test_reserve_ahead_takes_spare_pages_only(pool):
    a, b = pool.create(2)
    pool.reserve([a, b], 16, [0, 32])
    assert (pool.read(a).capacity, pool.read(b).capacity) == (16, 48)
    pool.reserve([a, b], 16, n_ahead=512)
    # An eighth of the pages stays available for n_tokens.
    assert pool.counts().n_free >= 64 // 8


def test_truncate(pool):
    seq, = pool.create(1, 64)
    table, version = pool.page_table(seq), pool.read(seq).version
    pool.truncate(seq, 17)
    assert pool.page_table(seq) == table[:2]
    assert pool.read(seq).version != version
    pool.truncate([seq], [0])
    assert pool.page_table(seq) == []
    pool.reserve(seq, 16)
    with pytest.raises(paged.CapacityError):
        pool.truncate(seq, 17)


def test_trim(client, pool):
    a, b = pool.create(2, 64)
    table, version = pool.page_table(a), pool.read(a).version
    pool.trim(a, 33)
    assert pool.page_table(a) == [2**32 - 1, 2**32 - 1, *table[2:]]
    assert pool.read(a).n_trimmed == 2 and pool.read(a).capacity == 64
    assert pool.read(a).writable_from == 32 and pool.read(a).version != version
    client.trim([a, b], [0, 64])
    assert (pool.read(a).n_trimmed, pool.read(b).n_trimmed) == (2, 4)
    with pytest.raises(paged.CapacityError):
        pool.trim(a, 65)
    with pytest.raises(paged.InvalidError):
        pool.truncate(a, 31)


def test_erase(client, pool):
    a, b, c = pool.create(3, 16)
    pool.erase(b)
    client.erase([a, c])
    for call in (pool.read, pool.page_table, pool.erase, lambda seq: pool.reserve(seq, 1)):
        with pytest.raises(paged.StaleError):
            call(b)
    assert pool.counts().n_free == 64


def test_requests_are_all_or_nothing(client, pool):
    a, b, c = pool.create(3, 16)
    stale, = pool.create()
    pool.erase(stale)
    before = client.sequences("test"), pool.counts()
    for exception, call in [
        (paged.FullError, lambda: pool.reserve([a, b, c], 512)),
        (paged.FullError, lambda: pool.create(33)),
        (paged.FullError, lambda: pool.create(3, 512)),
        (paged.LimitError, lambda: pool.reserve([a, b], [32, 513])),
        (paged.StaleError, lambda: pool.reserve([a, stale], 32)),
        (paged.StaleError, lambda: pool.erase([a, stale])),
        (paged.CapacityError, lambda: pool.truncate([a, b], [0, 17])),
        (paged.InvalidError, lambda: pool.erase([a, a])),
        (paged.LimitError, lambda: pool.erase([a] * 4097)),
    ]:
        with pytest.raises(exception):
            call()
        assert (client.sequences("test"), pool.counts()) == before


def test_long_page_table(client):
    """Page tables are read in full, however long they are."""
    with paged.embedded({"name": "long", "n_layers": 1, "n_kv_heads": 1, "k_dim": 16, "dtype": "e4m3", "page_size": 1,
                         "n_pages": 5000}, threads=1) as own:
        pool = own.pool("long")
        for n in (63, 64, 65, 5000):
            seq, = pool.create(1, n)
            table = pool.page_table(seq)
            assert len(set(table)) == n
            assert own.page_table(seq)[1] == table
            pool.erase(seq)


@pytest.mark.parametrize("seed", range(3))
def test_random_requests_against_a_model(client, pool, seed):
    """Capacities, counts and page tables after each of 300 random requests."""
    rng = random.Random(seed)
    capacity: dict[int, int] = {}
    for _ in range(300):
        some = rng.sample(list(capacity), min(len(capacity), rng.randrange(1, 4)))
        action = rng.choice(["create", "reserve", "reserve", "truncate", "erase"])
        wanted = [rng.randrange(0, 150) for _ in some]
        if action == "create":
            n_tokens = [rng.randrange(0, 80) for _ in range(rng.randrange(1, 4))]
            fits = (len(capacity) + len(n_tokens) <= 32 and
                    sum(map(pages_of, n_tokens)) <= 64 - sum(map(pages_of, capacity.values())))
            if fits:
                capacity.update(zip(pool.create(len(n_tokens), n_tokens), (pages_of(n) * PAGE for n in n_tokens)))
            else:
                with pytest.raises(paged.FullError):
                    pool.create(len(n_tokens), n_tokens)
        elif not some:
            continue
        elif action == "reserve":
            after = {seq: max(capacity[seq], pages_of(n) * PAGE) for seq, n in zip(some, wanted)}
            if sum(map(pages_of, {**capacity, **after}.values())) <= 64:
                client.reserve(some, wanted)
                capacity.update(after)
            else:
                with pytest.raises(paged.FullError):
                    client.reserve(some, wanted)
        elif action == "truncate":
            keep = [rng.randrange(0, capacity[seq] + 1) for seq in some]
            pool.truncate(some, keep)
            capacity.update((seq, pages_of(n) * PAGE) for seq, n in zip(some, keep))
        else:
            pool.erase(some)
            for seq in some:
                del capacity[seq]
        tables = {seq: pool.page_table(seq) for seq in capacity}
        assert {seq: len(table) * PAGE for seq, table in tables.items()} == capacity
        pages = [page for table in tables.values() for page in table]
        assert len(set(pages)) == len(pages)
        assert pool.counts().n_referenced == len(pages)
    assert pool.check().holds
    assert client.check("test").holds
