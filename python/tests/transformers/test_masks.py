# SPDX-License-Identifier: Apache-2.0
"""Masks: padding on any side, windows and chunks under padding, functions of the caller's."""
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from model_cases import PAGED_MODELS, attention, expected, make_model, pool_for, random_tokens, run
from transformers import DynamicCache
from transformers.masking_utils import create_causal_mask

from paged.transformers import PagedCache
from paged.transformers.masks import PagedMask, paged_mask

TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
N_COLUMNS = 41


def make_mask(kind: str) -> torch.Tensor:
    """An attention mask of three rows."""
    mask = torch.ones(3, N_COLUMNS, dtype=torch.int64)
    if kind == "left":
        mask[0, :9] = mask[2, :20] = 0
    elif kind == "right":
        mask[0, 30:] = mask[2, 20:] = 0
    elif kind == "holes":
        mask[0, 5:9] = mask[2, ::3] = mask[1, :2] = mask[1, 38:] = 0
    return mask


@pytest.mark.parametrize("kind", ["left", "right", "holes"])
@pytest.mark.parametrize("name", PAGED_MODELS)
def test_padding(name: str, kind: str) -> None:
    """Columns of tokens have the logits that they have in transformers; the pages hold no padding."""
    model = make_model(name)
    tokens, mask = random_tokens(3, N_COLUMNS), make_mask(kind)
    wanted = expected(model, tokens, mask)[mask.bool()]
    with pool_for(model) as pool, attention(model, "paged"):
        for chunks in ((), (25, 1, 1)):
            cache = PagedCache(pool, reserve_ahead=0)
            logits = run(model, cache, tokens, mask, chunks=chunks)
            torch.testing.assert_close(logits[mask.bool()], wanted, **TOLERANCE)
            for seq, n_tokens in zip(cache.sequences, mask.sum(1).tolist()):
                assert n_tokens <= pool.read(seq).capacity <= n_tokens + pool.page_size
            cache.close()


def test_padded_batch_of_single_rows() -> None:
    """A padded row is computed as the same text alone."""
    model = make_model("mistral")
    tokens, mask = random_tokens(3, N_COLUMNS), make_mask("left")
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        logits = run(model, cache, tokens, mask)
        for row in range(3):
            alone = PagedCache(pool)
            text = tokens[row:row + 1, mask[row].bool()]
            torch.testing.assert_close(logits[row:row + 1, mask[row].bool()], run(model, alone, text), **TOLERANCE)
            alone.close()
        cache.close()


def test_idle_row() -> None:
    """A chunk may be padding alone for a row."""
    model = make_model("llama")
    tokens, mask = random_tokens(3, N_COLUMNS), make_mask("left")
    mask[1, :15] = 0
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        logits = run(model, cache, tokens, mask, chunks=(7, 8))
        cache.close()
    torch.testing.assert_close(logits[mask.bool()], expected(model, tokens, mask)[mask.bool()], **TOLERANCE)


def prefix_lm(batch: Any, head: Any, q: Any, kv: Any) -> Any:
    return kv < 7


def image_groups(groups: torch.Tensor) -> Any:
    """Tokens of an image see each other, as in Gemma 3."""
    def mod(batch: Any, head: Any, q: Any, kv: Any) -> Any:
        inside = torch.where(q < groups.shape[1], groups[batch, q.clamp(max=groups.shape[1] - 1)], -1)
        return (inside == groups[batch, kv]) & (inside >= 0)
    return mod


def documents(ids: torch.Tensor) -> Any:
    def mod(batch: Any, head: Any, q: Any, kv: Any) -> Any:
        return ids[batch, q] == ids[batch, kv]
    return mod


def untranslatable(batch: Any, head: Any, q: Any, kv: Any) -> Any:
    return torch.special.i0((q - kv).float()) < 1e3


GROUPS = torch.full((3, N_COLUMNS), -1)
GROUPS[:, 4:15] = 0
GROUPS[:, 20:33] = 1
CUSTOM = {
    "prefix": {"or_mask_function": prefix_lm},
    "images": {"or_mask_function": image_groups(GROUPS)},
    "documents": {"and_mask_function": documents((torch.arange(N_COLUMNS) // 10).expand(3, -1))},
    "both": {"or_mask_function": prefix_lm, "and_mask_function": image_groups(GROUPS + 2)},
    "untranslatable": {"and_mask_function": untranslatable},
    "blocks": {"block_sequence_ids": GROUPS},
}


def run_custom(model: Any, cache: Any, tokens: torch.Tensor, mask: torch.Tensor | None, chunks: tuple[int, ...],
               **custom: Any) -> torch.Tensor:
    """Logits with a mask that is made here, as models with images do."""
    logits, begin = [], 0
    positions = (torch.ones_like(tokens) if mask is None else mask).cumsum(1).sub(1).clamp(min=0)
    for size in (*chunks, tokens.shape[1] - sum(chunks)):
        end = begin + size
        with torch.no_grad():
            made = create_causal_mask(
                config=model.config, inputs_embeds=model.get_input_embeddings()(tokens[:, begin:end]),
                attention_mask=None if mask is None else mask[:, :end], past_key_values=cache,
                position_ids=positions[:, begin:end], **custom)
            logits.append(model(tokens[:, begin:end], attention_mask=made, position_ids=positions[:, begin:end],
                                past_key_values=cache).logits)
        begin = end
    return torch.cat(logits, 1)


@pytest.mark.parametrize("kind", [None, "left", "holes"])
@pytest.mark.parametrize("custom", CUSTOM)
def test_functions_of_the_caller(custom: str, kind: str | None) -> None:
    model = make_model("llama")
    tokens, mask = random_tokens(3, N_COLUMNS), make_mask(kind) if kind else None
    shown = torch.ones_like(tokens).bool() if mask is None else mask.bool()
    chunks = (34, 1)
    wanted = run_custom(model, DynamicCache(config=model.config), tokens, mask, chunks, **CUSTOM[custom])
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        logits = run_custom(model, cache, tokens, mask, chunks, **CUSTOM[custom])
        cache.close()
    torch.testing.assert_close(logits[shown], wanted[shown], **TOLERANCE)


def test_packed_texts() -> None:
    """Several texts in one row, by their position_ids, without a cache: there is no page to read."""
    model = make_model("mistral")
    tokens = random_tokens(1, 30)
    positions = torch.cat([torch.arange(17), torch.arange(13)])[None]
    with torch.no_grad():
        wanted = model(tokens, position_ids=positions, use_cache=False).logits
        with attention(model, "paged"):
            logits = model(tokens, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(logits, wanted, **TOLERANCE)


def test_masks_that_change() -> None:
    """A token that a later mask hides is hidden; padding that a later mask shows has no K and V."""
    model = make_model("llama")
    tokens, mask = random_tokens(3, N_COLUMNS), make_mask("left")
    later = mask.clone()
    later[1, 3:6] = 0
    with pool_for(model) as pool:
        caches = DynamicCache(config=model.config), PagedCache(pool)
        logits = []
        for cache, name in zip(caches, ("eager", "paged")):
            with attention(model, name), torch.no_grad():
                run(model, cache, tokens[:, :30], mask[:, :30])
                positions = mask.cumsum(1).sub(1)[:, 30:]
                logits.append(model(tokens[:, 30:], attention_mask=later, position_ids=positions,
                                    past_key_values=cache).logits)
        torch.testing.assert_close(logits[1], logits[0], **TOLERANCE)
        with attention(model, "paged"), torch.no_grad():
            for wrong in (None, torch.ones(3, N_COLUMNS + 1)):
                with pytest.raises(ValueError, match="shows column 0 of row 0"):
                    model(tokens[:, :1], attention_mask=wrong, past_key_values=caches[1])
        caches[1].close()


def test_no_mask_for_causal_attention() -> None:
    ones = torch.ones(2, 9, dtype=torch.bool)
    assert paged_mask(2, 9, 9, attention_mask=ones) is None
    assert paged_mask(2, 1, 9, q_offset=8) is None
    assert paged_mask(2, 1, 9, q_offset=8, local_size=10) is None
    assert paged_mask(2, 3, 9, q_offset=6) is not None      # sdpa would align the mask on the other side
    assert paged_mask(2, 1, 9, q_offset=8, local_size=9) is not None
    assert paged_mask(2, 9, 9, attention_mask=ones, allow_is_causal_skip=False) is not None
    ones[1, 0] = False
    assert paged_mask(2, 1, 9, q_offset=8, attention_mask=ones) is not None


def test_mask_is_a_tensor() -> None:
    """Models may look at their mask, slice and change it."""
    mask = paged_mask(2, 3, 9, q_offset=6)
    assert isinstance(mask, PagedMask) and isinstance(mask, torch.Tensor)
    assert mask.shape == (2, 1, 3, 9) and mask.dim() == 4 and len(mask) == 2 and mask.dtype is torch.bool
    wanted = torch.ones(3, 9, dtype=torch.bool).tril(6).expand(2, 1, 3, 9)
    for seen, own in ((mask[:, :, :, :7], wanted[..., :7]), (~mask, ~wanted), (mask.float(), wanted.float()),
                      (torch.where(mask, 1, 0), wanted.long()), (mask.clone(), wanted)):
        assert type(seen) is torch.Tensor and torch.equal(seen, own)


@pytest.mark.parametrize("kind", ["left", "holes"])
def test_model_that_slices_its_mask(kind: str) -> None:
    """The mask is a matrix then, from the first pass on."""
    model = make_model("mistral")
    tokens, mask = random_tokens(3, N_COLUMNS), make_mask(kind)
    wanted = expected(model, tokens, mask)[mask.bool()]

    def slice_mask(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if kwargs.get("attention_mask") is not None:
            kwargs["attention_mask"] = kwargs["attention_mask"][..., :]
        return args, kwargs

    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(slice_mask, with_kwargs=True)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        logits = run(model, cache, tokens, mask, chunks=(25, 1))
        cache.close()
    torch.testing.assert_close(logits[mask.bool()], wanted, **TOLERANCE)
