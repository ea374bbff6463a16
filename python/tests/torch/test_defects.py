# SPDX-License-Identifier: Apache-2.0
"""Errors of PyTorch's PagedAttention that paged.torch's does not repeat: PyTorch's result, and ours.

If a test fails because PyTorch's result has changed, PyTorch has repaired the error: remove its half.
"""
import resource

import pytest
import torch
from torch.nn.attention.experimental._paged_attention import PagedAttention as Theirs
from torch.nn.attention.flex_attention import create_block_mask, flex_attention, noop_mask

from paged.torch.attention import PagedAttention as Ours

PAGE_SIZE = 4


def both(n_pages=12, n_rows=3, lengths=()):
    pair = Theirs(n_pages, PAGE_SIZE, n_rows, device="cpu"), Ours(n_pages, PAGE_SIZE, n_rows, device="cpu")
    for attention in pair:
        for row, length in enumerate(lengths):
            attention.reserve(torch.tensor(row), torch.tensor(length))
    return pair


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def mask_of(mask_mod, n_rows, q_len, kv_len, block=PAGE_SIZE):
    return create_block_mask(mask_mod, n_rows, 1, q_len, kv_len, device="cpu", BLOCK_SIZE=(block, block))


def lists(num_blocks, indices):
    """Block lists as Python lists, for the first head."""
    return [[indices[b, 0, row, :num_blocks[b, 0, row]].tolist() for row in range(num_blocks.shape[2])]
            for b in range(num_blocks.shape[0])]


def test_an_erased_row_no_longer_sees_its_pages():
    theirs, ours = both(lengths=[8, 8])
    visible = []
    for attention in theirs, ours:
        mask_mod = attention.get_mask_mod(None)
        attention.erase(torch.tensor([0]))
        attention.reserve(torch.tensor(2), torch.tensor(8))  # takes the pages of row 0
        visible.append([int(mask_mod(torch.tensor(row), 0, 0, torch.arange(48)).sum()) for row in range(3)])
    assert visible[0] == [8, 8, 8]
    assert visible[1] == [0, 8, 8]


def test_erase_of_an_index_without_dimensions():
    theirs, ours = both(lengths=[8, 8])
    with pytest.raises(IndexError):
        theirs.erase(torch.tensor(1))
    assert len(theirs.empty_pages) == 10 and theirs.page_table[1, 0] != -1  # freed, and still in the table
    ours.erase(torch.tensor(1))
    assert ours.empty_pages == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]
    assert (ours.page_table[1] == -1).all()


def test_a_row_that_is_erased_twice_in_one_call_is_freed_once():
    theirs, ours = both(lengths=[8, 8])
    for attention in theirs, ours:
        attention.erase(torch.tensor([1, 1]))
    assert len(theirs.empty_pages) == 12 and len(set(theirs.empty_pages)) == 10
    assert len(ours.empty_pages) == 10 and len(set(ours.empty_pages)) == 10


def test_mods_of_some_rows_see_these_rows():
    theirs, ours = both(lengths=[8, 12, 4])
    rows = torch.tensor([2, 1])
    kv_idx = torch.arange(48)
    visible = []
    for attention in theirs, ours:
        mask_mod = attention.convert_logical_block_mask(mask_of(noop_mask, 2, 4, 12), rows).mask_mod
        visible.append([mask_mod(torch.tensor(b), 0, 0, kv_idx).nonzero().flatten().unique() // 4 for b in range(2)])
    pages = [set(theirs.page_table[row].tolist()) - {-1} for row in range(3)]
    assert [set(at.tolist()) for at in visible[0]] == [pages[0], pages[1]]
    assert [set(at.tolist()) for at in visible[1]] == [pages[2], pages[1]]
    score_mod = ours.get_score_mod(None, batch_idx=rows)
    scores = score_mod(torch.zeros(48), torch.tensor(0), 0, 0, kv_idx)
    assert set((scores == 0).nonzero().flatten().div(4, rounding_mode="floor").tolist()) == pages[2]


def test_blocks_without_a_page_are_dropped():
    theirs, ours = both(lengths=[4])
    mask = mask_of(noop_mask, 1, 4, 12)
    converted = [attention.convert_logical_block_mask(mask) for attention in (theirs, ours)]
    assert lists(converted[0].full_kv_num_blocks, converted[0].full_kv_indices) == [[[0, -1, -1]]]
    assert lists(converted[1].full_kv_num_blocks, converted[1].full_kv_indices) == [[[0]]]
    assert min(converted[1].full_kv_indices.min(), converted[1].kv_indices.min()) == 0


def test_assign_past_the_capacity_is_refused():
    theirs, ours = both(n_pages=4, n_rows=2, lengths=[4, 12])
    last = int(theirs.page_table[1, 0])
    assert last == 3  # the last page of the cache belongs to row 1
    written = []
    for attention in theirs, ours:
        cache = torch.zeros(1, 1, 16, 2)
        arguments = (torch.tensor([0]), torch.tensor([[0, 4]]), torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2), cache,
                     cache)
        if attention is theirs:
            attention.assign(*arguments)
        else:
            with pytest.raises(IndexError, match="position 4 of row 0 has no page: its capacity is 4 tokens"):
                attention.assign(*arguments)
        written.append(cache[0, 0, :, 0].nonzero().flatten().tolist())
    assert written[0] == [0, 12]
    assert written[1] == []


@pytest.mark.parametrize("position", [-1, -4, 4, 16, 2**40])
def test_assign_out_of_range_is_refused(position):
    _, ours = both(n_pages=4, n_rows=2, lengths=[4, 12])
    cache = torch.zeros(1, 1, 16, 2)
    with pytest.raises(IndexError, match=f"position {position} of row 0"):
        ours.assign(torch.tensor([0]), torch.tensor([[position]]), torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2),
                    cache, cache)
    assert not cache.any()


def test_full_blocks_end_at_the_length():
    theirs, ours = both(lengths=[16])
    kv_len = torch.tensor([6])
    converted = [attention.convert_logical_block_mask(mask_of(noop_mask, 1, 4, 16), kv_len=kv_len)
                 for attention in (theirs, ours)]
    pages = ours.page_table[0, :4].tolist()
    assert lists(converted[0].full_kv_num_blocks, converted[0].full_kv_indices) == [[pages]]
    assert lists(converted[0].kv_num_blocks, converted[0].kv_indices) == [[[]]]
    assert lists(converted[1].full_kv_num_blocks, converted[1].full_kv_indices) == [[pages[:1]]]
    assert lists(converted[1].kv_num_blocks, converted[1].kv_indices) == [[pages[1:2]]]


def test_compiled_attention_ends_at_the_length_without_a_score_mod():
    torch._dynamo.reset()
    torch.manual_seed(0)
    page_size, n_pages, length, kv_len = 16, 8, 64, torch.tensor([40])
    q, k, v = torch.randn(1, 2, 16, 16), torch.randn(1, 2, length, 16), torch.randn(1, 2, length, 16)
    expected = flex_attention(q, k[:, :, :40], v[:, :, :40])
    flex = torch.compile(flex_attention)
    errors = []
    for attention in Theirs(n_pages, page_size, 1, device="cpu"), Ours(n_pages, page_size, 1, device="cpu"):
        attention.reserve(torch.tensor(0), torch.tensor(length))
        k_cache, v_cache = torch.zeros(1, 2, n_pages * page_size, 16), torch.zeros(1, 2, n_pages * page_size, 16)
        attention.assign(torch.tensor([0]), torch.arange(length)[None], k, v, k_cache, v_cache)
        mask = attention.convert_logical_block_mask(mask_of(noop_mask, 1, 16, length, page_size), kv_len=kv_len)
        got = flex(q, k_cache, v_cache, block_mask=mask)
        errors.append(float((got - expected).abs().max()))
    assert errors[0] > 0.1
    assert errors[1] < 1e-5


def test_mods_are_not_called_with_positions_that_do_not_exist():
    theirs, ours = both(lengths=[8])
    kv_len = torch.tensor([6])
    slopes = torch.rand(6)  # no padding: one for each key

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + slopes[kv_idx]

    arguments = torch.zeros(48), torch.tensor(0), torch.tensor(0), torch.tensor(0), torch.arange(48)
    with pytest.raises(IndexError):
        theirs.get_score_mod(score_mod, kv_len)(*arguments)
    scores = ours.get_score_mod(score_mod, kv_len)(*arguments)
    assert torch.isinf(scores).sum() == 42
    pages = ours.page_table[0, :2].tolist()
    for position in range(6):
        assert scores[pages[position // 4] * 4 + position % 4] == slopes[position]


def test_a_page_may_be_in_two_rows():
    # PyTorch's class has no fork.  Putting a page into two rows of its table frees the page twice.
    theirs = Theirs(4, PAGE_SIZE, 2, device="cpu")
    theirs.reserve(torch.tensor(0), torch.tensor(8))
    theirs.page_table[1, 0] = theirs.page_table[0, 0]
    theirs.erase(torch.tensor([0]))
    theirs.erase(torch.tensor([1]))
    assert len(theirs.empty_pages) == 5

    ours = Ours(4, PAGE_SIZE, 2, device="cpu", n_kv_heads=1, k_dim=16)
    ours.reserve(0, 8)
    with ours.pool.batch() as batch:
        batch.plan([ours.sequences[0]], q_len=0, kv_len=8)
        ours.adopt(1, batch.fork([ours.sequences[0]], 4)[0])
    assert ours.page_table[1, 0] == ours.page_table[0, 0]
    ours.erase(0)
    assert len(ours.empty_pages) == 3
    ours.erase(1)
    assert len(ours.empty_pages) == 4


def test_tables_take_memory_only_when_they_are_used():
    n_pages, n_rows = 1 << 17, 1 << 12
    # PyTorch's class allocates two tables of 4 GiB each here.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours = Ours(n_pages, PAGE_SIZE, n_rows, device="cpu")
    ours.reserve(7, 40)
    cache = torch.zeros(1, 1, 16 * PAGE_SIZE, 2)
    ours.assign(torch.tensor([7]), torch.arange(40)[None], torch.ones(1, 1, 40, 2), torch.ones(1, 1, 40, 2), cache,
                cache)
    assert cache[..., 0].sum() == 40
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10  # KiB


def test_a_mask_of_one_row_is_expanded():
    theirs, ours = both(lengths=[8, 8])
    rows = torch.tensor([0, 1])
    alone = theirs.convert_logical_block_mask(mask_of(causal, 1, 8, 8), rows)
    assert alone.kv_indices.shape[0] == 1  # of row 0, and flex_attention applies it to both
    expected = theirs.convert_logical_block_mask(mask_of(causal, 2, 8, 8), rows)
    got = ours.convert_logical_block_mask(mask_of(causal, 1, 8, 8), rows)
    for name in "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices":
        assert torch.equal(getattr(got, name), getattr(expected, name))


def test_a_mask_of_more_blocks_than_pages():
    theirs, ours = both(n_pages=2, n_rows=1, lengths=[8])
    mask = mask_of(causal, 1, 12, 12)
    with pytest.raises(RuntimeError):
        theirs.convert_logical_block_mask(mask)
    converted = ours.convert_logical_block_mask(mask)
    assert lists(converted.kv_num_blocks, converted.kv_indices) == [[[1], [0], []]]
    assert lists(converted.full_kv_num_blocks, converted.full_kv_indices) == [[[], [1], [1, 0]]]


@pytest.mark.parametrize("block", [8, 2])
def test_the_mask_block_need_not_be_the_page(block):
    theirs, ours = both(lengths=[16])
    mask = mask_of(causal, 1, 16, 16, block)
    with pytest.raises(RuntimeError, match=f"got size={block} and size=4"):
        theirs.convert_logical_block_mask(mask)
    converted = ours.convert_logical_block_mask(mask)
    assert converted.BLOCK_SIZE == (block, min(block, PAGE_SIZE))
    partial = lists(converted.kv_num_blocks, converted.kv_indices)[0]
    full = lists(converted.full_kv_num_blocks, converted.full_kv_indices)[0]
    pages = ours.page_table[0, :4].tolist()
    if block == 8:
        assert partial == [pages[:2], pages[2:]]
        assert full == [[], pages[:2]]
    else:
        halves = [2 * page + half for page in pages for half in range(2)]
        assert partial == [[half] for half in halves]
        assert full == [halves[:i] for i in range(8)]


def test_the_result_has_the_same_bits_wherever_the_pages_are():
    torch._dynamo.reset()
    torch.manual_seed(0)
    page_size, length = 16, 128
    q, k, v = (torch.randn(1, 2, n, 16) for n in (32, length, length))
    mask = mask_of(causal, 1, 32, length, 32)  # two pages a block, which PyTorch's class refuses
    flex = torch.compile(flex_attention)
    results = []
    for first in range(3):
        attention = Ours(16, page_size, 3, device="cpu")
        for step in range(8):
            for row in range(first + 1):
                attention.reserve(row, (step + 1) * page_size if row == 0 else page_size)
        caches = [torch.zeros(1, 2, 16 * page_size, 16) for _ in range(2)]
        attention.assign(torch.tensor([0]), torch.arange(length)[None], k, v, *caches)
        results.append(flex(q, *caches, block_mask=attention.convert_logical_block_mask(mask)))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_a_wrong_length_is_printed():
    theirs, ours = both(lengths=[8])
    cache = torch.zeros(1, 1, 48, 2)
    arguments = torch.tensor([0]), torch.arange(5)[None], torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2), cache, cache
    with pytest.raises(RuntimeError, match="same length but got S=3 and S=1"):
        theirs.assign(*arguments)
    with pytest.raises(RuntimeError, match="same length but got S=3 and S=5"):
        ours.assign(*arguments)
