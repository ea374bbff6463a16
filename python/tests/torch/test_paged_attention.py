# SPDX-License-Identifier: Apache-2.0
"""paged.torch.PagedAttention compared with PyTorch's class: the same operations, state, lists, caches and errors."""
import random

import pytest
import torch
from hypothesis import given, settings, strategies
from paged_cases import causal, reserve_interleaved, window
from torch.nn.attention.experimental._paged_attention import PagedAttention as Theirs
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, noop_mask

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
        assert attention.physical_to_logical is not None and attention.capacity is not None
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
    k, v, k_cache, v_cache = map(torch.zeros, ((2, 2, 3, 4), (2, 2, 3, 5), (1, 2, 32, 4), (1, 2, 32, 5)))
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
