# SPDX-License-Identifier: Apache-2.0
"""PagedCache: what the model computes with it, and what becomes of its pages."""
import pytest

pytest.importorskip("transformers")

import torch
from model_cases import attention, check_empty, expected, make_model, pool_for, random_tokens, run
from transformers import DynamicCache

from paged.transformers import PagedCache

CHUNKS = [(), (11, 20), (30, 1, 1, 1)]
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("dense", [False, True])
def test_logits(dense: bool, chunks: tuple[int, ...]) -> None:
    model = make_model("llama")
    tokens = random_tokens(3, 37)
    with pool_for(model) as pool, attention(model, "eager" if dense else "paged"):
        cache = PagedCache(pool, dense=dense)
        logits = run(model, cache, tokens, chunks=chunks)
        assert cache.get_seq_length() == 37 and cache.batch_size == 3
        assert [pool.read(seq).n_pages >= 5 for seq in cache.sequences] == [True] * 3
        cache.close()
    torch.testing.assert_close(logits, expected(model, tokens), **TOLERANCE)


def test_generate() -> None:
    model = make_model("llama")
    tokens = random_tokens(2, 13)
    settings = {"max_new_tokens": 30, "do_sample": False, "attention_mask": torch.ones_like(tokens)}
    answers = model.generate(tokens, past_key_values=DynamicCache(config=model.config), **settings)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        assert torch.equal(model.generate(tokens, past_key_values=cache, **settings), answers)
        del cache
        check_empty(pool)   # without a garbage collection


def test_other_attention_is_refused() -> None:
    """A model that ignores the pages would see the keys of one pass only."""
    model = make_model("llama")
    with pool_for(model) as pool:
        cache = PagedCache(pool)
        with pytest.raises(RuntimeError, match='layer 0 .* attention "paged"'):
            run(model, cache, random_tokens(1, 9))
        assert cache.get_seq_length() == 0
        cache.close()
