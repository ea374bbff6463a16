# SPDX-License-Identifier: Apache-2.0
"""Attention over paged.torch.PagedAttention: the caches of a caller and the pages of a pool, against float64."""
import gc

import pytest
import torch
from paged_cases import causal, reserve_interleaved, window
from torch.nn.attention.flex_attention import create_block_mask, flex_attention, noop_mask

import paged
from paged.torch.attention import PagedAttention as Ours


def alibi(score, b, h, q_idx, kv_idx):
    return score + (kv_idx - q_idx) * torch.exp2(-(h + 1.0))


class Fixture:
    """Sequences in a PagedAttention, with scattered pages, and their K and V as dense tensors."""

    def __init__(self, dtype, in_place, tensors=None, v_dim=16):
        n_rows, n_q_heads, n_kv_heads, length, dim, self.page_size = 3, 4, 2, 64, 16, 16
        n_pages = n_rows * length // self.page_size + 5
        if tensors is None:
            torch.manual_seed(0)
            geometry = dict(n_layers=2, n_kv_heads=n_kv_heads, k_dim=dim, dtype=dtype) if in_place else {}
            self.attention = Ours(n_pages, self.page_size, n_rows + 1, device="cpu", **geometry)
            reserve_interleaved([self.attention], [length] * n_rows)
            self.q = torch.randn(n_rows, n_q_heads, length, dim).to(dtype)
            self.k = torch.randn(n_rows, n_kv_heads, length, dim).to(dtype)
            self.v = torch.randn(n_rows, n_kv_heads, length, v_dim).to(dtype)
        else:
            self.attention, self.q, self.k, self.v = tensors
        if in_place:
            self.caches = self.attention.caches(1)
        else:
            self.caches = tuple(torch.zeros(1, n_kv_heads, n_pages * self.page_size, size, dtype=dtype)
                                for size in (dim, v_dim))
        positions = torch.arange(length).expand(n_rows, -1)
        self.attention.assign(torch.arange(n_rows), positions, self.k, self.v, *self.caches)

    def paged(self, flex, q, mask_mod, score_mod, rows, kv_len=None):
        """Attention of some rows over the caches; kv_len as tensor."""
        mask = create_block_mask(mask_mod, len(rows), None, q.shape[2], self.k.shape[2], device="cpu",
                                 BLOCK_SIZE=(self.page_size, self.page_size))
        rows = torch.tensor(rows)
        converted = self.attention.convert_logical_block_mask(mask, rows, kv_len, compute_q_blocks=False)
        score_mod = self.attention.get_score_mod(score_mod, kv_len, batch_idx=rows)
        return flex(q, *self.caches, score_mod=score_mod, block_mask=converted, enable_gqa=True)

    def dense(self, dtype, q, mask_mod, score_mod, rows, kv_len=None):
        def mask(b, h, q_idx, kv_idx):
            inside = mask_mod(b, h, q_idx, kv_idx)
            return inside if kv_len is None else inside & (kv_idx < kv_len[b])

        blocks = create_block_mask(mask, len(rows), None, q.shape[2], self.k.shape[2], device="cpu", BLOCK_SIZE=16)
        k, v = self.k[rows].to(dtype), self.v[rows].to(dtype)
        return flex_attention(q.to(dtype), k, v, score_mod=score_mod, block_mask=blocks, enable_gqa=True)

    def check(self, flex, mask_mod, score_mod, rows, kv_len=None, q_len=None):
        q = self.q[rows][:, :, :q_len]
        golden = self.dense(torch.float64, q, mask_mod, score_mod, rows, kv_len)
        eager = self.dense(q.dtype, q, mask_mod, score_mod, rows, kv_len)
        got = self.paged(flex, q, mask_mod, score_mod, rows, kv_len)
        assert got.dtype == q.dtype and torch.isfinite(got).all()
        # PyTorch's own rule: the mean error is at most so many times that of dense eager attention of the same dtype.
        fudge = 10 if q.dtype == torch.float32 else 1.1
        assert (got - golden).abs().mean() <= fudge * (eager - golden).abs().mean()


DTYPES = [torch.float32, torch.bfloat16, torch.float16]


# Each case takes seconds: the types with one pair of mods, the pairs with one type.
CASES = [*((dtype, window, alibi) for dtype in DTYPES), (torch.float32, causal, None),
         (torch.float32, noop_mask, alibi)]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype, mask_mod, score_mod", CASES)
def test_eager_attention_over_the_caches(in_place, dtype, mask_mod, score_mod):
    fixture = Fixture(dtype, in_place)
    fixture.check(flex_attention, mask_mod, score_mod, [0, 1, 2])
    fixture.check(flex_attention, mask_mod, score_mod, [2, 0], torch.tensor([40, 17]))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_attention_over_the_caches(in_place, dtype):
    torch._dynamo.reset()
    fixture = Fixture(dtype, in_place)
    fixture.check(torch.compile(flex_attention), window, alibi, [0, 1, 2])


def decode(b, h, q_idx, kv_idx):
    return q_idx + 40 + b >= kv_idx


def test_eager_attention_with_another_dim_of_v():
    Fixture(torch.float32, False, v_dim=40).check(flex_attention, window, alibi, [0, 1, 2])


@pytest.mark.parametrize("in_place", [False, True])
def test_compiled_decoding(in_place):
    torch._dynamo.reset()
    Fixture(torch.bfloat16, in_place).check(torch.compile(flex_attention), decode, None, [2, 0, 1], q_len=1)


def test_compiled_attention_of_some_rows_to_a_length():
    torch._dynamo.reset()
    fixture = Fixture(torch.float32, True)
    # Without the conversion of full blocks, the keys from 40 to 48 would be attended.
    fixture.check(torch.compile(flex_attention), noop_mask, alibi, [2, 0], torch.tensor([40, 17]))


def test_compiled_attention_follows_pages_that_change():
    torch._dynamo.reset()
    fixture = Fixture(torch.float32, True)
    flex = torch.compile(flex_attention)
    fixture.check(flex, causal, alibi, [0, 1, 2])
    attention, length = fixture.attention, fixture.k.shape[2]
    # The rows return in another order, so that each has other pages.
    attention.erase([1, 0, 2])
    attention.reserve([0, 1, 2], length)
    attention.assign(torch.arange(3), torch.arange(length).expand(3, -1), fixture.k, fixture.v, *fixture.caches)
    fixture.check(flex, causal, alibi, [0, 1, 2])


# The pool's pages.


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_batch_reads_what_assign_wrote(dtype):
    fixture = Fixture(dtype, True)
    rows, attention = [2, 0], fixture.attention
    q = fixture.q[rows]
    with attention.pool.batch() as batch:
        batch.plan([attention.sequences[row] for row in rows], q_len=64, kv_len=64, no_append=True)
        got = batch.attention(1, q, causal=True)
    golden = fixture.dense(torch.float64, q, causal, None, rows)
    eager = fixture.dense(dtype, q, causal, None, rows)
    assert (got - golden).abs().mean() <= (10 if dtype == torch.float32 else 1.1) * (eager - golden).abs().mean()


@pytest.mark.parametrize("dtype", DTYPES)
def test_assign_writes_into_the_pool(dtype):
    fixture = Fixture(dtype, True)
    pages = fixture.attention.page_table
    for pool, dense in (fixture.attention.pool.k, fixture.k), (fixture.attention.pool.v, fixture.v):
        tensor = torch.from_dlpack(pool)
        assert not tensor[0].any()
        for row in range(3):
            got = tensor[1, pages[row, :4]].transpose(0, 1).flatten(1, 2)
            assert torch.equal(got, dense[row])
    k_cache, v_cache = fixture.attention.caches(1)
    assert k_cache.data_ptr() == torch.from_dlpack(fixture.attention.pool.k)[1].data_ptr()
    assert v_cache.data_ptr() == torch.from_dlpack(fixture.attention.pool.v)[1].data_ptr()
    assert k_cache.shape == v_cache.shape


def test_assign_refuses_tensors_that_are_not_the_pools():
    fixture = Fixture(torch.float32, True)
    k_cache, v_cache = fixture.caches
    arguments = torch.tensor([0]), torch.tensor([[0]]), fixture.k[:1, :, :1], fixture.v[:1, :, :1]
    with pytest.raises(RuntimeError, match="k_cache is not a tensor of the pool's pages"):
        fixture.attention.assign(*arguments, k_cache.clone(), v_cache)
    with pytest.raises(RuntimeError, match="v_cache is not a tensor of the pool's pages"):
        fixture.attention.assign(*arguments, k_cache, v_cache.clone())


def test_caches_that_do_not_exist():
    with pytest.raises(RuntimeError, match="only has page tables"):
        Ours(4, 16, 1, device="cpu").caches(0)
    with pytest.raises(IndexError, match="layer 1 is out of range: the pool has 1 layers"):
        Ours(4, 16, 1, device="cpu", n_kv_heads=1, k_dim=16).caches(1)
    with pytest.raises(ValueError, match="K of dim 32 and V of dim 16"):
        Ours(4, 16, 1, device="cpu", n_kv_heads=1, k_dim=32, v_dim=16)
    with pytest.raises(ValueError, match="belong together"):
        Ours(4, 16, 1, device="cpu", n_kv_heads=1)
    with pytest.raises(ValueError, match="torch.int32"):
        Ours(4, 16, 1, device="cpu", n_kv_heads=1, k_dim=16, dtype=torch.int32)
    # Heads of 3 * 2 * 4 bytes are padded to 64.
    with pytest.raises(ValueError, match="no multiple of the 6 elements of a head"):
        Ours(4, 2, 1, device="cpu", n_kv_heads=1, k_dim=3)


def test_a_pool_must_be_the_one_described(embedded):
    pool = embedded.pool("test")
    with pytest.raises(ValueError, match="n_pages is 65, but pool 'test' has 64"):
        Ours(65, 16, 2, device="cpu", pool=pool)
    with pytest.raises(ValueError, match="page_size is 8, but pool 'test' has 16"):
        Ours(64, 8, 2, device="cpu", pool=pool)
    with pytest.raises(ValueError, match="a pool has its own geometry"):
        Ours(64, 16, 2, device="cpu", pool=pool, n_kv_heads=2, k_dim=16)
    if torch.cuda.is_available():
        with pytest.raises(ValueError, match="device is cuda:0, but the pages of pool 'test' are on cpu"):
            Ours(64, 16, 2, pool=pool)
    assert pool.counts().n_referenced == 0
    with pytest.raises(paged.FullError):
        Ours(64, 16, 33, device="cpu", pool=pool)


def test_a_pool_is_shared_with_other_sequences(pool):
    [other] = pool.create(1, 480)
    attention = Ours(64, 16, 2, device="cpu", pool=pool)
    attention.reserve(0, 400)
    # How many pages are free is known; which, only the owner of the pool knows.
    assert attention.empty_pages == [-1] * 9
    with pytest.raises(AssertionError, match="requested 13 pages but there are only 9 empty pages"):
        attention.reserve(1, 200)
    with pytest.raises(AssertionError, match="requested 100 pages but there are only 9 empty pages"):
        attention.reserve(1, 1600)
    with pytest.raises(paged.LimitError, match="512"):
        attention.reserve(1, 513)
    assert not set(attention.page_table[0, :25].tolist()) & set(pool.page_table(other))
    pool.erase(other)
    attention.reserve(1, 200)
    assert pool.counts().n_free == 64 - 25 - 13

    # Collecting the object erases its sequences, and so does close().
    del attention
    gc.collect()
    assert pool.counts().n_free == 64
    with Ours(64, 16, 2, device="cpu", pool=pool) as attention:
        attention.reserve(1, 64)
    assert pool.counts().n_free == 64
    attention.close()
    with pytest.raises(paged.StaleError):
        _ = attention.capacity


def test_attention_over_the_pages_of_a_daemon(daemon, worker):
    # The other process takes every second page, and fills it with NaN.
    other = worker("""
        import paged, sys, torch
        from paged.torch.attention import PagedAttention
        pool = paged.connect(sys.argv[1], threads=1).pool("test")
        attention = PagedAttention(64, 16, 1, "cpu", pool=pool)
        nan = torch.full((1, 2, 16, 16), float("nan"))
        caches = attention.caches(1)
        for page in range(12):
            attention.reserve(0, 16 * page + 16)
            attention.assign(torch.tensor([0]), torch.arange(16)[None] + 16 * page, nan, nan, *caches)
            print(page, flush=True)
            input()
        input()
    """, str(daemon.runtime_dir))
    client = daemon.connect()
    pool = client.pool("test")
    attention = Ours(64, 16, 4, device="cpu", pool=pool)
    for i in range(12):
        assert other.line() == str(i)
        attention.reserve(i % 3, 16 * (i // 3 + 1))
        other.go_on()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4, 64, 16), torch.randn(3, 2, 64, 16), torch.randn(3, 2, 64, 16)
    fixture = Fixture(torch.float32, True, tensors=(attention, q, k, v))
    torch._dynamo.reset()
    fixture.check(torch.compile(flex_attention), window, alibi, [0, 1, 2])
    assert pool.counts().n_free == 64 - 24

    other.kill()
    pool.wait_free(64 - 12, 30)
    attention.reserve(0, 512)

    before = fixture.caches[0].clone()
    daemon.kill()
    with pytest.raises(paged.GoneError):
        attention.reserve(2, 512)
    attention.close()
    # Tensors over the pages of a daemon that has died can still be read.
    torch.testing.assert_close(fixture.caches[0], before, rtol=0, atol=0, equal_nan=True)
    fixture.caches = None
    client.close()


def test_an_own_pool_refuses_to_close_while_its_pages_are_in_use():
    attention = Ours(8, 16, 2, device="cpu", n_kv_heads=2, k_dim=16)
    k_cache, v_cache = attention.caches(0)
    with pytest.raises(BufferError):
        attention.close()
    del k_cache, v_cache
    attention.close()
    attention.close()


def test_caches_outlive_the_object():
    fixture = Fixture(torch.float32, True)
    k_cache, before = fixture.caches[0], fixture.caches[0].clone()
    del fixture
    gc.collect()
    assert torch.equal(k_cache, before)


def test_a_fork_becomes_a_row():
    fixture = Fixture(torch.float32, True)
    attention = fixture.attention
    with attention.pool.batch() as batch:
        batch.plan([attention.sequences[0]], q_len=0, kv_len=64)
        [fork] = batch.fork([attention.sequences[0]], 40)
    attention.adopt(3, fork)
    assert attention.page_table[3, :2].tolist() == attention.page_table[0, :2].tolist()
    assert attention.page_table[3, 2] != attention.page_table[0, 2]
    # Both rows have the shared pages, and the fork's copy of the last one.
    kv_idx = torch.arange(fixture.caches[0].shape[2])
    mask_mod = attention.get_mask_mod(None)
    seen = [fixture.caches[0][0][:, mask_mod(torch.tensor(row), 0, 0, kv_idx)] for row in (0, 3)]
    assert seen[0].shape[1] == 64 and seen[1].shape[1] == 48

    # Positions in shared pages are refused, also to the parent.
    one = torch.ones(1, 2, 1, 16)
    for row in 0, 3:
        with pytest.raises(RuntimeError, match=f"position 31 of row {row} is in a page that is shared"):
            attention.assign(torch.tensor([row]), torch.tensor([[31]]), one, one, *fixture.caches)
    attention.assign(torch.tensor([3]), torch.tensor([[40]]), one, one, *fixture.caches)
    attention.erase(0)
    assert attention.page_table[3, :2].ge(0).all()
    with pytest.raises(ValueError, match="is row 3 already"):
        attention.adopt(1, fork)


@pytest.mark.parametrize("arguments, keywords, error, message", [
    ((4, 0, 1), {}, ValueError, "page_size is 0, and must be at least 1"),
    ((4, 257, 1), {}, ValueError, "page_size is 257, and must be at most 256"),
    ((4, 16, -1), {}, ValueError, "max_batch_size is -1, and must be at least 0"),
    ((0, 16, 1), {}, ValueError, "n_pages is 0, and must be at least 1"),
    ((-4, 16, 1), {}, ValueError, "n_pages is -4"),
    ((4.0, 16, 1), {}, TypeError, "n_pages must be an integer, not <class 'float'>"),
    ((4, None, 1), {}, TypeError, "page_size must be an integer"),
    ((4, 16, "1"), {}, TypeError, "max_batch_size must be an integer"),
    ((4, 16, 1), {"n_kv_heads": 0, "k_dim": 16}, ValueError, "n_kv_heads is 0"),
    ((4, 16, 1), {"n_kv_heads": 1, "k_dim": 0}, ValueError, "k_dim is 0"),
    ((4, 16, 1), {"n_kv_heads": 1, "k_dim": 16, "v_dim": 0}, ValueError, "v_dim is 0"),
    ((4, 16, 1), {"n_kv_heads": 1, "k_dim": 16, "n_layers": 0}, ValueError, "n_layers is 0"),
    ((4, 16, 1), {"n_kv_heads": 1}, ValueError, "n_kv_heads and k_dim belong together"),
    ((4, 16, 1), {"v_dim": 16}, ValueError, "v_dim is 16, but n_kv_heads and k_dim are not given"),
    ((4, 16, 1), {"n_kv_heads": 1, "k_dim": 16, "dtype": torch.int8}, ValueError, "no pool has elements of torch.int8"),
    ((4, 16, 1), {"pool": 3}, TypeError, "pool must be a paged.Pool"),
])
def test_arguments_of_the_constructor(arguments, keywords, error, message):
    with pytest.raises(error, match=message):
        Ours(*arguments, device="cpu", **keywords)
