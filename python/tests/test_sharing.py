# SPDX-License-Identifier: Apache-2.0
"""Prefixes: match, start, publish, pin, wait; between two processes."""
import hashlib

import pytest

import paged

TOKENS = [7 * i % 1000 for i in range(70)]


def published(pool, prefix, n_tokens=None):
    """A sequence of this session that has published the prefix."""
    seq, = pool.create(1, len(prefix) if n_tokens is None else n_tokens)
    pool.publish(seq, prefix)
    pool.client.ping()      # a publish is sent without waiting for the reply
    return seq


def test_prefix():
    prefix = paged.Prefix(TOKENS)
    assert len(prefix) == prefix.n_tokens == 70
    assert repr(prefix) == "<paged.Prefix of 70 tokens>"
    assert repr(paged.Prefix(keys=bytes(64), page_size=16)) == "<paged.Prefix of 32 tokens, by keys>"
    assert len(paged.Prefix([])) == 0


def test_match_and_start(pool):
    prefix = paged.Prefix(TOKENS)
    assert pool.match(prefix) == 0
    seq = published(pool, prefix, 80)
    # Whole pages are published: four of them.
    assert pool.match(prefix) == 64
    assert pool.match(paged.Prefix(TOKENS[:63])) == 48
    assert pool.match(paged.Prefix(TOKENS[1:])) == 0
    assert pool.match(paged.Prefix(TOKENS[:20] + [0] * 40)) == 16
    info = pool.read(seq)
    assert (info.published, info.writable_from) == (64, 64)

    whole, part, capped, none = pool.start([(prefix, 100), (paged.Prefix(TOKENS[:20]), 0), [prefix, 40], (None, 5)],
                                           tag="started")
    assert (whole.n_shared, part.n_shared, capped.n_shared, none.n_shared) == (64, 16, 64, 0)
    assert pool.page_table(whole.seq)[:4] == pool.page_table(seq)[:4]
    assert [pool.read(started.seq).capacity for started in (whole, part, capped, none)] == [112, 16, 64, 16]
    assert pool.start([(prefix, 64)], max_tokens=40)[0].n_shared == 32
    assert pool.check().holds


def test_extended_prefixes(pool):
    # One that grows by each of these is as good as one that is made at once, also past its room and with branches.
    first = paged.Prefix(TOKENS[:10], salt=bytes(range(32)), extras=[(3, 4, bytes(32))])
    grown = [first]
    for n in range(10, 70, 5):
        grown.append(grown[-1].extended(TOKENS[n:n + 5]))
    assert [len(prefix) for prefix in grown] == list(range(10, 71, 5))
    whole = paged.Prefix(TOKENS, salt=bytes(range(32)), extras=[(3, 4, bytes(32))])
    seq = published(pool, whole, 80)
    for prefix in grown:
        assert pool.match(prefix) == len(prefix) // 16 * 16
    other = grown[2].extended([9] * 50)
    assert (len(other), pool.match(other), pool.match(grown[-1])) == (70, 16, 64)
    assert pool.match(paged.Prefix(TOKENS[:20]).extended(TOKENS[20:])) == 0

    # Extras that begin in the new tokens count, as does one token.
    media = paged.Prefix(TOKENS[:15]).extended(TOKENS[15])
    pool.publish(pool.create(1, 80), media.extended(TOKENS[16:], extras=[(20, 2, bytes([7] * 32))]))
    pool.client.ping()
    assert pool.match(media.extended(TOKENS[16:])) == 16
    assert pool.match(paged.Prefix(TOKENS, extras=[(20, 2, bytes([7] * 32))])) == 64
    pool.erase(seq)

    with pytest.raises(TypeError, match="keys are bytes"):
        paged.Prefix(keys=bytes(64), page_size=16).extended([1])
    with pytest.raises(OverflowError):
        first.extended([-1])
    assert len(first.extended([])) == 10


def test_published_pages_survive_their_sequence(pool):
    prefix = paged.Prefix(TOKENS)
    pool.erase(published(pool, prefix))
    counts = pool.counts()
    assert counts.n_cached == 4 and counts.n_free == 60
    assert pool.match(prefix) == 64
    assert pool.start([(prefix, 0)])[0].n_shared == 64


@pytest.mark.parametrize("make", [
    lambda salt, extras: paged.Prefix(TOKENS, salt=salt, extras=extras),
    lambda salt, extras: paged.Prefix(iter(TOKENS), salt=salt, extras=iter(extras)),
])
def test_salt_and_extras_are_part_of_the_identity(pool, make):
    salts = [None, paged.salt("model", "tenant a"), paged.salt("model", "tenant b")]
    images = [[], [(20, 5, hashlib.sha256(b"image").digest())], [(20, 5, hashlib.sha256(b"other").digest())],
              [[20, 6, hashlib.sha256(b"image").digest()]]]
    prefixes = [make(salt, extras) for salt in salts for extras in images]
    for i, prefix in enumerate(prefixes):
        # Without the image, and up to its page, the prefixes of one salt are equal.
        assert pool.match(prefix) == (0 if i % 4 == 0 else 16)
        published(pool, prefix)
        assert pool.match(prefix) == 64


def test_keys(pool):
    keys = b"".join(hashlib.sha256(bytes([i])).digest() for i in range(3))
    prefix = paged.Prefix(keys=keys, page_size=16)
    assert len(prefix) == 48
    published(pool, prefix)
    assert pool.match(prefix) == 48
    assert pool.match(paged.Prefix(keys=keys[:64] + bytes(32), page_size=16)) == 32
    entry = pool.client.prefixes("test")[0]
    with pytest.raises(paged.NotFoundError):
        pool.prefix_tokens(entry["page"], entry["serial"])


@pytest.mark.parametrize("page_size", [15, 512])
def test_keys_of_another_page_size(pool, page_size):
    """The library would read a key for each page of the pool, past the end of the bytes."""
    prefix = paged.Prefix(keys=bytes(32 * 8), page_size=page_size)
    seq, = pool.create(1, 512)
    batch = pool.batch()
    for call in (lambda: pool.match(prefix), lambda: pool.wait_prefix(prefix, 16, 0), lambda: pool.pin(prefix, 1),
                 lambda: pool.start([(prefix, 16)]), lambda: pool.publish(seq, prefix),
                 lambda: batch.publish([seq], [prefix])):
        with pytest.raises(paged.InvalidError, match=f"keys of pages of {page_size} tokens; .* pool test is 16"):
            call()
    assert pool.read(seq).published == 0


def test_publish_of_several_sequences(pool):
    a, b, c = pool.create(3, 32)
    one, two = paged.Prefix(TOKENS[:32]), paged.Prefix(TOKENS[16:48])
    pool.publish([a, b], [one, two])
    pool.publish([c], one)
    pool.client.ping()
    assert pool.match(one) == pool.match(two) == 32
    # The pages of a stand for the prefix; those of c stay private.
    assert pool.read(c).published == 32
    assert set(pool.page_table(a)).isdisjoint(pool.page_table(c))


def test_publish_errors(client, pool):
    seq, = pool.create(1, 16)
    with pytest.raises(paged.CapacityError):
        pool.publish(seq, paged.Prefix(TOKENS))
    stale, = pool.create()
    pool.erase(stale)
    with pytest.raises(paged.StaleError):
        pool.publish(stale, paged.Prefix(TOKENS[:16]))
    with pytest.raises(paged.InvalidError):
        pool.publish(seq, paged.Prefix([0xFFFFFFFF] * 16))


def test_pool_that_publishes_nothing(start_daemon):
    daemon = start_daemon("pool test { layers = 1\n kv-heads = 1\n head-dim = 16\n pages = 8\n publish = no\n }")
    with daemon.connect() as client:
        pool = client.pool("test")
        assert not pool.publishes
        seq, = pool.create(1, 16)
        for call in (lambda: pool.publish(seq, paged.Prefix(TOKENS[:16])),
                     lambda: pool.wait_prefix(paged.Prefix(TOKENS), 16, 60)):
            with pytest.raises(paged.UnsupportedError):
                call()


def test_wait_prefix(pool):
    prefix = paged.Prefix(TOKENS)
    with pytest.raises(paged.TimedOutError, match="fewer than 64 tokens of the prefix are published after 0.01 s"):
        pool.wait_prefix(prefix, 64, 0.01)
    with pytest.raises(paged.LimitError):
        pool.wait_prefix(prefix, 80, 0)
    published(pool, prefix)
    pool.wait_prefix(prefix, 70, 0)


def test_pin(client, pool):
    prefix = paged.Prefix(TOKENS)
    assert pool.pin(prefix, 60) == 0
    pool.erase(published(pool, prefix))
    assert pool.pin(prefix, 60) == 64
    assert [entry["pinned"] for entry in client.prefixes("test")] == [True] * 4
    assert pool.pin(prefix, 0) == 64
    assert [entry["pinned"] for entry in client.prefixes("test")] == [False] * 4
    pool.erase(published(pool, paged.Prefix(range(1000, 1512))))
    with pytest.raises(paged.LimitError):
        pool.pin(paged.Prefix(range(1000, 1512)), 60)


def test_prefix_pages(client, pool):
    prefix = paged.Prefix(TOKENS)
    assert pool.prefix_pages(prefix) == ([], [])
    seq = published(pool, prefix)
    pages, serials = pool.prefix_pages(prefix)
    assert pages == pool.page_table(seq)[:4]
    assert {entry["page"]: entry["serial"] for entry in client.prefixes("test")} == dict(zip(pages, serials))
    assert pool.prefix_pages(paged.Prefix(TOKENS[:40])) == (pages[:2], serials[:2])
    assert pool.prefix_pages(paged.Prefix([])) == ([], [])
    with pytest.raises(TypeError):
        pool.prefix_pages(TOKENS)


def test_hold(client, pool):
    """What is held stays while the pool is filled, and is cached again afterwards."""
    prefix = paged.Prefix(TOKENS)
    pool.erase(published(pool, prefix))
    pages, serials = pool.prefix_pages(prefix)
    hold = pool.hold(pages[::-1], serials[::-1])
    assert pool.page_table(hold) == pages[::-1]
    info = pool.read(hold)
    assert info.hold and not info.frozen
    assert [entry["state"] for entry in client.sequences("test")] == [2]
    filling = pool.create(2, [512, 448])
    with pytest.raises(paged.FullError, match="1 pages requested, 0 free .*holds keep 4"):
        pool.create(1, 1)
    assert pool.match(prefix) == 64
    batch = pool.batch()
    with pytest.raises(paged.PermissionDeniedError, match="is a hold, whose pages have no order"):
        batch.plan([hold], 1, 64, no_append=True)
    batch.plan(None, 1, 64, pages=[pages], no_append=True)
    with pytest.raises(paged.PermissionDeniedError, match="is a hold, which can only be erased"):
        pool.reserve(hold, 80)
    pool.erase(hold)
    assert pool.counts().n_cached == 4
    pool.create(1, 1)
    assert pool.match(prefix) == 48
    pool.erase(filling)
    assert pool.check().holds


def test_hold_errors(pool):
    prefix = paged.Prefix(TOKENS)
    pool.erase(published(pool, prefix))
    pages, serials = pool.prefix_pages(prefix)
    with pytest.raises(ValueError, match="serials has 3 elements for 4 pages"):
        pool.hold(pages, serials[:3])
    with pytest.raises(paged.InvalidError, match="a hold has at least one page"):
        pool.hold([], [])
    with pytest.raises(paged.InvalidError, match="is named twice"):
        pool.hold(pages[:1] * 2, serials[:1] * 2)
    with pytest.raises(paged.StaleError):
        pool.hold(pages, [serial + 1 for serial in serials])
    with pytest.raises(paged.RangeError):
        pool.hold([64], [1])
    with pytest.raises(paged.LimitError, match="make several holds"):
        pool.hold([0] * (paged.MAX_HOLD_PAGES + 1), [0] * (paged.MAX_HOLD_PAGES + 1))
    with pytest.raises(paged.LimitError, match="exceeds pin-limit"):
        pool.hold([0] * 17, [0] * 17)
    assert pool.counts().n_cached == 4


def test_two_processes(daemon, worker):
    """A process publishes a prompt; another one waits for it, starts on it, and keeps it when the first is killed."""
    first = worker("""
        import paged
        tokens = [7 * i % 1000 for i in range(70)]
        client = paged.connect(threads=1)
        pool = client.pool("test")
        seq, = pool.create(1, 80)
        print("ready")
        input()
        pool.publish(seq, paged.Prefix(tokens, salt=paged.salt("model")))
        client.ping()
        print(pool.page_table(seq)[:4])
        input()
    """, PAGED_RUNTIME_DIR=str(daemon.runtime_dir))
    assert first.line() == "ready"
    with daemon.connect() as client:
        pool = client.pool("test")
        prefix = paged.Prefix(TOKENS, salt=paged.salt("model"))
        assert pool.match(prefix) == 0
        first.go_on()
        pool.wait_prefix(prefix, 64, 60)
        seq, n_shared = pool.start([(prefix, 80)])[0]
        assert n_shared == 64
        assert str(pool.page_table(seq)[:4]) == first.line()
        with pytest.raises(paged.PermissionDeniedError):
            client.erase(seq - 1)
        first.kill()
        pool.wait_free(64 - 5, 60)
        assert pool.counts() == (64, 59, 5, 0, 0)
        assert pool.match(prefix) == 64
        assert client.check("test").holds
