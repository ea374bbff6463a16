# SPDX-License-Identifier: Apache-2.0
"""Rows of a PagedCache that start on published prefixes."""
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from model_cases import PAGE_SIZE, attention, expected, make_model, pool_for, random_tokens, run
from transformers.masking_utils import create_causal_mask

import paged
from paged.transformers import PagedCache

TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
SALT = paged.salt("model")


def ones(tokens: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(tokens)


def expected_eager(model: Any, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    with attention(model, "eager"):
        return expected(model, tokens, mask)


def publish(model: Any, pool: paged.Pool, tokens: torch.Tensor, mask: torch.Tensor | None = None,
            dense: bool = False) -> None:
    """Compute a batch, publish it, and end."""
    cache = PagedCache(pool, salt=SALT, dense=dense)
    run(model, cache, tokens, mask)
    cache.publish(tokens, mask)
    cache.close()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("n_columns", [PAGE_SIZE - 1, PAGE_SIZE, 2 * PAGE_SIZE, 2 * PAGE_SIZE + 3])
def test_same_text(n_columns: int, dense: bool) -> None:
    """All full pages are shared; the last token is computed in any case, for its logits."""
    model = make_model("llama")
    tokens = random_tokens(2, n_columns)
    n_shared = n_columns // PAGE_SIZE * PAGE_SIZE
    with pool_for(model) as pool, attention(model, "eager" if dense else "paged"):
        publish(model, pool, tokens, dense=dense)
        assert pool.counts().n_cached == 2 * (n_shared // PAGE_SIZE)
        cache = PagedCache(pool, salt=SALT, dense=dense)
        begin = cache.start(tokens)
        assert begin == cache.get_seq_length() == min(n_shared, n_columns - 1)
        more = torch.cat([tokens, random_tokens(2, 5, seed=2)], 1)
        logits = run(model, cache, more, begin=begin, chunks=(n_columns - begin, 1))
        torch.testing.assert_close(logits, expected_eager(model, more)[:, begin:], **TOLERANCE)
        cache.close()


def test_whole_prompt() -> None:
    """The K and V of the last token exist; they are not written again."""
    model = make_model("llama")
    tokens = random_tokens(1, 3 * PAGE_SIZE)
    with pool_for(model) as pool, attention(model, "paged"):
        publish(model, pool, tokens)
        cache = PagedCache(pool, salt=SALT)
        begin = cache.start(tokens)
        pages = pool.page_table(cache.sequences[0])
        assert begin == 3 * PAGE_SIZE - 1 and len(pages) == 3
        logits = run(model, cache, tokens, begin=begin)
        assert pool.page_table(cache.sequences[0])[:3] == pages
        torch.testing.assert_close(logits, expected_eager(model, tokens)[:, begin:], **TOLERANCE)
        cache.close()


def test_several_tokens_over_the_end_of_the_prefix() -> None:
    """A pass that begins in a shared page and ends behind it, as with candidates of an assistant, copies the page."""
    model = make_model("llama")
    tokens = random_tokens(1, 3 * PAGE_SIZE)
    more = torch.cat([tokens, random_tokens(1, 5, seed=2)], 1)
    with pool_for(model) as pool, attention(model, "paged"):
        publish(model, pool, tokens)
        for chunks in ((), (3,), (1, 1)):
            cache = PagedCache(pool, salt=SALT)
            begin = cache.start(tokens)
            logits = run(model, cache, more, begin=begin, chunks=chunks)
            torch.testing.assert_close(logits, expected_eager(model, more)[:, begin:], **TOLERANCE)
            assert pool.match(paged.Prefix(tokens[0].tolist(), salt=SALT)) == 3 * PAGE_SIZE
            cache.close()


def padded(texts: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, texts))
    tokens, mask = torch.zeros(len(texts), width, dtype=torch.int64), torch.zeros(len(texts), width, dtype=torch.int64)
    for row, text in enumerate(texts):
        where = slice(width - len(text), width) if side == "left" else slice(0, len(text))
        tokens[row, where], mask[row, where] = text, 1
    return tokens, mask


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_padded_rows_share(name: str, side: str) -> None:
    """A padded row has the same K and V as its text alone, so it finds and publishes the same prefixes."""
    model = make_model(name)
    text = random_tokens(1, 5 * PAGE_SIZE)[0]
    texts = [text[:37], text[:4 * PAGE_SIZE], torch.cat([text[:30], random_tokens(1, 7, seed=5)[0]]), text[:11]]
    tokens, mask = padded(texts, side)
    wanted = expected(model, tokens, mask)
    with pool_for(model) as pool, attention(model, "paged"):
        publish(model, pool, text[None])
        # The first time, the third row shares 24 tokens, and then 32.  On the right, the last row has 8.
        for wanted_begin in {"left": (24, 32), "right": (8, 8)}[side]:
            cache = PagedCache(pool, salt=SALT)
            begin = cache.start(tokens, mask)
            assert begin == wanted_begin
            logits = run(model, cache, tokens, mask, begin=begin, chunks=(2,))
            shown = mask[:, begin:].bool()
            torch.testing.assert_close(logits[shown], wanted[:, begin:][shown], **TOLERANCE)
            cache.publish(tokens, mask)
            cache.close()
        for row in texts:
            assert pool.match(paged.Prefix(row.tolist(), salt=SALT)) == len(row) // PAGE_SIZE * PAGE_SIZE


def test_publishing_while_tokens_come() -> None:
    model = make_model("llama")
    tokens = random_tokens(2, 4 * PAGE_SIZE + 2)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool, salt=SALT)
        for n in range(1, tokens.shape[1] + 1):
            run(model, cache, tokens[:, :n], begin=n - 1)
            cache.publish(tokens[:, :n])
            assert pool.match(paged.Prefix(tokens[1].tolist(), salt=SALT)) == n // PAGE_SIZE * PAGE_SIZE
        # Tokens of other columns than those computed are ignored.
        cache.publish(torch.cat([tokens, tokens], 1))
        # What is published cannot be written: after a crop, other tokens get pages of their own.
        cache.crop(-PAGE_SIZE - 4)
        n = cache.get_seq_length()
        texts = torch.cat([tokens[:, :n], random_tokens(2, 9, seed=4)], 1)
        torch.testing.assert_close(run(model, cache, texts, begin=n), expected_eager(model, texts)[:, n:], **TOLERANCE)
        cache.publish(texts)
        for text in (*tokens, *texts):
            assert pool.match(paged.Prefix(text.tolist(), salt=SALT)) >= len(text) // PAGE_SIZE * PAGE_SIZE
        cache.close()


def test_forks_of_a_shared_prefix() -> None:
    """Answers to one prompt, which is in the pool already."""
    model = make_model("llama")
    tokens = random_tokens(1, 3 * PAGE_SIZE)
    more = torch.cat([tokens.repeat(3, 1), random_tokens(3, 9, seed=4)], 1)
    with pool_for(model) as pool, attention(model, "paged"):
        publish(model, pool, tokens)
        cache = PagedCache(pool, salt=SALT)
        begin = cache.start(tokens)
        cache.batch_repeat_interleave(3)
        logits = run(model, cache, more, begin=begin)
        torch.testing.assert_close(logits, expected_eager(model, more)[:, begin:], **TOLERANCE)
        cache.publish(more)
        for text in more:
            assert pool.match(paged.Prefix(text.tolist(), salt=SALT)) == len(text) // PAGE_SIZE * PAGE_SIZE
        cache.close()


def test_what_is_not_shared() -> None:
    model = make_model("llama")
    tokens = random_tokens(1, 2 * PAGE_SIZE)
    prefix = paged.Prefix(tokens[0].tolist(), salt=SALT)
    with pool_for(model) as pool, attention(model, "paged"):
        # Without a salt.
        cache = PagedCache(pool)
        assert cache.start(tokens) == 0
        run(model, cache, tokens)
        cache.publish(tokens)
        cache.close()
        assert pool.counts().n_cached == 0
        # Under a mask of the caller's: the K and V of later layers are others.
        cache = PagedCache(pool, salt=SALT)
        mask = create_causal_mask(config=model.config, inputs_embeds=model.get_input_embeddings()(tokens),
                                  attention_mask=None, past_key_values=cache,
                                  or_mask_function=lambda batch, head, q, kv: kv < 9)
        with torch.no_grad():
            model(tokens, attention_mask=mask, past_key_values=cache)
        cache.publish(tokens)
        assert pool.match(prefix) == 0
        # A row whose padding is not that of the forward pass.
        cache.reset()
        run(model, cache, tokens, ones(tokens))
        wrong = ones(tokens)
        wrong[0, 0] = 0
        cache.publish(tokens, wrong)
        assert pool.match(prefix) == 0
        cache.publish(tokens, ones(tokens))
        assert pool.match(prefix) == 2 * PAGE_SIZE
        # Another salt.
        other = PagedCache(pool, salt=paged.salt("other"))
        assert other.start(tokens) == 0
        other.close()
        # A cache with tokens.
        with pytest.raises(ValueError, match=f"the cache has {2 * PAGE_SIZE} columns"):
            cache.start(tokens)
        cache.close()


def test_start_again() -> None:
    """start() may be called twice before the first pass, and a full pool changes nothing."""
    model = make_model("llama")
    tokens = random_tokens(2, 2 * PAGE_SIZE + 1)
    with pool_for(model, n_pages=8) as pool, attention(model, "paged"):
        cache = PagedCache(pool, salt=SALT)
        other = pool.create(1, 4 * PAGE_SIZE)
        with pytest.raises(paged.FullError):
            cache.start(tokens)
        assert cache.sequences == [] and cache.get_seq_length() == 0
        pool.erase(other)
        assert cache.start(tokens) == cache.start(tokens) == 0
        torch.testing.assert_close(run(model, cache, tokens), expected_eager(model, tokens), **TOLERANCE)
        cache.close()
