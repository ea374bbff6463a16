# SPDX-License-Identifier: Apache-2.0
"""Forks: beams, several answers, assistants, copies of a cache; and what generate() makes of a PagedCache."""
import copy
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from model_cases import PAGE_SIZE, attention, check_empty, expected, make_model, pool_for, random_tokens, run
from transformers import DynamicCache, set_seed

import paged
from paged.transformers import PagedCache

TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
BEAMS = {
    "greedy": {},
    "beams": {"num_beams": 4},
    "best beams": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.5, "early_stopping": True},
    "samples": {"do_sample": True, "num_return_sequences": 3, "temperature": 2.0},
    "sampled beams": {"do_sample": True, "num_beams": 3, "temperature": 2.0},
    "prompt lookup": {"prompt_lookup_num_tokens": 4},
}


def generate(model: Any, cache: Any, tokens: torch.Tensor, mask: torch.Tensor | None = None, **settings: Any) -> Any:
    set_seed(7)
    settings = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0, **settings}
    return model.generate(tokens, attention_mask=torch.ones_like(tokens) if mask is None else mask,
                          past_key_values=cache, **settings)


@pytest.mark.parametrize(("name", "kind"), [
    *(("llama", kind) for kind in BEAMS), ("mistral", "beams"), ("mistral", "prompt lookup"), ("gemma2", "greedy"),
    ("gemma4_text", "greedy"),
])
def test_generate(name: str, kind: str) -> None:
    """The answers are those with DynamicCache; afterwards no page is left."""
    model = make_model(name)
    n_rows = 1 if kind == "prompt lookup" else 2
    tokens = random_tokens(n_rows, 13).repeat(1, 2)
    own = DynamicCache(config=model.config)
    if kind == "prompt lookup":
        own.activate_past_recording()
    wanted = generate(model, own, tokens, **BEAMS[kind])
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        assert torch.equal(generate(model, cache, tokens, **BEAMS[kind]), wanted)
        assert len(set(cache.sequences)) == len(cache.sequences)
        del cache
        check_empty(pool)


@pytest.mark.parametrize(("name", "kind"), [
    ("mistral", "greedy"), ("mistral", "beams"), ("mistral", "samples"), ("gemma4_text", "greedy"),
])
def test_generate_padded(name: str, kind: str) -> None:
    model = make_model(name)
    tokens, mask = random_tokens(3, 20), torch.ones(3, 20, dtype=torch.int64)
    mask[0, :9] = mask[2, :15] = 0
    wanted = generate(model, DynamicCache(config=model.config), tokens, mask, **BEAMS[kind])
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        assert torch.equal(generate(model, cache, tokens, mask, **BEAMS[kind]), wanted)
        cache.close()


@pytest.mark.parametrize("prefill_chunk_size", [7, 16])
def test_generate_in_chunks(prefill_chunk_size: int) -> None:
    model = make_model("mistral")
    tokens = random_tokens(2, 30)
    wanted = generate(model, DynamicCache(config=model.config), tokens)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        assert torch.equal(generate(model, cache, tokens, prefill_chunk_size=prefill_chunk_size), wanted)
        cache.close()


def test_assistant() -> None:
    """The cache of the larger model is cropped where it disagrees with the smaller one."""
    model, assistant = make_model("llama"), make_model("llama", seed=1, num_hidden_layers=2)
    # An assistant that agrees often, but not always.
    state = {name: weight + 0.02 * torch.randn_like(weight) for name, weight in model.state_dict().items()}
    assistant.load_state_dict({name: state[name] for name in assistant.state_dict()})
    tokens = random_tokens(1, 13)
    wanted = generate(model, DynamicCache(config=model.config), tokens)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        assert torch.equal(generate(model, cache, tokens, assistant_model=assistant), wanted)
        cache.close()


def prepared(model: Any, pool: paged.Pool, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> PagedCache:
    cache = PagedCache(pool)
    run(model, cache, tokens, mask)
    return cache


def go_on(model: Any, cache: PagedCache, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Logits of the columns that the cache lacks."""
    return run(model, cache, tokens, mask, begin=cache.get_seq_length())


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 1, 0], [1, 1, 1], [0, 0, 2], [2], [0, 0, 1, 1, 2, 2]])
@pytest.mark.parametrize("n_columns", [2 * PAGE_SIZE, 2 * PAGE_SIZE + 3])
def test_rows(rows: list[int], n_columns: int) -> None:
    """Rows that are named twice are forked, a row that is named once keeps its sequence, others are erased."""
    model = make_model("llama")
    tokens, mask = random_tokens(3, n_columns), torch.ones(3, n_columns, dtype=torch.int64)
    mask[1, :3] = mask[2, 5] = 0
    more = random_tokens(len(rows), 9, seed=3)
    texts = torch.cat([tokens[rows], more], 1)
    shown = torch.cat([mask[rows], torch.ones_like(more)], 1)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = prepared(model, pool, tokens, mask)
        before = cache.sequences
        if len(rows) == 6:
            cache.batch_repeat_interleave(2)
        elif len(rows) == 1:
            cache.batch_select_indices(torch.tensor([False, False, True]))
        else:
            cache.reorder_cache(torch.tensor(rows))
        assert [seq == before[row] for seq, row in zip(cache.sequences, rows)] == \
            [row not in rows[:i] for i, row in enumerate(rows)]
        assert pool.check().n_sequences == len(rows)
        logits = go_on(model, cache, texts, shown)
        cache.close()
    torch.testing.assert_close(logits, expected(model, texts, shown)[:, n_columns:], **TOLERANCE)


def test_crop() -> None:
    """Pages of one's own are written again; a shared one is copied before."""
    model = make_model("llama")
    n = 3 * PAGE_SIZE
    tokens = random_tokens(2, n)
    with pool_for(model) as pool, attention(model, "paged"):
        for shared in (False, True):
            for kept in (n, n - 3, 2 * PAGE_SIZE, PAGE_SIZE + 1, 0):
                cache = prepared(model, pool, tokens)
                copied = copy.deepcopy(cache) if shared else None
                cache.crop(kept - n)
                assert cache.get_seq_length() == kept
                texts = torch.cat([tokens[:, :kept], random_tokens(2, 11, seed=kept)], 1)
                logits = go_on(model, cache, texts)
                torch.testing.assert_close(logits, expected_eager(model, texts)[:, kept:], **TOLERANCE)
                if copied is not None:
                    texts = torch.cat([tokens, random_tokens(2, 4, seed=9)], 1)
                    torch.testing.assert_close(go_on(model, copied, texts), expected_eager(model, texts)[:, n:],
                                               **TOLERANCE)
                    copied.close()
                cache.close()
        cache = prepared(model, pool, tokens)
        with pytest.raises(ValueError, match=r"crop\(5\)"):
            cache.crop(5)
        cache.crop(-n - 7)
        assert cache.get_seq_length() == 0
        cache.close()


def expected_eager(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    with attention(model, "eager"):
        return expected(model, tokens)


def test_deepcopy() -> None:
    """A prompt is computed once, and its copies share its pages."""
    model = make_model("llama")
    tokens = random_tokens(1, 4 * PAGE_SIZE + 3)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = prepared(model, pool, tokens)
        copies = [copy.deepcopy(cache) for _ in range(3)]
        assert pool.counts().n_referenced <= 4 + 4 + 64 // PAGE_SIZE + 1
        for seed, one in enumerate(copies):
            texts = torch.cat([tokens, random_tokens(1, 9, seed=seed)], 1)
            torch.testing.assert_close(go_on(model, one, texts), expected_eager(model, texts)[:, tokens.shape[1]:],
                                       **TOLERANCE)
        # Copies of an empty cache.
        again = copy.deepcopy(PagedCache(pool))
        torch.testing.assert_close(go_on(model, again, tokens), expected_eager(model, tokens), **TOLERANCE)
        del cache, copies, one, again


def test_idle_row_of_a_cropped_batch() -> None:
    """A row without tokens in the pass after a crop can be written in a later one."""
    model = make_model("llama")
    n = 2 * PAGE_SIZE
    tokens = random_tokens(2, n)
    shown = torch.ones(2, n + 8, dtype=torch.int64)
    shown[0, n - 3:n] = 0
    texts = torch.cat([tokens[:, :n - 3], random_tokens(2, 11, seed=3)], 1)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = prepared(model, pool, tokens)
        copied = copy.deepcopy(cache)
        cache.crop(-3)
        logits = run(model, cache, texts, shown, begin=n - 3, chunks=(3, 2))
        more = torch.cat([tokens, random_tokens(2, 3)], 1)
        torch.testing.assert_close(go_on(model, copied, more), expected_eager(model, more)[:, n:], **TOLERANCE)
        cache.close()
        copied.close()
    wanted = expected(model, texts, shown)[:, n - 3:]
    torch.testing.assert_close(logits[shown[:, n - 3:].bool()], wanted[shown[:, n - 3:].bool()], **TOLERANCE)


def test_beams_in_a_full_pool() -> None:
    """A step of beams needs no page more than it gives back."""
    model = make_model("llama")
    with pool_for(model, n_pages=4 * 3) as pool, attention(model, "paged"):
        cache = prepared(model, pool, random_tokens(4, 2 * PAGE_SIZE + 3))
        pool_is_full = pool.create(1, pool.counts().n_free * PAGE_SIZE)
        cache.reorder_cache(torch.tensor([1, 1, 1, 1]))
        assert cache.batch_size == 4
        with pytest.raises(paged.FullError):
            cache.batch_repeat_interleave(8)
        assert cache.batch_size == 4 and cache.get_seq_length() == 2 * PAGE_SIZE + 3
        pool.erase(pool_is_full)
        cache.batch_select_indices(torch.tensor([], dtype=torch.int64))
        assert cache.sequences == [] and cache.get_seq_length() == 0
        cache.close()
