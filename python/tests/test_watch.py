# SPDX-License-Identifier: Apache-2.0
"""Watches of the index of published pages, from another process too; clients that map no pages."""
import gc
import hashlib
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest

import paged

TOKENS = [7 * i % 1000 for i in range(70)]


def publish(pool, prefix):
    """A sequence of this session that has published the prefix."""
    seq, = pool.create(1, len(prefix))
    pool.publish(seq, prefix)
    pool.client.ping()      # a publish is sent without waiting for the reply
    return seq


def small_pool(**settings):
    """A configuration with a pool of small pages."""
    lines = [f"{name.replace('_', '-')} = {value}" for name, value in settings.items()]
    return "\n".join(["pool test {", "layers = 1", "kv-heads = 1", "head-dim = 4", "dtype = f32", *lines, "}"])


def test_changes(pool):
    with pool.watch() as watch:
        assert watch.pool is pool and not watch.closed
        assert watch.next(timeout=0) == []
        begin = watch.info().position
        seq = publish(pool, paged.Prefix(TOKENS))
        changes = watch.next()
        assert [change.number - begin for change in changes] == [1, 2, 3, 4]
        assert [change.kind for change in changes] == [paged.CHANGE_STORED] * 4
        assert [change.page for change in changes] == pool.page_table(seq)[:4]
        assert len({change.serial for change in changes}) == len({change.hash for change in changes}) == 4
        pool.erase(seq)
        pool.client.evict("test", 1)
        removed, = watch.next(timeout=300)
        assert (removed.kind, removed.page, removed.serial) == (paged.CHANGE_REMOVED, changes[3].page,
                                                                changes[3].serial)
        assert watch.info() == (begin + 5, 0, 0)
    assert watch.closed
    watch.close()
    for call in (watch.next, watch.walk, watch.info, lambda: watch.read(0, 1), watch.__enter__):
        with pytest.raises(RuntimeError, match="the watch is closed"):
            call()


def test_repr(pool):
    watch = pool.watch()
    at = watch.info().position
    publish(pool, paged.Prefix(TOKENS))
    assert repr(watch) == f"<paged.Watch of pool test, position {at}, 4 changes behind>"
    assert repr(watch.walk()) == "<iterator over the published pages of pool test>"
    watch.close()
    assert repr(watch) == "<paged.Watch of pool test, closed>"


def test_every_type_has_a_repr(embedded):
    pool = embedded.pool("test")
    batch = pool.batch()
    objects = [embedded, pool, batch, pool.k, pool.watch(), pool.watch().walk(), pool.mod("mask", "causal"),
               batch.mods(mask="causal"), pool.block_mask("causal", 1, 1), paged.Prefix([1]), paged.Rotary(object())]
    names = {type(o).__name__ for o in objects}
    assert names >= {n for n, t in vars(paged).items() if isinstance(t, type) and not issubclass(t, (Exception, tuple))}
    for each in objects:
        assert "object at 0x" not in repr(each)
    embedded.close()
    for each in objects:
        assert "object at 0x" not in repr(each)


def test_changes_in_parts(pool):
    watch = pool.watch()
    begin = watch.info().position
    publish(pool, paged.Prefix(TOKENS))
    assert [change.number - begin for change in watch.next(0, n_max=3)] == [1, 2, 3]
    assert watch.info() == paged.WatchInfo(position=begin + 3, n_behind=1, n_lost=0)
    assert [change.number - begin for change in watch.next(0, n_max=2**32 - 1)] == [4]
    with pytest.raises(ValueError, match="n_max must be at least 1"):
        watch.next(n_max=0)
    with pytest.raises(ValueError, match="timeout: -1 is not between 0"):
        watch.next(timeout=-1)


def test_keys_of_nodes(pool):
    digest = hashlib.sha256(b"image").digest()
    seq = publish(pool, paged.Prefix(TOKENS[:32]))
    other = publish(pool, paged.Prefix(TOKENS[:16], salt=paged.salt("other"), extras=[(3, 4, digest)]))
    engine = publish(pool, paged.Prefix(keys=digest, page_size=16))
    watch = pool.watch()
    nodes = {node.page: node for node in watch.walk()}
    first, second = pool.page_table(seq)
    assert sorted(nodes) == sorted([first, second, *pool.page_table(other), *pool.page_table(engine)])
    assert (nodes[first].parent, nodes[first].parent_serial) == (None, 0)
    assert (nodes[second].parent, nodes[second].parent_serial) == (first, nodes[first].serial)
    assert watch.read(first, nodes[first].serial) == (None, 0, TOKENS[:16], bytes(32), False)
    assert watch.read(page=second, serial=nodes[second].serial) == paged.BlockKey(
        parent=first, parent_serial=nodes[first].serial, tokens=TOKENS[16:32], extra=bytes(32), keyed=False)

    page, = pool.page_table(other)
    # SHA-256 of the salt, and of each extra's place and digest.
    expected = hashlib.sha256(paged.salt("other") + (3).to_bytes(4, "little") + (4).to_bytes(4, "little") + digest)
    assert watch.read(page, nodes[page].serial).extra == expected.digest()
    page, = pool.page_table(engine)
    assert watch.read(page, nodes[page].serial) == (None, 0, None, digest, True)

    # Token ids attached to a key are not part of the identity.
    other_digest = hashlib.sha256(b"attached").digest()
    page, = pool.page_table(publish(pool, paged.Prefix(TOKENS[:16], keys=other_digest, page_size=16)))
    serial = {node.page: node for node in watch.walk()}[page].serial
    assert watch.read(page, serial) == (None, 0, TOKENS[:16], other_digest, True)
    assert pool.match(paged.Prefix(keys=other_digest, page_size=16)) == 16

    pool.start([(paged.Prefix(TOKENS[:32]), 0)])
    assert {node.page: node.hits for node in watch.walk()}[second] == 1
    with pytest.raises(paged.StaleError):
        watch.read(first, nodes[first].serial + 100)
    with pytest.raises(paged.RangeError, match="64"):
        watch.read(64, 1)


def test_a_walk_longer_than_a_part(start_daemon):
    """Walk reads 64 nodes at a time."""
    daemon = start_daemon(small_pool(page_size=1, pages=300))
    with daemon.connect() as client:
        pool = client.pool("test")
        seq = publish(pool, paged.Prefix(range(200)))
        watch = pool.watch()
        assert [node.page for node in watch.walk()] == sorted(pool.page_table(seq))
        walk = watch.walk()
        next(walk)
        watch.close()
        with pytest.raises(RuntimeError, match="the watch is closed"):
            list(walk)


def test_lost_changes(start_daemon):
    """A watch that is more than 65536 changes behind is told, and recovers by a walk."""
    daemon = start_daemon(small_pool(page_size=1, pages=8192, free_pages=0))
    with daemon.connect() as client:
        pool = client.pool("test")
        watch = pool.watch()
        for i in range(9):
            pool.erase(publish(pool, paged.Prefix([i, *range(8191)])))
        with pytest.raises(paged.StaleError, match="lost"):
            watch.next(0)
        assert watch.info().n_lost > 0 and watch.info().n_behind == 0
        assert len(list(watch.walk())) == 8192
        client.evict("test", 1)
        assert [change.kind for change in watch.next(300)] == [paged.CHANGE_REMOVED]


def test_a_waiting_thread_is_woken(pool):
    found = []
    watch = pool.watch()
    thread = threading.Thread(target=lambda: found.extend(watch.next(timeout=300)))
    thread.start()
    while True:
        # The watch is busy as soon as the thread waits.
        try:
            watch.info()
        except RuntimeError as error:
            assert "one thread at a time" in str(error)
            break
    with pytest.raises(RuntimeError, match="calls are inside"):
        pool.close()
    publish(pool, paged.Prefix(TOKENS[:16]))
    thread.join()
    assert [change.kind for change in found] == [paged.CHANGE_STORED]


def test_interrupt():
    """A wait without a limit ends with a signal."""
    program = textwrap.dedent("""
        import os, signal, threading, paged
        client = paged.embedded({"name": "test", "n_layers": 1, "n_kv_heads": 1, "k_dim": 4, "dtype": "f32",
                                 "n_pages": 4})
        watch = client.pool("test").watch()
        signal.signal(signal.SIGINT, signal.default_int_handler)    # background jobs of shells ignore the signal
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            watch.next()
        except KeyboardInterrupt:
            print("interrupted", watch.next(0))
    """)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert result.stdout == "interrupted []\n"


def test_life(client):
    pool = client.pool("test")
    watch = pool.watch()
    reference = weakref.ref(watch)
    walk = watch.walk()
    del watch
    gc.collect()
    assert reference() is not None      # the walk needs it
    assert list(walk) == []
    del walk
    gc.collect()
    assert reference() is None
    watch = pool.watch()
    pool.close()
    assert watch.closed
    with pytest.raises(RuntimeError, match="the pool is closed"):
        watch.next(0)
    del watch
    client.pool("test").watch()         # freed while its pool is open


def test_a_pool_that_publishes_nothing(start_daemon):
    daemon = start_daemon(small_pool(pages=4, publish="no"))
    with daemon.connect() as client, pytest.raises(paged.UnsupportedError):
        client.pool("test").watch()


def test_an_observer_without_pages(daemon):
    """What a router needs: no session, no pages in its address space."""
    with daemon.connect() as client, daemon.connect(observer=True, tables_only=True) as router:
        pool, seen = client.pool("test"), router.pool("test")
        watch = seen.watch()
        prefix = paged.Prefix(TOKENS)
        seq = publish(pool, prefix)
        assert len(watch.next(timeout=300)) == 4
        assert seen.match(prefix) == 64
        assert seen.page_table(seq) == pool.page_table(seq)
        assert seen.counts() == pool.counts() and seen.check().holds
        with pytest.raises(paged.Error, match="tables"):
            seen.batch()
        with pytest.raises(BufferError, match="opened with tables_only"):
            seen.k.__dlpack__()
        daemon.kill()
        with pytest.raises(paged.GoneError):
            while True:
                watch.next(timeout=300)
