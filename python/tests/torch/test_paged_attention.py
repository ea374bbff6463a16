# SPDX-License-Identifier: Apache-2.0
"""paged.torch.PagedAttention compared with PyTorch's class: the same operations, the same state, lists, caches and errors."""
import gc
import random

import pytest
import torch
from hypothesis import given, settings, strategies
from torch.nn.attention.experimental._paged_attention import PagedAttention as Theirs
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention, noop_mask

import paged
from paged.torch.attention import PagedAttention as Ours


def both(n_pages, page_size, n_rows):
    return Theirs(n_pages, page_size, n_rows, device="cpu"), Ours(n_pages, page_size, n_rows, device="cpu")


def assert_same_state(theirs, *all_of_ours):
    """Tables, capacities and free lists are equal, and p2l is the inverse of the page table.

    PyTorch's own p2l keeps entries of erased rows, so it is not what ours is compared with.
    """
    inverse = torch.full_like(theirs.physical_to_logical, -1)
    for row, pages in enumerate(theirs.page_table.tolist()):
        for logical, page in enumerate(pages):
            if page >= 0:
                inverse[row, page] = logical
    for ours in all_of_ours:
        for name, expected in (("page_table", theirs.page_table), ("capacity", theirs.capacity),
                               ("physical_to_logical", inverse)):
            assert torch.equal(getattr(ours, name), expected), name
            assert getattr(ours, name).dtype == expected.dtype
        assert ours.empty_pages == theirs.empty_pages


def outcome(call, *arguments):
    """What a call raised: kind and text."""
    try:
        call(*arguments)
    except (AssertionError, RuntimeError) as error:
        return type(error), str(error)
    return None


def reserve(attentions, row, length):
    got = [outcome(attention.reserve, torch.tensor(row), torch.tensor(length)) for attention in attentions]
    assert all(at == got[0] for at in got)
    assert_same_state(*attentions)
    return got[0]


def erase(attentions, *rows):
    for attention in attentions:
        attention.erase(torch.tensor(rows))
    assert_same_state(*attentions)


def reserve_interleaved(attentions, lengths, rounds=4):
    """Raise all rows by turns, so that the pages of each are scattered."""
    for i in range(1, rounds + 1):
        for row, length in enumerate(lengths):
            for attention in attentions:
                attention.reserve(torch.tensor(row), torch.tensor(length * i // rounds))


# Pages.


def test_pages_come_and_go_as_in_pytorch():
    pair = both(12, 4, 3)
    for row, length in enumerate([8, 24, 16]):
        assert reserve(pair, row, length) is None
    assert reserve(pair, 0, 16) == (AssertionError, "requested 2 pages but there are only 0 empty pages")
    erase(pair, 1)
    assert reserve(pair, 0, 16) is None
    assert len(pair[1].empty_pages) == 4


def test_capacity_is_rounded_up_to_pages():
    pair = both(12, 4, 3)
    for row, length in enumerate([3, 11, 8]):
        reserve(pair, row, length)
    assert pair[1].capacity.tolist() == [4, 12, 8]
    erase(pair, 1)
    for row, length in enumerate([7, 2, 10]):
        reserve(pair, row, length)
    assert pair[1].capacity.tolist() == [8, 4, 12]
    erase(pair, 0, 1, 2)
    assert pair[1].capacity.tolist() == [0, 0, 0]


def test_reserve_of_less_and_of_nothing_does_nothing():
    pair = both(6, 4, 2)
    reserve(pair, 0, 9)
    for length in 8, 0, -5, 12:
        assert reserve(pair, 0, length) is None
    assert reserve(pair, 1, 2**40) == (AssertionError, f"requested {2**38} pages but there are only 3 empty pages")


def test_a_negative_row_counts_from_the_end_and_others_do_not_exist():
    pair = both(6, 4, 3)
    reserve(pair, -1, 5)
    assert pair[1].capacity.tolist() == [0, 0, 8]
    for row in 3, -4:
        for attention in pair:
            with pytest.raises(IndexError):
                attention.reserve(torch.tensor(row), torch.tensor(4))
            with pytest.raises(IndexError):
                attention.erase(torch.tensor([row]))


def test_an_erased_row_returns_its_pages_in_logical_order():
    pair = both(8, 4, 2)
    reserve_interleaved(pair, [12, 16])
    reserve(pair, 0, 16)
    pages = pair[1].page_table[1].tolist()
    erase(pair, 1)
    reserve(pair, 0, 24)
    assert pair[1].page_table[0, 4:6].tolist() == pages[2:4]


operations = strategies.lists(strategies.one_of(
    strategies.tuples(strategies.just("reserve"), strategies.integers(0, 4), strategies.integers(0, 70)),
    strategies.tuples(strategies.just("erase"), strategies.lists(strategies.integers(0, 4), min_size=1, max_size=4,
                                                                unique=True), strategies.none())), max_size=40)


@settings(database=None, max_examples=100, deadline=None)
@given(operations=operations, page_size=strategies.sampled_from([1, 3, 4, 16]), n_pages=strategies.integers(1, 24))
def test_any_operations_leave_the_same_state(operations, page_size, n_pages):
    pair = both(n_pages, page_size, 5)
    for name, at, length in operations:
        if name == "reserve":
            reserve(pair, at, length)
        else:
            erase(pair, *at)


@pytest.mark.parametrize("kind", [int, lambda n: [n], lambda n: torch.tensor([n]), lambda n: torch.tensor(n)])
def test_batch_indices_and_lengths_may_be_integers_lists_and_tensors(kind):
    attention = Ours(8, 4, 3, device="cpu")
    attention.reserve(kind(1), kind(9))
    assert attention.capacity.tolist() == [0, 12, 0]
    attention.erase(kind(1))
    assert attention.capacity.tolist() == [0, 0, 0]


def test_several_rows_are_reserved_all_or_none():
    attention = Ours(8, 4, 3, device="cpu")
    attention.reserve([0, 2], [8, 12])
    assert attention.capacity.tolist() == [8, 0, 12]
    assert attention.empty_pages == [7, 6, 5]
    with pytest.raises(AssertionError, match="requested 7 pages but there are only 3 empty pages"):
        attention.reserve([0, 1, 2], 16)
    assert attention.capacity.tolist() == [8, 0, 12]
    attention.erase(torch.tensor([True, False, True]))
    assert attention.capacity.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="2 lengths and 3 rows"):
        attention.reserve([0, 1, 2], [4, 4])
    with pytest.raises(TypeError, match="torch.float32"):
        attention.reserve(torch.tensor([0.0]), 4)


def test_the_tensors_are_changed_in_place():
    attention = Ours(8, 4, 3, device="cpu")
    tensors = attention.page_table, attention.physical_to_logical, attention.capacity
    attention.reserve(1, 8)
    assert [int(tensor[1].max()) for tensor in tensors] == [1, 1, 8]
    assert attention.page_table is tensors[0]
    assert attention.physical_to_logical is tensors[1]
    assert attention.capacity is tensors[2]


def test_changes_made_through_the_pool_are_seen():
    attention = Ours(8, 4, 3, device="cpu")
    attention.reserve(0, 8)
    assert attention.capacity.tolist() == [8, 0, 0]
    attention.pool.reserve([attention.sequences[0], attention.sequences[2]], [16, 4])
    assert attention.capacity.tolist() == [16, 0, 4]
    attention.pool.truncate(attention.sequences[0], 4)
    assert attention.capacity.tolist() == [4, 0, 4]
    assert attention.page_table.ge(0).sum(1).tolist() == [1, 0, 1]
    assert len(attention.empty_pages) == 6


def test_sequences_that_others_make_in_the_pool_hide_the_numbers_of_free_pages():
    attention = Ours(8, 4, 2, device="cpu", n_kv_heads=1, k_dim=16)
    attention.reserve(0, 8)
    assert attention.empty_pages == [7, 6, 5, 4, 3, 2]
    [other] = attention.pool.create(1, 12)
    assert attention.empty_pages == [-1] * 3
    attention.pool.erase(other)
    assert len(attention.empty_pages) == 6


def test_inference_mode():
    with torch.inference_mode():
        attention = Ours(8, 4, 2, device="cpu")
        attention.reserve(0, 8)
        table = attention.page_table
        attention.physical_to_logical, attention.capacity
    attention.reserve(1, 8)
    assert table[1, :2].tolist() == [3, 2]


# assign().


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(4))
def test_assign_writes_what_pytorch_writes(dtype, seed):
    torch.manual_seed(seed)
    n_rows, n_heads, k_dim, v_dim, n_pages, page_size = 3, 2, 5, 7, 16, 4
    pair = both(n_pages, page_size, n_rows + 1)
    reserve_interleaved(pair, [14, 20, 9, 7])
    rows = torch.randperm(n_rows + 1)[:n_rows]
    positions = torch.stack([torch.randperm(int(pair[1].capacity[row]))[:7] for row in rows])
    caches = [[torch.randn(1, n_heads, n_pages * page_size, dim).to(dtype) for dim in (k_dim, v_dim)]]
    caches.append([cache.clone() for cache in caches[0]])
    # K is contiguous, V is a transposed view.
    k = torch.randn(n_rows, n_heads, 7, k_dim).to(dtype)
    v = torch.randn(n_rows, 7, n_heads, v_dim).to(dtype).transpose(1, 2)
    for attention, (k_cache, v_cache) in zip(pair, caches):
        attention.assign(rows, positions, k, v, k_cache, v_cache)
    for theirs, ours in zip(*caches):
        assert torch.equal(theirs, ours)


@settings(database=None, max_examples=40, deadline=None)
@given(seed=strategies.integers(0, 2**32))
def test_any_operations_leave_the_same_keys_and_values(seed):
    source = random.Random(seed)
    torch.manual_seed(seed)
    n_pages, page_size, n_rows, n_heads, dim = source.randint(4, 16), source.choice([1, 3, 8]), 4, 2, 16
    in_place = Ours(n_pages, page_size, n_rows, device="cpu", n_layers=2, n_kv_heads=n_heads, k_dim=dim)
    attentions = *both(n_pages, page_size, n_rows), in_place
    caches = [tuple(torch.zeros(1, n_heads, n_pages * page_size, dim) for _ in "kv") for _ in range(2)]
    caches.append(in_place.caches(1))
    for _ in range(20):
        rows = source.sample(range(n_rows), source.randint(1, n_rows))
        kind = source.choice(["reserve", "assign", "assign", "erase"])
        if kind == "reserve":
            reserve(attentions, rows[0], source.randint(0, n_pages * page_size // 2))
        elif kind == "erase":
            erase(attentions, *rows)
        else:
            capacity = in_place.capacity
            rows = torch.tensor([row for row in rows if capacity[row] > 0], dtype=torch.int64)
            n_tokens = int(capacity[rows].min()) if len(rows) else 0
            positions = [torch.randperm(int(capacity[row]))[:n_tokens] for row in rows]
            if n_tokens > 0:
                k, v = (torch.randn(len(rows), n_heads, n_tokens, dim) for _ in "kv")
                for attention, (k_cache, v_cache) in zip(attentions, caches):
                    attention.assign(rows, torch.stack(positions), k, v, k_cache, v_cache)
        pages = [torch.from_dlpack(pages)[1] for pages in (in_place.pool.k, in_place.pool.v)]
        for theirs, ours, pool in zip(*caches[:2], pages):
            assert torch.equal(theirs, ours)
            assert torch.equal(theirs[0], pool.transpose(0, 1).flatten(1, 2))


def test_assign_checks_in_the_order_of_pytorch():
    pair = both(8, 4, 2)
    reserve_interleaved(pair, [8, 8])
    rows, positions = torch.arange(2), torch.arange(3).expand(2, 3)
    k, v, k_cache, v_cache = (torch.zeros(shape) for shape in ((2, 2, 3, 4), (2, 2, 3, 5), (1, 2, 32, 4), (1, 2, 32, 5)))
    wrong = [
        (rows, positions, k.clone().requires_grad_(), v, k_cache, v_cache),
        (torch.arange(1), positions, k, v, k_cache, v_cache),
        (rows, positions, k, v, torch.zeros(1, 3, 32, 9), v_cache),
        (rows, positions, k, v, torch.zeros(1, 2, 32, 9), v_cache),
        (rows, positions, k, v, k_cache, torch.zeros(1, 2, 32, 9)),
    ]
    for arguments in wrong:
        theirs, ours = (outcome(attention.assign, *arguments) for attention in pair)
        assert theirs == ours and theirs is not None


def test_assign_refuses_values_whose_shapes_or_types_differ():
    attention = Ours(8, 4, 2, device="cpu")
    attention.reserve([0, 1], 8)
    k_cache, v_cache = torch.zeros(1, 2, 32, 4), torch.zeros(1, 2, 32, 4)
    with pytest.raises(RuntimeError, match="Expect input_pos, k_val and v_val"):
        attention.assign(torch.arange(2), torch.arange(3).expand(2, 3), torch.ones(2, 2, 3, 4), torch.ones(1, 2, 3, 4),
                         k_cache, v_cache)
    k, v = torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 4, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="same dtype but got torch.float32, torch.float16 and torch.float32"):
        attention.assign(torch.arange(2), torch.arange(3).expand(2, 3), k, v, k_cache, v_cache)
    assert not k_cache.any()


# Block masks and mods.


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 20 + 8 * b)


def by_head(b, h, q_idx, kv_idx):
    return (kv_idx + h) % 3 != 0


LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
         "full_q_num_blocks", "full_q_indices")


def assert_same_masks(theirs, ours):
    for name in LISTS:
        expected, got = getattr(theirs, name), getattr(ours, name)
        assert (expected is None) == (got is None), name
        if expected is not None:
            assert torch.equal(expected, got), name
            assert got.dtype == torch.int32
    assert theirs.seq_lengths == ours.seq_lengths
    assert theirs.BLOCK_SIZE == ours.BLOCK_SIZE


@pytest.mark.parametrize("mask_mod", [causal, window, by_head, noop_mask])
@pytest.mark.parametrize("rows", [None, [2, 0], [1, 1, 3]])
@pytest.mark.parametrize("with_kv_len", [False, True])
def test_block_masks_are_converted_as_in_pytorch(mask_mod, rows, with_kv_len):
    page_size, length = 16, 64
    pair = both(32, page_size, 4)
    reserve_interleaved(pair, [length] * 4)
    batch_idx = None if rows is None else torch.tensor(rows)
    logical = create_block_mask(mask_mod, 4 if rows is None else len(rows), 2, 48, length, device="cpu",
                                BLOCK_SIZE=(16, page_size))
    # Lengths that cut no block change no list, and not what pads the lists.
    kv_len = torch.full((logical.shape[0],), length) if with_kv_len else None
    assert_same_masks(*(attention.convert_logical_block_mask(logical, batch_idx, kv_len) for attention in pair))


@settings(database=None, max_examples=60, deadline=None)
@given(seed=strategies.integers(0, 2**32))
def test_any_block_lists_are_converted_as_in_pytorch(seed):
    source = random.Random(seed)
    page_size, n_rows, n_heads, n_q_blocks, n_blocks = 4, 3, 2, 3, source.randint(1, 8)
    pair = both(n_rows * n_blocks + source.randint(0, 5), page_size, n_rows)
    reserve_interleaved(pair, [page_size * n_blocks] * n_rows, rounds=source.randint(1, 4))
    torch.manual_seed(seed)
    # 0: empty, 1: partial, 2: full
    kinds = torch.randint(0, 3, (n_rows, n_heads, n_q_blocks, n_blocks))

    def lists(kind):
        order = torch.argsort((kinds != kind).int(), dim=-1, stable=True).int()
        return (kinds == kind).sum(-1).int(), order

    logical = BlockMask.from_kv_blocks(*lists(1), *(lists(2) if source.random() < 0.5 else (None, None)),
                                       BLOCK_SIZE=(8, page_size), mask_mod=causal,
                                       seq_lengths=(8 * n_q_blocks, page_size * n_blocks))
    assert_same_masks(*(attention.convert_logical_block_mask(logical) for attention in pair))


def test_block_lists_by_key_block_can_be_omitted():
    attention = Ours(8, 16, 1, device="cpu")
    attention.reserve(0, 64)
    logical = create_block_mask(causal, 1, 1, 64, 64, device="cpu", BLOCK_SIZE=(16, 16))
    converted = attention.convert_logical_block_mask(logical, compute_q_blocks=False)
    assert converted.q_indices is None
    assert converted.kv_num_blocks.tolist() == logical.kv_num_blocks.tolist()


def test_masks_that_do_not_fit_are_refused():
    attention = Ours(8, 16, 2, device="cpu")
    mask = create_block_mask(causal, 3, 1, 64, 64, device="cpu", BLOCK_SIZE=(16, 16))
    with pytest.raises(RuntimeError, match="at most 2 rows but got B=3"):
        attention.convert_logical_block_mask(mask)
    with pytest.raises(RuntimeError, match="got B=3 and B=2"):
        attention.convert_logical_block_mask(mask, torch.tensor([0, 1]))
    mask = create_block_mask(causal, 2, 1, 64, 64, device="cpu", BLOCK_SIZE=(16, 16))
    for kv_len in torch.tensor([3]), torch.tensor(3), torch.zeros(2, 1, dtype=torch.int32):
        with pytest.raises(RuntimeError, match="a length for each of 2 rows"):
            attention.convert_logical_block_mask(mask, kv_len=kv_len)
    mask = create_block_mask(causal, 1, 1, 64, 72, device="cpu", BLOCK_SIZE=(16, 24))
    with pytest.raises(RuntimeError, match="got size=24 and size=16"):
        attention.convert_logical_block_mask(mask)


@pytest.mark.parametrize("kv_len", [None, [30, 64, 1, 17]])
def test_mods_are_those_of_pytorch(kv_len):
    page_size, length, n_pages = 16, 64, 32
    pair = both(n_pages, page_size, 4)
    reserve_interleaved(pair, [length, 50, 33, length])
    kv_len = None if kv_len is None else torch.tensor(kv_len)

    def bias(score, b, h, q_idx, kv_idx):
        return score * (h + 1) + 0.5 * kv_idx - q_idx + b

    b, h, q_idx, kv_idx = torch.meshgrid(torch.arange(4), torch.arange(2), torch.arange(0, 64, 7),
                                         torch.arange(n_pages * page_size), indexing="ij")
    score = torch.randn(b.shape)
    for mask_mod in window, None:
        theirs, ours = (attention.get_mask_mod(mask_mod, kv_len)(b, h, q_idx, kv_idx) for attention in pair)
        assert torch.equal(theirs, ours)
    for score_mod in bias, None:
        theirs, ours = (attention.get_score_mod(score_mod, kv_len)(score, b, h, q_idx, kv_idx) for attention in pair)
        assert torch.equal(theirs, ours)


def test_a_mod_says_where_it_comes_from():
    attention = Ours(8, 16, 4, device="cpu")
    attention.reserve([0, 1], 16)
    mask = create_block_mask(causal, 2, 1, 16, 16, device="cpu", BLOCK_SIZE=(16, 16))
    origin = attention.convert_logical_block_mask(mask, torch.tensor([1, 0]), torch.tensor([3, 4])).mask_mod.paged
    assert origin.attention is attention and origin.mod is causal
    assert origin.batch_idx.tolist() == [1, 0] and origin.kv_len.tolist() == [3, 4]
    origin = attention.get_score_mod(None).paged
    assert origin.batch_idx is None and origin.kv_len is None


# Attention.


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
        self.attention.assign(torch.arange(n_rows), torch.arange(length).expand(n_rows, -1), self.k, self.v, *self.caches)

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
CASES = [(dtype, window, alibi) for dtype in DTYPES] + [(torch.float32, causal, None), (torch.float32, noop_mask, alibi)]


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
        attention.capacity


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
