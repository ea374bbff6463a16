# SPDX-License-Identifier: Apache-2.0
"""paged.torch.flex_attention against PyTorch's flex_attention in float64.

The tolerance is PyTorch's rule, made tighter: the mean error in float32 is at most 1e-6 of the largest result, and in
bfloat16 and float16 at most that of PyTorch's own flex_attention in the same type.
"""
from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import mod_cases as listed  # noqa: E402
import torch.nn.attention.flex_attention as torch_flex  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, noop_mask  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import paged.torch  # noqa: E402
from paged.torch import PagedAttention, UntranslatableError, flex_attention  # noqa: E402

# The module has the function's name.
module: Any = __import__("sys").modules["paged.torch.flex_attention"]


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's reference without dynamo, which would compile for each shape."""
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    torch.manual_seed(0)


def golden(query: Any, key: Any, value: Any, **options: Any) -> tuple[Any, Any]:
    options["enable_gqa"] = True
    return torch_flex.flex_attention(query.double(), key.double(), value.double(), return_lse=True, **options)


def compare(query: Any, key: Any, value: Any, **options: Any) -> None:
    expected, expected_lse = golden(query, key, value, **options)
    out, lse = flex_attention(query, key, value, enable_gqa=True, return_lse=True, **options)
    assert out.dtype == query.dtype and lse.dtype == torch.float32
    assert out.shape == expected.shape and lse.shape == expected_lse.shape
    assert torch.equal(lse.isneginf(), expected_lse.isneginf())
    seen = ~expected_lse.isneginf()
    error = (out.double() - expected).abs().mean().item()
    lse_error = (lse.double() - expected_lse)[seen].abs().max().item() if seen.any() else 0.0
    assert not out[~seen].any()
    if query.dtype == torch.float32:
        assert error <= 1e-6 * max(expected.abs().max().item(), 1)
    else:
        other = torch_flex.flex_attention(query, key, value, **options | {"enable_gqa": True})
        assert error <= (other.double() - expected).abs().mean().item()
    # Relative to float32 scores, whose magnitude is that of lse.
    assert lse_error <= 2e-6 * max(expected_lse[seen].abs().max().item() if seen.any() else 0.0, 10.0)


def tensors(batch: int = 2, heads: int = 4, kv_heads: int = 2, q_len: int = 40, kv_len: int = 70, dim: int = 32,
            v_dim: int | None = None, dtype: Any = None, kv_batch: int | None = None) -> tuple[Any, Any, Any]:
    kv_batch = kv_batch or batch
    shapes = (batch, heads, q_len, dim), (kv_batch, kv_heads, kv_len, dim), (kv_batch, kv_heads, kv_len, v_dim or dim)
    return tuple(torch.randn(shape).to(dtype or torch.float32) for shape in shapes)  # type: ignore[return-value]


def mask_of(mod: Callable[..., Any], query: Any, key: Any, batch: int | None = None, heads: int | None = None,
            block: int | tuple[int, int] = 16) -> BlockMask:
    return create_block_mask(mod, batch, heads, query.shape[2], key.shape[2], device="cpu", BLOCK_SIZE=block)


generator = torch.Generator().manual_seed(5)
slopes = torch.rand(8, generator=generator)
lengths = torch.tensor([33, 57, 70])
prefix = torch.tensor([10, 0, 25])
table = torch.randn(3, 8, 128, 128, generator=generator)
documents = torch.arange(256) // 30


def causal(b, h, q_idx, kv_idx):
    return q_idx + 30 >= kv_idx


def padding(b, h, q_idx, kv_idx):
    return kv_idx < lengths[b]


def by_head(b, h, q_idx, kv_idx):
    return torch.where(h % 2 == 0, q_idx >= kv_idx, (q_idx - kv_idx).abs() < 9)


def same_document(b, h, q_idx, kv_idx):
    return documents[q_idx] == documents[kv_idx]


def prefix_lm(b, h, q_idx, kv_idx):
    return (kv_idx < prefix[b]) | (q_idx >= kv_idx)


def some_rows(b, h, q_idx, kv_idx):
    """Hides all keys of some query rows."""
    return (q_idx % 3 != 1) & (q_idx + 30 >= kv_idx)


def alibi(score, b, h, q_idx, kv_idx):
    return score + slopes[h] * (kv_idx - q_idx)


def soft_cap(score, b, h, q_idx, kv_idx):
    return 5 * torch.tanh(score / 5)


def bias(score, b, h, q_idx, kv_idx):
    return score + table[b, h, q_idx, kv_idx]


def causal_score(score, b, h, q_idx, kv_idx):
    return torch.where(q_idx >= kv_idx, score, float("-inf"))


MASKS = [None, causal, padding, by_head, same_document, prefix_lm, some_rows]
SCORES = [None, alibi, soft_cap, bias, causal_score]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("score_mod", SCORES)
@pytest.mark.parametrize("mask_mod", MASKS)
def test_mods(mask_mod: Any, score_mod: Any, dtype: Any) -> None:
    query, key, value = tensors(dtype=dtype)
    block_mask = None if mask_mod is None else mask_of(mask_mod, query, key, 2, 4)
    compare(query, key, value, score_mod=score_mod, block_mask=block_mask)


@pytest.mark.parametrize("name", listed.MASKS)
def test_listed_masks(name: str) -> None:
    query, key, value = tensors(listed.N_B, listed.N_H, 2, listed.N_Q, listed.N_Q, 16)
    compare(query, key, value, block_mask=mask_of(listed.MASKS[name], query, key, listed.N_B, listed.N_H, 8))


@pytest.mark.parametrize("name", listed.SCORES)
def test_listed_scores(name: str) -> None:
    query, key, value = tensors(listed.N_B, listed.N_H, 2, listed.N_Q, listed.N_Q, 16)
    compare(query, key, value, score_mod=listed.SCORES[name])


@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (4, 4), (8, 2), (6, 1), (6, 3)])
@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (1, 100), (7, 129), (64, 64), (100, 30)])
@pytest.mark.parametrize("dim, v_dim", [(16, 16), (17, 24), (64, 32), (32, 128)])
def test_shapes(heads: int, kv_heads: int, q_len: int, kv_len: int, dim: int, v_dim: int) -> None:
    query, key, value = tensors(3, heads, kv_heads, q_len, kv_len, dim, v_dim)
    compare(query, key, value, score_mod=alibi, block_mask=mask_of(causal, query, key))


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("heads", [None, 4])
def test_masks_of_one_row_or_head(batch: int | None, heads: int | None) -> None:
    query, key, value = tensors(3)
    compare(query, key, value, block_mask=mask_of(causal, query, key, batch, heads), score_mod=soft_cap)


def test_keys_of_one_row() -> None:
    query, key, value = tensors(3, kv_batch=1)
    compare(query, key, value, block_mask=mask_of(padding, query, key, 3))


@pytest.mark.parametrize("block", [8, 24, (40, 16), (16, 70), 128, (1, 8)])
def test_block_sizes(block: Any) -> None:
    query, key, value = tensors()
    compare(query, key, value, block_mask=mask_of(prefix_lm, query, key, 2, block=block))


@pytest.mark.parametrize("scale", [1.0, 0.05, -0.3, 0.0, -0.0, 1e-50])
def test_scale(scale: float) -> None:
    query, key, value = tensors()
    compare(query, key, value, scale=scale)
    # With a scale of 0, the score is 0 and not only small.
    compare(query, key, value, scale=scale,
            score_mod=lambda score, b, h, q_idx, kv_idx: torch.where(score.abs() < 1e-45, kv_idx * 0.1, score))


def test_strides() -> None:
    """Transposed, sliced and expanded tensors."""
    query, key, value = tensors(2, 4, 4, 40, 40, 32)
    query = query.transpose(1, 2).contiguous().transpose(1, 2)
    compare(query, key.mT.contiguous().mT, value[..., ::2])
    compare(query[:, ::2], key[:, :1].expand(-1, 2, -1, -1), value[:, 1:3])
    compare(query[..., 4:20], key[..., 8:24], value[:1].expand(2, -1, -1, -1))
    compare(query[:, :, ::3], key[:, :, :1].expand(-1, -1, 40, -1), value)


def test_captured_tensors_with_equal_names() -> None:
    query, key, value = tensors()

    def mask(limit: Any) -> Any:
        return lambda b, h, q_idx, kv_idx: kv_idx < limit[b]

    def score(limit: Any) -> Any:
        return lambda score, b, h, q_idx, kv_idx: score * limit[h] + limit[b]

    compare(query, key, value, block_mask=mask_of(mask(torch.tensor([50, 60])), query, key, 2),
            score_mod=score(torch.rand(4)))


def test_changed_tensors_are_seen() -> None:
    query, key, value = tensors()
    limit = torch.tensor([50, 60])
    block_mask = mask_of(lambda b, h, q_idx, kv_idx: kv_idx < limit[b], query, key, 2, block=128)
    before = flex_attention(query, key, value, block_mask=block_mask, enable_gqa=True)
    limit[0] = 10
    compare(query, key, value, block_mask=block_mask)
    # The lists as well: now the first row attends nothing.
    block_mask.kv_num_blocks[0] = 0
    after = flex_attention(query, key, value, block_mask=block_mask, enable_gqa=True)
    assert before[0].any() and not after[0].any() and torch.equal(before[1], after[1])


def test_changed_lists_of_inference_mode_are_seen() -> None:
    """Tensors that are made in inference mode have no version."""
    query, key, value = tensors()
    with torch.inference_mode():
        block_mask = mask_of(causal, query, key)
        assert flex_attention(query, key, value, block_mask=block_mask, enable_gqa=True).any()
        block_mask.kv_num_blocks.zero_()
        block_mask.full_kv_num_blocks.zero_()
        assert not flex_attention(query, key, value, block_mask=block_mask, enable_gqa=True).any()


# --------------------------------------------------------------------------------------------- lists of a block mask


def dense(block_mask: BlockMask, q_len: int, kv_len: int) -> Any:
    """Keys that lists and mask mod both allow, as compiled flex_attention computes it: [B, H, q_len, kv_len]."""
    allowed = torch.zeros(*block_mask.kv_num_blocks.shape[:2], q_len, kv_len, dtype=torch.bool)
    q_block, kv_block = block_mask.BLOCK_SIZE
    modded = torch_flex.create_mask(block_mask.mask_mod, *allowed.shape, device="cpu")
    lists = [(block_mask.kv_num_blocks, block_mask.kv_indices, modded)]
    if block_mask.full_kv_num_blocks is not None:
        lists.append((block_mask.full_kv_num_blocks, block_mask.full_kv_indices, torch.ones_like(allowed)))
    for num_blocks, indices, inside in lists:
        for b, h, i in torch.cartesian_prod(*map(torch.arange, num_blocks.shape)).tolist():
            for j in indices[b, h, i, :num_blocks[b, h, i]].tolist():
                at = b, h, slice(i * q_block, (i + 1) * q_block), slice(j * kv_block, (j + 1) * kv_block)
                allowed[at] = inside[at]
    return allowed


@pytest.mark.parametrize("mask_mod", [None, causal])
def test_lists_decide(mask_mod: Any) -> None:
    """A block mask from lists: a block that is in no list is not attended, whatever the mask mod says."""
    query, key, value = tensors(q_len=32, kv_len=64)
    order = torch.stack([torch.randperm(4) for _ in range(2 * 4 * 2)]).view(2, 4, 2, 4).to(torch.int32)
    counts = torch.randint(0, 3, (2, 4, 2), dtype=torch.int32)
    full_counts = torch.randint(0, 2, (2, 4, 2), dtype=torch.int32)
    block_mask = BlockMask.from_kv_blocks(counts, order, full_counts, order.flip(-1), (16, 16), mask_mod,
                                          seq_lengths=(32, 64))
    allowed = dense(block_mask, 32, 64)
    expected, _ = golden(query, key, value, score_mod=lambda score, b, h, q, kv: torch.where(
        allowed[b, h, q, kv], score, float("-inf")))
    out = flex_attention(query, key, value, block_mask=block_mask, enable_gqa=True)
    torch.testing.assert_close(out, expected.float(), atol=2e-6, rtol=0)


# ------------------------------------------------------------------------------------------------------ more results


@pytest.mark.parametrize("mask_mod", [causal, some_rows])
def test_results(mask_mod: Any) -> None:
    query, key, value = tensors(heads=2)
    block_mask = mask_of(mask_mod, query, key)
    options: dict[str, Any] = {"block_mask": block_mask, "score_mod": alibi}
    expected, expected_lse = golden(query, key, value, **options)
    assert isinstance(flex_attention(query, key, value, **options), torch.Tensor)
    out, aux = flex_attention(query, key, value, **options, return_aux=AuxRequest(lse=True, max_scores=True))
    torch.testing.assert_close(out, expected.float(), atol=2e-6, rtol=0)
    torch.testing.assert_close(aux.lse, expected_lse.float(), atol=2e-5, rtol=0)
    score = query.double() @ key.double().mT / math.sqrt(32)
    score += slopes[:2, None, None] * (torch.arange(70) - torch.arange(40)[:, None])
    score = score.masked_fill(~torch_flex.create_mask(mask_mod, 1, 1, 40, 70, device="cpu"), -math.inf)
    torch.testing.assert_close(aux.max_scores, score.amax(-1).float(), atol=2e-5, rtol=0)
    out, aux = flex_attention(query, key, value, return_aux=AuxRequest())
    assert aux == (None, None)


def test_empty() -> None:
    query, key, value = tensors()
    out, lse = flex_attention(query, key[:, :, :0], value[:, :, :0], enable_gqa=True, return_lse=True)
    assert out.shape == query.shape and not out.any() and lse.shape == query.shape[:3] and lse.isneginf().all()
    assert flex_attention(query[:, :, :0], key, value, enable_gqa=True).shape == (2, 4, 0, 32)
    assert flex_attention(query[:0], key[:0], value[:0], enable_gqa=True).shape == (0, 4, 40, 32)


def test_non_finite_values_behind_the_mask() -> None:
    query, key, value = tensors(heads=2)
    key[:, :, 40:], value[:, :, 40:] = math.nan, math.inf
    block_mask = mask_of(lambda b, h, q_idx, kv_idx: kv_idx < 40, query, key)
    expected, _ = golden(query, key[:, :, :40], value[:, :, :40])
    torch.testing.assert_close(flex_attention(query, key, value, block_mask=block_mask), expected.float(), atol=2e-6,
                               rtol=0)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_keys(dtype: Any) -> None:
    query, key, value = tensors(heads=2)
    key, value = key.to(dtype), value.to(dtype)
    expected, _ = golden(query, key, value)
    torch.testing.assert_close(flex_attention(query, key, value), expected.float(), atol=2e-6, rtol=0)


# ----------------------------------------------------------------------------------------------------------- errors


def learned_bias(bias: Any) -> Any:
    bias.requires_grad_()
    return lambda score, b, h, q_idx, kv_idx: score + bias[h]


other_lengths = create_block_mask(causal, None, None, 40, 80, device="cpu", BLOCK_SIZE=16)
fitting = create_block_mask(causal, None, None, 40, 70, device="cpu", BLOCK_SIZE=16)


@pytest.mark.parametrize("error, match, change", [
    (NotImplementedError, "3 dimensions", lambda q, k, v: {"query": q[0]}),
    (ValueError, "dimension", lambda q, k, v: {"key": k[..., :16]}),
    (ValueError, "dtypes", lambda q, k, v: {"value": v.half()}),
    (ValueError, "float64", lambda q, k, v: {"query": q.double()}),
    (ValueError, "enable_gqa", lambda q, k, v: {"key": k[:, :2], "value": v[:, :2]}),
    (ValueError, "multiple", lambda q, k, v: {"key": k[:, :3], "value": v[:, :3], "enable_gqa": True}),
    (ValueError, "batch size 2", lambda q, k, v: {"key": k[:1], "value": v[:1]}),
    (ValueError, "block_mask has 1", lambda q, k, v: {"key": k[:1], "value": v[:1], "block_mask": fitting}),
    (ValueError, "shape", lambda q, k, v: {"value": v[:, :, :-1]}),
    (RuntimeError, "80 keys", lambda q, k, v: {"block_mask": other_lengths}),
    (RuntimeError, "slice", lambda q, k, v: {"block_mask": fitting[0]}),
    (ValueError, "3 rows", lambda q, k, v: {"block_mask": mask_of(causal, q, k, 3)}),
    (ValueError, "3 heads", lambda q, k, v: {"block_mask": mask_of(causal, q, k, 1, 3)}),
    (ValueError, "exclude", lambda q, k, v: {"return_lse": True, "return_aux": AuxRequest(lse=True)}),
    (NotImplementedError, "query .* gradient", lambda q, k, v: {"query": q.clone().requires_grad_()}),
    (NotImplementedError, "bias .* gradient", lambda q, k, v: {"score_mod": learned_bias(torch.rand(4))}),
    (NotImplementedError, "gradient", lambda q, k, v: {"score_mod": learned_bias(torch.rand(4).double())}),
    (ValueError, "dimension 0", lambda q, k, v: {"query": q[..., :0], "key": k[..., :0]}),
    (ValueError, "dimension 0", lambda q, k, v: {"value": v[..., :0]}),
    (ValueError, "multiple", lambda q, k, v: {"key": k[:, :0], "value": v[:, :0], "enable_gqa": True}),
    (UntranslatableError, r"aten\.erf", lambda q, k, v: {"score_mod": lambda s, b, h, i, j: torch.erf(s)}),
    (paged.RangeError, "slopes", lambda q, k, v: {"score_mod": lambda s, b, h, i, j: s + slopes[h + 7]}),
])
def test_errors(error: Any, match: str, change: Any) -> None:
    query, key, value = tensors(kv_heads=4)
    options = {"query": query, "key": key, "value": value} | change(query, key, value)
    with pytest.raises(error, match=match):
        flex_attention(**options)
    compare(query, key, value)


def test_no_grad_is_enough() -> None:
    query, key, value = tensors(heads=2)
    with torch.no_grad():
        out = flex_attention(query.requires_grad_(), key, value, learned_bias(torch.rand(2)))
        assert not out.requires_grad


# ------------------------------------------------------------------------------------------------ pools, threads, forks


def test_number_of_pools_is_bounded() -> None:
    for dim in range(1, 2 * module.MAX_SCRATCH_POOLS):
        flex_attention(*tensors(1, 1, 1, 2, 2, dim))
    assert len(module._scratch) == module.MAX_SCRATCH_POOLS


def test_threads() -> None:
    results: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        try:
            for n in range(20):
                shape = 1 + n % 3, 2, 10 + n * seed, 16
                query, key, value = (torch.randn(shape, generator=generator) for _ in range(3))
                out = flex_attention(query, key, value)
                expected = scaled_dot_product_attention(query.double(), key.double(), value.double())
                results.append((out - expected).abs().max().item() < 1e-5)
        except BaseException as error:
            results.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_has_pools_of_its_own() -> None:
    query, key, value = tensors(heads=2)
    expected = flex_attention(query, key, value)
    child = os.fork()
    if child == 0:
        # libgomp's threads do not survive a fork.
        torch.set_num_threads(1)
        os._exit(0 if torch.equal(flex_attention(query, key, value), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(flex_attention(query, key, value), expected)


# ------------------------------------------------------------------------------------------------------ PagedAttention


class Paged:
    """Sequences with K and V in pages, and the same as dense tensors."""

    def __init__(self, lengths: list[int], in_place: bool = True, page_size: int = 16,
                 dtype: Any = torch.float32) -> None:
        self.lengths, n_pages = lengths, 4 * sum(-(-n // page_size) for n in lengths)
        geometry = {"n_layers": 2, "n_kv_heads": 2, "k_dim": 32, "dtype": dtype} if in_place else {}
        self.attention = PagedAttention(n_pages, page_size, len(lengths), device="cpu", **geometry)
        self.longest = max(lengths)
        _, self.key, self.value = tensors(len(lengths), 4, 2, 1, self.longest, dtype=dtype)
        if in_place:
            self.k_cache, self.v_cache = self.attention.caches(1)
        else:
            self.k_cache, self.v_cache = (torch.zeros(1, 2, n_pages * page_size, 32, dtype=dtype) for _ in range(2))
        # Interleaved growth, so that the pages of a row are scattered.
        for part in (3, 2, 1):
            for row, n in enumerate(lengths):
                self.attention.reserve(torch.tensor(row), torch.tensor(max(n // part, 1)))
        for row, n in enumerate(lengths):
            at = torch.tensor([row])
            self.attention.assign(at, torch.arange(n)[None], self.key[at, :, :n], self.value[at, :, :n], self.k_cache,
                                  self.v_cache)

    def compare(self, mask_mod: Any, score_mod: Any, rows: list[int], q_len: int, block: int = 16) -> None:
        query = torch.randn(len(rows), 4, q_len, 32).to(self.key.dtype)
        length = torch.tensor([self.lengths[row] for row in rows])
        logical = create_block_mask(mask_mod, len(rows), 4, q_len, self.longest, device="cpu", BLOCK_SIZE=block)
        index = torch.tensor(rows)
        converted = self.attention.convert_logical_block_mask(logical, index, kv_len=length)
        paged_score = self.attention.get_score_mod(score_mod, kv_len=length, batch_idx=index)
        out, lse = flex_attention(query, self.k_cache, self.v_cache, paged_score, converted, enable_gqa=True,
                                  return_lse=True)

        def limited(b, h, q_idx, kv_idx):
            return mask_mod(b, h, q_idx, kv_idx) & (kv_idx < length[b])

        expected, expected_lse = golden(query, self.key[rows], self.value[rows], score_mod=score_mod,
                                        block_mask=create_block_mask(limited, len(rows), 4, q_len, self.longest,
                                                                     device="cpu", BLOCK_SIZE=block))
        tolerance = 1e-5 if query.dtype == torch.float32 else 2e-2
        torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=0)
        torch.testing.assert_close(lse.double(), expected_lse, atol=1e-2 if tolerance > 1e-3 else 3e-5, rtol=0)


@pytest.mark.parametrize("mask_mod", [noop_mask, causal, by_head, prefix_lm, some_rows])
@pytest.mark.parametrize("score_mod", [None, alibi, bias])
@pytest.mark.parametrize("q_len", [1, 20])
def test_pages_in_place(monkeypatch: pytest.MonkeyPatch, mask_mod: Any, score_mod: Any, q_len: int) -> None:
    monkeypatch.delattr(module, "_attend_copy")
    sequences = Paged([33, 70, 57])
    sequences.compare(mask_mod, score_mod, [0, 1, 2], q_len)
    sequences.compare(mask_mod, score_mod, [2, 0], q_len)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pages_in_place_of_other_types(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    monkeypatch.delattr(module, "_attend_copy")
    Paged([33, 70, 57], dtype=dtype).compare(causal, alibi, [1, 2], 8)


@pytest.mark.parametrize("layer", [0, 1])
def test_pages_of_an_open_pool(monkeypatch: pytest.MonkeyPatch, pool: paged.Pool, layer: int) -> None:
    """A pool of an embedded owner, and one of a daemon."""
    monkeypatch.delattr(module, "_attend_copy")
    query, key, value = tensors(2, 4, 2, 20, 50, 16)
    with PagedAttention(pool.n_pages, pool.page_size, 2, "cpu", pool=pool) as attention:
        rows = torch.arange(2)
        attention.reserve(rows, 50)
        caches = attention.caches(layer)
        attention.assign(rows, torch.arange(50).expand(2, -1), key, value, *caches)
        logical = mask_of(causal, query, key, 2, block=16)
        out = flex_attention(query, *caches, attention.get_score_mod(alibi, torch.tensor([50, 50])),
                             attention.convert_logical_block_mask(logical, kv_len=torch.tensor([50, 50])),
                             enable_gqa=True)
        expected, _ = golden(query, key, value, score_mod=alibi, block_mask=logical)
        torch.testing.assert_close(out, expected.float(), atol=1e-5, rtol=0)
        del caches


@pytest.mark.parametrize("page_size, block", [(16, 8), (16, 32), (8, 8), (32, 16)])
def test_pages_and_blocks_of_other_sizes(monkeypatch: pytest.MonkeyPatch, page_size: int, block: int) -> None:
    monkeypatch.delattr(module, "_attend_copy")
    Paged([33, 70, 57], page_size=page_size).compare(prefix_lm, None, [2, 1], 20, block)


def test_caches_of_the_caller() -> None:
    """Mods over physical positions are translated as any others."""
    Paged([33, 70, 57], in_place=False).compare(causal, alibi, [0, 1, 2], 20)


def test_lists_of_a_converted_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists without a mask mod, over pages."""
    monkeypatch.delattr(module, "_attend_copy")
    sequences = Paged([64, 64])
    query = torch.randn(2, 4, 16, 32)
    lists = torch.tensor([[2, 0, 1, 3], [3, 1, 0, 2]], dtype=torch.int32).view(2, 1, 1, 4)
    counts = torch.tensor([2, 3], dtype=torch.int32).view(2, 1, 1)
    block_mask = BlockMask.from_kv_blocks(counts, lists, BLOCK_SIZE=(16, 16), seq_lengths=(16, 64))
    allowed = dense(block_mask, 16, 64)
    converted = sequences.attention.convert_logical_block_mask(block_mask)
    out = flex_attention(query, sequences.k_cache, sequences.v_cache, block_mask=converted, enable_gqa=True)
    expected, _ = golden(query, sequences.key, sequences.value, score_mod=lambda score, b, h, q, kv: torch.where(
        allowed[b, 0, q, kv], score, float("-inf")))
    torch.testing.assert_close(out, expected.float(), atol=2e-6, rtol=0)


def test_slices_of_pages() -> None:
    """They begin where the pages do, but are other tensors."""
    sequences = Paged([33, 70, 57])
    query, length = torch.randn(3, 4, 5, 32), torch.tensor([33, 70, 57])
    logical = create_block_mask(causal, 3, 1, 5, 70, device="cpu", BLOCK_SIZE=16)
    converted = sequences.attention.convert_logical_block_mask(logical, kv_len=length)
    for key, value in ((sequences.k_cache[:, :1], sequences.v_cache[:, :1]),
                       (sequences.k_cache, sequences.v_cache[..., :16])):
        expected, _ = golden(query, key, value, block_mask=converted)
        out = flex_attention(query, key, value, block_mask=converted, enable_gqa=True)
        torch.testing.assert_close(out, expected.float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("warm", [False, True])
def test_mask_older_than_the_pages(monkeypatch: pytest.MonkeyPatch, warm: bool) -> None:
    """The lists name pages: those that a row has lost are not attended, and others are where they are now."""
    monkeypatch.delattr(module, "_attend_copy")
    sequences = Paged([64, 64, 64])
    attention, key, value = sequences.attention, sequences.k_cache, sequences.v_cache
    query, lists = torch.randn(3, 4, 16, 32), torch.arange(4, dtype=torch.int32).expand(3, 1, 1, 4)
    logical = BlockMask.from_kv_blocks(torch.full((3, 1, 1), 4, dtype=torch.int32), lists, BLOCK_SIZE=(16, 16),
                                       mask_mod=causal, seq_lengths=(16, 64))
    converted = attention.convert_logical_block_mask(logical)
    if warm:
        flex_attention(query, key, value, block_mask=converted, enable_gqa=True)
    attention.erase([2, 1, 0])
    attention.reserve(0, 32)
    attention.reserve(1, 96)
    allowed = dense(converted, 16, key.shape[2])
    assert allowed[0].any() and allowed[1].any() and not allowed[2].any()
    expected, _ = golden(query, key, value, block_mask=converted, score_mod=lambda score, b, h, q, kv: torch.where(
        allowed[b, 0, q, kv], score, float("-inf")))
    out = flex_attention(query, key, value, block_mask=converted, enable_gqa=True)
    torch.testing.assert_close(out, expected.float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("lengths", [[0, 0, 0], [0, 7, 57]])
def test_rows_without_keys(monkeypatch: pytest.MonkeyPatch, lengths: list[int]) -> None:
    monkeypatch.delattr(module, "_attend_copy")
    sequences = Paged([33, 70, 57])
    sequences.lengths = lengths
    sequences.compare(noop_mask, alibi, [0, 1, 2, 1, 1], 5)


# ------------------------------------------------------------------------------------------------------- hypothesis


relaxed = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@relaxed
@given(condition=listed.conditions, number=listed.floats)
def test_generated_mods(condition: Any, number: Any) -> None:
    """At most ten times the error of PyTorch's own float32, which is PyTorch's rule for its kernels."""
    query, key, value = tensors(listed.N_B, listed.N_H, 2, listed.N_Q, listed.N_Q, 16)
    options: dict[str, Any] = {
        "score_mod": lambda score, b, h, q, kv: 8 * torch.tanh(number(score, b, h, q, kv) / 8),
        "block_mask": mask_of(lambda b, h, q, kv: condition(None, b, h, q, kv), query, key, listed.N_B, listed.N_H, 8),
        "enable_gqa": True}
    try:
        out = flex_attention(query, key, value, **options)
    except (UntranslatableError, paged.LimitError) as error:
        assert "4096" in str(error) or isinstance(error, paged.LimitError)
        return
    expected, _ = golden(query, key, value, **options)
    error = (torch_flex.flex_attention(query, key, value, **options).double() - expected).abs().max().item()
    assert (out.double() - expected).abs().max().item() <= max(10 * error, 3e-6)


@relaxed
@given(batch=st.integers(1, 3), kv_heads=st.integers(1, 3), group=st.integers(1, 4), q_len=st.integers(1, 90),
       kv_len=st.integers(1, 120), dim=st.integers(1, 70), v_dim=st.integers(1, 70), mask_mod=st.sampled_from(MASKS),
       score_mod=st.sampled_from([None, alibi, soft_cap, causal_score]), block=st.sampled_from([8, 16, 128]),
       rows=st.booleans(), heads=st.booleans(), seed=st.integers(0, 99))
def test_random(batch: int, kv_heads: int, group: int, q_len: int, kv_len: int, dim: int, v_dim: int, mask_mod: Any,
                score_mod: Any, block: int, rows: bool, heads: bool, seed: int) -> None:
    torch.manual_seed(seed)
    if mask_mod is by_head:
        heads = True
    if score_mod is alibi and kv_heads * group > len(slopes):
        score_mod = None
    query, key, value = tensors(batch, kv_heads * group, kv_heads, q_len, kv_len, dim, v_dim)
    block_mask = None
    if mask_mod is not None:
        rows = rows or mask_mod in (padding, prefix_lm)
        block_mask = mask_of(mask_mod, query, key, batch if rows else None, kv_heads * group if heads else None, block)
    compare(query, key, value, score_mod=score_mod, block_mask=block_mask)
