# SPDX-License-Identifier: Apache-2.0
"""Pools: attributes, geometry, counts, close."""
import gc
import weakref

import pytest

import paged
from conftest import POOL


def test_attributes(client, pool):
    assert pool.client is client
    assert not pool.closed
    assert (pool.name, pool.backend, pool.device, pool.model) == ("test", "host", None, "")
    assert (pool.n_layers, pool.n_kv_heads, pool.k_dim, pool.v_dim, pool.v_in_k) == (2, 2, 16, 16, False)
    assert (pool.dtype, pool.page_size, pool.n_pages, pool.n_slots, pool.max_length) == ("f32", 16, 64, 32, 512)
    # Two layers of K and V: 2 heads, 16 tokens, 16 elements of 4 bytes.
    assert pool.page_bytes == 2 * 2 * 2 * 16 * 16 * 4
    assert pool.size >= 64 * pool.page_bytes
    assert pool.publishes
    assert pool.isa in ("generic", "avx2", "avx512", "avx512bf16", "amx")
    assert pool.number == 0
    assert repr(pool) == "<paged.Pool 'test' f32, 2 layers, 2 KV heads, dim 16, 64 pages of 16 tokens>"
    with pytest.raises(AttributeError):
        pool.n_pages = 5


def test_geometries():
    pools = [
        {**POOL, "name": "mla", "k_dim": 576, "v_dim": 512, "v_in_k": True, "dtype": "bf16"},
        {**POOL, "name": "bytes", "dtype": "i8", "page_size": 256, "n_pages": 4, "max_length": None},
        {**POOL, "name": "least", "dtype": "e4m3", "page_size": None, "n_slots": None, "max_length": None},
    ]
    with paged.embedded(pools, threads=1) as client:
        mla, whole, least = [client.pool(name) for name in ("mla", "bytes", "least")]
        assert (mla.k_dim, mla.v_dim, mla.v_in_k, mla.dtype, mla.number) == (576, 512, True, "bf16", 0)
        assert (whole.dtype, whole.page_size, whole.max_length, whole.number) == ("i8", 256, 1024, 1)
        assert (least.dtype, least.page_size, least.n_slots, least.number) == ("e4m3", 16, 1024, 2)
        # Sequences of several pools in one request.
        seqs = [pool.create()[0] for pool in (mla, whole, least)]
        client.reserve(seqs, [16, 300, 20], 0)
        assert [len(client.page_table(seq)[1]) for seq in seqs] == [1, 2, 2]
        with pytest.raises(paged.InvalidError, match="belongs to pool number 1, not to pool mla"):
            mla.reserve(seqs, 100)
        client.erase(seqs)


def test_any_mapping_describes_a_pool():
    class Parameters:
        def keys(self):
            return list(POOL)

        def __getitem__(self, name):
            return POOL[name]

        def __len__(self):
            return len(POOL)

        def __iter__(self):
            return iter(POOL)

    with paged.embedded((Parameters(),), threads=1) as client:
        assert client.pool("test").n_pages == 64


def test_pool_of_a_gpu_that_is_not_there(monkeypatch):
    with pytest.raises(paged.UnsupportedError):
        paged.embedded({**POOL, "backend": "cuda", "device": "GPU-00000000-0000-0000-0000-000000000000"})


def test_counts(client, pool):
    assert pool.counts() == (64, 64, 0, 0, 0)
    a, b = pool.create(2, [16, 40])
    counts = pool.counts()
    assert counts == paged.PoolCounts(n_pages=64, n_free=60, n_referenced=4, n_quarantined=0, n_cached=0)
    assert counts._asdict()["n_free"] == 60
    check = pool.check()
    assert check.holds and check.text == "" and check.n_referenced == 4 and check.n_sequences == 2
    pool.erase([a, b])
    pool.wait_free(64, 0)


def test_close(client, pool):
    seq, = pool.create(1, 16)
    pool.close()
    assert pool.closed and not client.closed
    assert "closed" in repr(pool)
    assert pool.n_pages == 64 and pool.name == "test"
    pool.close()
    for call in (pool.counts, pool.create, lambda: pool.read(seq), lambda: pool.reserve(seq, 1), pool.check,
                 pool.__enter__, lambda: pool.match(paged.Prefix([1])), lambda: pool.start([]),
                 lambda: pool.wait_free(1, 1)):
        with pytest.raises(RuntimeError, match="the pool is closed"):
            call()
    # Sequences belong to the session, not to the pool object.
    again = client.pool("test")
    assert again.read(seq).capacity == 16
    again.erase(seq)


def test_with(client):
    with client.pool("test") as pool:
        pool.create()
    assert pool.closed


def test_pool_keeps_its_client(embedded):
    client = weakref.ref(paged.embedded(POOL, threads=1))
    assert client() is None
    pool = paged.embedded(POOL, threads=1).pool("test")
    gc.collect()
    seq, = pool.create(1, 16)
    assert pool.read(seq).capacity == 16
    client = weakref.ref(pool.client)
    del pool
    assert client() is None


def test_two_objects_of_one_pool(client):
    one, two = client.pool("test"), client.pool("test")
    seq, = one.create(1, 16)
    one.close()
    assert two.page_table(seq) == two.page_table(seq) != []
