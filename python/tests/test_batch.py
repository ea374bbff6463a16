# SPDX-License-Identifier: Apache-2.0
"""Batches: plans from Python arguments, their errors, tables, forks, marks; closing; threads."""
import array
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import paged
import tensors
from tensors import Tensor, gauss_tensor

POOL = {"name": "pool", "n_layers": 1, "n_kv_heads": 1, "k_dim": 4, "dtype": "f32", "n_pages": 32, "page_size": 4}


@pytest.fixture
def pool() -> Iterator[paged.Pool]:
    with paged.embedded(POOL, threads=1) as client, client.pool("pool") as made:
        yield made
        gc.collect()


@pytest.fixture
def batch(pool: paged.Pool) -> Iterator[paged.Batch]:
    with pool.batch() as made:
        yield made


def vectors(n: int, seed: int = 0) -> Tensor:
    return gauss_tensor((n, 1, 4), "f32", seed)


def run(batch: paged.Batch, q: Tensor, **keywords: Any) -> list[float]:
    out = Tensor(q.shape)
    batch.attention(0, q, out, **keywords)
    return out.values()


# ------------------------------------------------------------------------------- plans

@pytest.mark.parametrize("seqs", [list, tuple, lambda ids: array.array("Q", ids), lambda ids: iter(ids),
                                  lambda ids: Tensor((2,), "i64", ids)])
@pytest.mark.parametrize("lengths", [list, lambda n: array.array("i", n), lambda n: Tensor((2,), "i32", n),
                                     lambda n: Tensor((2,), "i64", n)])
def test_arguments(batch: paged.Batch, seqs: Any, lengths: Any) -> None:
    ids = batch.pool.create(2, 8)
    batch.plan(seqs(ids), lengths([3, 5]), kv_len=lengths([3, 5]))
    assert (batch.n_rows, batch.total_q) == (2, 8)
    batch.append(0, vectors(8), vectors(8, 1))
    assert len(run(batch, vectors(8, 2))) == 32


def test_one_number_for_all(batch: paged.Batch) -> None:
    seqs = batch.pool.create(3, 4)
    batch.plan(seqs, 2, 4)
    assert (batch.n_rows, batch.total_q) == (3, 6)
    batch.plan(seqs[0], 1, 1)
    assert (batch.n_rows, batch.total_q) == (1, 1)
    batch.plan(seqs=seqs, q_len=[1, 2, 0], kv_len=4)
    assert batch.total_q == 3


def test_kv_first(batch: paged.Batch) -> None:
    """Attention from a token on equals a mask mod that hides the keys before it."""
    [seq] = batch.pool.create(1, 20)
    batch.plan(seq, 20, 20)
    batch.append(0, vectors(20), vectors(20, 1))
    q = vectors(1, 2)
    batch.plan(seq, 1, 20)
    expected = run(batch, q, mods=batch.mods(mask="kv_idx >= 7"))
    assert run(batch, q) != expected
    for first in (7, [7], array.array("I", [7])):
        batch.plan(seq, 1, 20, kv_first=first)
        assert run(batch, q) == pytest.approx(expected, abs=1e-6)
    pages = [2**32 - 1, *batch.pool.page_table(seq)[1:]]
    batch.plan(None, 1, 20, kv_first=7, pages=[pages])
    assert run(batch, q) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(paged.RangeError):
        batch.plan(None, 1, 20, kv_first=3, pages=[pages])
    with pytest.raises(paged.InvalidError, match="kv_first 21 exceeds its kv_len 20"):
        batch.plan(seq, 1, 20, kv_first=21)
    with pytest.raises(ValueError):
        batch.plan(seq, 1, 20, kv_first=[1, 2])


def test_many_rows(pool: paged.Pool) -> None:
    """More rows than lie on the stack."""
    with pool.batch(max_rows=32) as batch:
        seqs = pool.create(32, 4)
        batch.plan(seqs, list(range(5)) + [4] * 27, 4)
        assert (batch.n_rows, batch.total_q) == (32, 10 + 27 * 4)
        with pytest.raises(paged.LimitError, match="33 rows"):
            batch.plan(seqs + seqs[:1], 0, 4)
        assert batch.n_rows == 0


@pytest.mark.parametrize(("arguments", "error", "message"), [
    (({"seqs": [1, 2], "q_len": [1, 2, 3], "kv_len": 4}), ValueError, "q_len has 3 numbers; 2 are needed"),
    (({"seqs": [1, 2], "q_len": 1, "kv_len": []}), ValueError, "kv_len has 0 numbers; 2 are needed"),
    (({"seqs": [1, 2], "q_len": 1, "kv_len": 1, "b": [1]}), ValueError, "b has 1 numbers; 2 are needed"),
    (({"seqs": [1, 2], "q_len": 1, "kv_len": 1, "q_base": [1]}), ValueError, "q_base has 1 elements for 2 rows"),
    (({"seqs": [1, 2], "q_len": 1, "kv_len": 1, "no_append": [True]}), ValueError,
     "no_append has 1 elements for 2 rows"),
    (({"seqs": [1, -2], "q_len": 1, "kv_len": 1}), OverflowError, "seqs"),
    (({"seqs": [1], "q_len": -1, "kv_len": 1}), OverflowError, "q_len"),
    (({"seqs": [1], "q_len": 1, "kv_len": 2**32}), OverflowError, "kv_len"),
    (({"seqs": [1], "q_len": 1, "kv_len": 1, "q_base": 2**63}), OverflowError, "q_base"),
    (({"seqs": ["a"], "q_len": 1, "kv_len": 1}), TypeError, "seqs must be an integer"),
    (({"seqs": [1.5], "q_len": 1, "kv_len": 1}), TypeError, "seqs must be an integer"),
    (({"seqs": [1], "q_len": None, "kv_len": 1}), TypeError, "q_len"),
    (({"seqs": [1], "q_len": 1, "kv_len": 1, "pages": [[0]]}), ValueError, "seqs and pages exclude each other"),
    (({"seqs": None, "q_len": 1, "kv_len": 1, "pages": 3}), TypeError, "pages must be a list"),
    (({"seqs": [1], "q_len": 1}), TypeError, "missing required argument 'kv_len'"),
    (({"seqs": [1], "q_len": 1, "kv_len": 1, "rows": 1}), TypeError, "unexpected keyword argument 'rows'"),
    (({"seqs": [1], "q_len": 1, "kv_len": 1, "stream": "s"}), TypeError, "stream must be an int or an object"),
    (({"seqs": [1], "q_len": 1, "kv_len": 1, "stream": 5}), paged.UnsupportedError, "stream"),
], ids=lambda value: str(value)[:60])
def test_refused(batch: paged.Batch, arguments: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        batch.plan(**arguments)


def test_statuses(batch: paged.Batch) -> None:
    seq, = batch.pool.create(1, 4)
    with pytest.raises(paged.CapacityError):
        batch.plan([seq], 1, 5)
    with pytest.raises(paged.StaleError):
        batch.plan([seq + (1 << 32)], 1, 1)
    batch.plan([seq], 1, 4)
    with pytest.raises(paged.RangeError):
        batch.plan(None, 1, 4, pages=[[32]])
    assert batch.n_rows == 0
    with pytest.raises(paged.InvalidError, match="no plan"):
        batch.attention(0, vectors(1), vectors(1))
    batch.pool.erase(seq)
    with pytest.raises(paged.StaleError):
        batch.plan([seq], 1, 1)


def test_pages(batch: paged.Batch) -> None:
    """Explicit pages read what the sequences wrote."""
    seqs = batch.pool.create(3, 12)
    batch.plan(seqs, [10, 1, 6], [10, 1, 6])
    batch.append(0, vectors(17, 1), vectors(17, 2))
    want = run(batch, vectors(17, 3))
    tables = [batch.pool.page_table(seq) for seq in seqs]
    for pages in (tables, [array.array("I", table) for table in tables],
                  [Tensor((len(table),), "i32", table) for table in tables]):
        batch.plan(None, [10, 1, 6], [10, 1, 6], pages=pages, no_append=True)
        assert run(batch, vectors(17, 3)) == want
    batch.plan(None, [1, 0], [12, 0], pages=[tables[0], []])
    assert batch.n_rows == 2
    with pytest.raises(paged.CapacityError):
        batch.plan(None, 1, 13, pages=[tables[0]])


def test_q_base(batch: paged.Batch) -> None:
    """With q_base, the causal limit of a query is its own."""
    seq, = batch.pool.create(1, 8)
    batch.plan([seq], 8, 8)
    batch.append(0, vectors(8, 1), vectors(8, 2))
    whole = run(batch, vectors(8, 3))
    q = Tensor((2, 1, 4), "f32", vectors(8, 3).values()[8:16])
    for q_base in (2, [2], array.array("q", [2])):
        batch.plan([seq], 2, 8, q_base=q_base)
        assert run(batch, q) == pytest.approx(whole[8:16], abs=1e-6)
    batch.plan([seq], 2, 8, q_base=-10)
    assert run(batch, q) == [0.0] * 8


def test_no_append(batch: paged.Batch) -> None:
    a, b = batch.pool.create(2, 4)
    batch.plan([a, b], 4, 4)
    batch.append(0, vectors(8, 1), vectors(8, 2))
    before = run(batch, vectors(8, 3))
    batch.plan([a, b], 4, 4, no_append=[False, True])
    batch.append(0, vectors(8, 4), vectors(8, 5))
    after = run(batch, vectors(8, 3))
    assert after[:16] != before[:16] and after[16:] == before[16:]


def test_reserve_ahead(pool: paged.Pool) -> None:
    with pool.batch(reserve_ahead=8) as batch:
        seq, = pool.create(1)
        for length in range(1, 40):
            batch.plan([seq], 1, length)
        assert pool.read(seq).capacity >= 39


def test_pages_missing(pool: paged.Pool) -> None:
    with pool.batch(reserve_ahead=1) as batch:
        seqs = pool.create(3)
        with pytest.raises(paged.FullError):
            batch.plan(seqs, 1, [64, 80, 4])
        missing = batch.pages_missing()
        assert missing[0] == 0 and missing[1] > 0 and len(missing) == 3
        batch.plan([seq for seq, n in zip(seqs, missing, strict=True) if n == 0], 1, [64, 4])
        assert batch.pages_missing() == [0, 0]


def test_q_len_of_idle_rows(batch: paged.Batch) -> None:
    a, b = batch.pool.create(2, 4)
    batch.plan([a, b], [4, 0], [4, 0])
    batch.append(0, vectors(4, 1), vectors(4, 2))
    assert len(run(batch, vectors(4, 3))) == 16


# ------------------------------------------------------------------------------ tables

def test_tables(batch: paged.Batch) -> None:
    seqs = batch.pool.create(3, [9, 4, 1])
    batch.plan(seqs, 0, [9, 4, 0])
    pages = [batch.pool.page_table(seq) for seq in seqs]
    indptr, indices, last = batch.tables_csr()
    assert [table.typecode for table in (indptr, indices, last)] == ["i", "i", "i"]
    assert (list(indptr), list(last)) == ([0, 3, 4, 4], [1, 4, 0])
    assert list(indices) == pages[0] + pages[1]
    table, kv_len = batch.tables_padded(4)
    assert list(kv_len) == [9, 4, 0]
    assert list(table) == pages[0] + [0] + pages[1] + [0] * 3 + [0] * 4
    with pytest.raises(paged.LimitError):
        batch.tables_padded(2)
    with pytest.raises(OverflowError):
        batch.tables_padded(-1)


def test_tables_without_plan(batch: paged.Batch) -> None:
    with pytest.raises(paged.InvalidError, match="no plan"):
        batch.tables_csr()
    with pytest.raises(paged.InvalidError, match="no plan"):
        batch.tables_padded(4)


# ----------------------------------------------------------- forks, publishing, marks

def test_fork(batch: paged.Batch) -> None:
    parent, = batch.pool.create(1, 8)
    batch.plan([parent], 7, 7)
    k, v = vectors(7, 1), vectors(7, 2)
    batch.append(0, k, v)
    want = run(batch, vectors(7, 3))
    children = batch.fork([parent] * 20, 7)
    assert len(set(children)) == 20 and parent not in children
    batch.plan(children[19], 7, 7, no_append=True)
    assert run(batch, vectors(7, 3)) == want
    assert batch.pool.page_table(children[0])[0] == batch.pool.page_table(parent)[0]
    assert batch.pool.page_table(children[0])[1] != batch.pool.page_table(parent)[1]
    with pytest.raises(paged.PermissionDeniedError):
        batch.plan([parent], 4, 4)
        batch.append(0, vectors(4), vectors(4))
    one = batch.fork(parent, n_tokens=4)
    assert len(one) == 1 and batch.pool.read(one[0]).capacity == 4
    with pytest.raises(paged.CapacityError):
        batch.fork([parent], 100)
    with pytest.raises(ValueError, match="n_tokens has 2 numbers; 1 are needed"):
        batch.fork([parent], [1, 2])


def test_publish(batch: paged.Batch) -> None:
    seq, = batch.pool.create(1, 8)
    prefix = paged.Prefix(range(8))
    assert batch.pool.match(prefix) == 0
    batch.plan([seq], 8, 8)
    batch.append(0, vectors(8, 1), vectors(8, 2))
    batch.publish([seq], prefix)
    batch.pool.client.ping()
    assert batch.pool.match(prefix) == 8
    started, = batch.pool.start([(prefix, 12)])
    assert started.n_shared == 8
    with pytest.raises(TypeError):
        batch.publish([seq], 3)


def test_marks(pool: paged.Pool, batch: paged.Batch) -> None:
    mark = batch.mark()
    assert len(mark) == 256
    with pool.batch() as other:
        other.wait(mark)
        with pytest.raises(paged.InvalidError):
            other.wait(bytes(256))
        with pytest.raises(ValueError, match="mark has 3 bytes; a mark has 256"):
            other.wait(b"abc")
        with pytest.raises(TypeError):
            other.wait("mark")
        other.finish()


def test_validate(batch: paged.Batch) -> None:
    seq, = batch.pool.create(1, 8)
    batch.plan([seq], 8, 8)
    batch.validate()
    batch.pool.truncate(seq, 0)
    with pytest.raises(paged.StaleError):
        batch.validate()


# --------------------------------------------------------------------- life and threads

def test_close(pool: paged.Pool) -> None:
    batch = pool.batch(max_rows=2)
    assert repr(batch) == "<paged.Batch of pool pool, 0 rows>" and batch.pool is pool and not batch.closed
    batch.close()
    batch.close()
    assert batch.closed and repr(batch) == "<paged.Batch, closed>"
    for call in (batch.finish, batch.validate, batch.mark, batch.tables_csr, batch.pages_missing, batch.__enter__,
                 lambda: batch.plan([1], 1, 1), lambda: batch.append(0, vectors(1)), lambda: batch.fork([1], 1),
                 lambda: batch.attention(0, vectors(1)), lambda: batch.gather(0, vectors(1)),
                 lambda: batch.wait(bytes(256)),
                 lambda: batch.merge(vectors(1), vectors(1), vectors(1), vectors(1))):
        with pytest.raises(RuntimeError, match="the batch is closed"):
            call()
    with pytest.raises(TypeError, match="cannot create 'paged.Batch' instances"):
        type(batch)()


@pytest.mark.parametrize("outer", ["pool", "client"])
def test_close_of_the_outer_object(outer: str) -> None:
    client = paged.embedded(POOL, threads=1)
    pool = client.pool("pool")
    batch, dropped = pool.batch(), pool.batch()
    (pool if outer == "pool" else client).close()
    assert batch.closed
    with pytest.raises(RuntimeError, match=f"the {outer} is closed"):
        batch.finish()
    del dropped
    gc.collect()
    batch.close()
    client.close()


def test_weak_reference(pool: paged.Pool) -> None:
    batch = pool.batch()
    alive = weakref.ref(batch)
    assert alive() is batch
    del batch
    assert alive() is None


def test_params(pool: paged.Pool) -> None:
    with pytest.raises(paged.LimitError):
        pool.batch(max_rows=5000)
    with pytest.raises(TypeError):
        pool.batch(3)
    with pytest.raises(OverflowError):
        pool.batch(max_rows=-1)


def test_one_thread_at_a_time(pool: paged.Pool, batch: paged.Batch) -> None:
    """While a thread is inside, others get an error, and nothing can be closed."""
    entered, go = threading.Event(), threading.Event()

    class Slow(Tensor):
        def __dlpack__(self, **keywords: Any) -> Any:
            entered.set()
            go.wait()
            return super().__dlpack__(**keywords)

    seq, = pool.create(1, 4)
    batch.plan([seq], 4, 4)
    q, out = Slow((4, 1, 4), "f32", [0.0] * 16), Tensor((4, 1, 4))
    thread = threading.Thread(target=lambda: batch.attention(0, q, out))
    thread.start()
    entered.wait()
    for call in (batch.finish, batch.close, batch.mark, batch.tables_csr, lambda: batch.plan([seq], 1, 1),
                 lambda: batch.attention(0, q, out)):
        with pytest.raises(RuntimeError, match="the batch is inside another call: a batch is used by one thread at "):
            call()
    for close in (pool.close, pool.client.close):
        with pytest.raises(RuntimeError, match="cannot be closed"):
            close()
    go.set()
    thread.join()
    batch.finish()
    assert not batch.closed and not any(value != value for value in out.values())


def test_two_batches_at_once(pool: paged.Pool) -> None:
    def work(seed: int) -> None:
        with pool.batch() as batch:
            seq, = pool.create(1, 16)
            for _ in range(50):
                batch.plan([seq], 16, 16)
                batch.append(0, vectors(16, seed), vectors(16, seed + 1))
                results.setdefault(seed, run(batch, vectors(16, seed + 2)))
                assert results[seed] == run(batch, vectors(16, seed + 2))

    results: dict[int, list[float]] = {}
    threads = [threading.Thread(target=work, args=(seed,)) for seed in (0, 10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4


def test_fork_of_the_process(pool: paged.Pool, batch: paged.Batch) -> None:
    seq, = pool.create(1, 4)
    batch.plan([seq], 4, 4)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (batch.finish, lambda: batch.plan([seq], 4, 4), lambda: batch.fork([seq], 1), batch.mark,
                         lambda: batch.attention(0, vectors(4), vectors(4))):
                with pytest.raises(paged.ForkError):
                    call()
            batch.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    batch.plan([seq], 4, 4)


def test_nothing_is_lent(batch: paged.Batch) -> None:
    test_arguments(batch, list, list)
    gc.collect()
    assert not tensors.lent
