# SPDX-License-Identifier: Apache-2.0
"""Models whose layers all have a sliding window give back the pages that it has left behind."""
import copy

import pytest

pytest.importorskip("transformers")

import torch
from generation_cases import enabled, generate
from model_cases import PAGE_SIZE, attention, expected, make_model, pool_for, random_tokens, run

from paged.transformers import PagedCache, model_window

WINDOW = 12     # of the models in model_cases
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture
def mistral():
    return make_model("mistral")


def test_model_window():
    """As for DynamicCache, one layer that sees all tokens keeps all."""
    windows = {name: model_window(make_model(name).config) for name in ("mistral", "llama", "gemma2", "llama4_text")}
    assert windows == {"mistral": WINDOW, "llama": None, "gemma2": None, "llama4_text": None}
    assert model_window(make_model("mistral", sliding_window=None).config) is None


@pytest.mark.parametrize("arguments", [{}, {"do_sample": True, "top_k": 8}, {"prefill_chunk_size": 7}])
def test_pool_of_the_window_size(mistral, arguments):
    """A generation of many times the pool's tokens has those of transformers' own cache."""
    tokens = random_tokens(1, 25)
    answers = generate(mistral, tokens, max_new_tokens=400, **arguments)
    with pool_for(mistral, n_pages=5) as pool, enabled(pool, reserve_ahead=8):
        assert pool.n_pages * PAGE_SIZE < 2 * tokens.shape[1] < 400
        assert torch.equal(generate(mistral, tokens, max_new_tokens=400, **arguments), answers)


def test_prompt_in_chunks(mistral):
    """A prompt longer than the pool, too."""
    tokens = random_tokens(1, 90)
    answers = generate(mistral, tokens, max_new_tokens=20)
    with pool_for(mistral, n_pages=5) as pool, enabled(pool, reserve_ahead=0):
        assert torch.equal(generate(mistral, tokens, max_new_tokens=20, prefill_chunk_size=8), answers)


@pytest.mark.parametrize("arguments", [{}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 3}])
def test_padded_rows(mistral, arguments):
    """Each row trims what it alone has left behind; beams are forks of trimmed rows."""
    tokens, mask = random_tokens(3, 30), torch.ones(3, 30, dtype=torch.int64)
    mask[0, :11] = mask[2, :25] = 0
    answers = generate(mistral, tokens, mask, max_new_tokens=70, **arguments)
    n_rows = 3 * max(arguments.values(), key=lambda value: value if value is not True else 0, default=1)
    with pool_for(mistral, n_pages=6 * n_rows) as pool, enabled(pool, reserve_ahead=0):
        for _ in range(2):
            assert torch.equal(generate(mistral, tokens, mask, max_new_tokens=70, **arguments), answers)


@pytest.mark.parametrize("mode", [{"prompt_lookup_num_tokens": 3}, {"num_assistant_tokens": 4}])
def test_assisted_decoding(mistral, mode):
    """It crops the cache, which keeps all tokens then."""
    tokens = torch.cat([random_tokens(1, 9)] * 4, dim=1)
    arguments = dict(mode)
    if "num_assistant_tokens" in mode:
        arguments["assistant_model"] = make_model("mistral", seed=3)
    with pool_for(mistral) as pool, enabled(pool):
        answers = generate(mistral, tokens, **arguments)
    assert torch.equal(answers, generate(mistral, tokens))


def test_crop_within_the_slack(mistral):
    tokens = random_tokens(2, 120)
    with pool_for(mistral) as pool, attention(mistral, "paged"):
        logits = expected_eager(mistral, tokens)
        cache = PagedCache(pool, window=WINDOW, slack=10)
        for begin in range(0, 110, 10):
            run(mistral, cache, tokens[:, :begin + 10], begin=begin)
            cache.crop(-10)
            assert cache.get_seq_length() == begin
            again = run(mistral, cache, tokens[:, :begin + 10], begin=begin)
            torch.testing.assert_close(again, logits[:, begin:begin + 10], **TOLERANCE)
        assert all(pool.read(seq).n_trimmed == (100 + 1 - WINDOW - 10) // PAGE_SIZE for seq in cache.sequences)
        with pytest.raises(ValueError, match="cannot crop to 60 columns: the window of 12 would begin at token 49, and "
                                             "those before 72 were given back"):
            cache.crop(-50)
        with pytest.raises(ValueError, match="cannot crop to 0 columns"):
            cache.crop(-110)
        torch.testing.assert_close(run(mistral, cache, tokens, begin=110), logits[:, 110:], **TOLERANCE)
        cache.reset()
        torch.testing.assert_close(run(mistral, cache, tokens[:1]), logits[:1], **TOLERANCE)
        cache.close()


def expected_eager(model, tokens):
    with attention(model, "eager"):
        return expected(model, tokens)


def test_copies_and_selected_rows(mistral):
    """Copies share the pages that are left; both go on, and trim for themselves."""
    tokens = random_tokens(3, 90)
    logits = expected_eager(mistral, tokens)
    with pool_for(mistral) as pool, attention(mistral, "paged"):
        cache = PagedCache(pool, window=WINDOW)
        run(mistral, cache, tokens[:, :50], chunks=(20, 20))
        copied = copy.deepcopy(cache)
        copied.reorder_cache(torch.tensor([2, 0, 2]))
        torch.testing.assert_close(run(mistral, copied, tokens[[2, 0, 2]], chunks=(13, 13), begin=50),
                                   logits[[2, 0, 2], 50:], **TOLERANCE)
        torch.testing.assert_close(run(mistral, cache, tokens, chunks=(1,) * 10, begin=50), logits[:, 50:], **TOLERANCE)
        assert all(pool.read(seq).n_trimmed > 4 for seq in cache.sequences + copied.sequences)
        cache.close()
        copied.close()


def test_returned_cache_goes_on(mistral):
    """The cache that generate() returns serves the next one."""
    tokens = random_tokens(1, 40)
    whole = generate(mistral, tokens, max_new_tokens=60)
    with pool_for(mistral, n_pages=12) as pool, enabled(pool):
        result = mistral.generate(tokens, max_new_tokens=30, do_sample=False, return_dict_in_generate=True)
        cache = result.past_key_values
        assert pool.read(cache.sequences[0]).n_trimmed > 0
        assert torch.equal(generate(mistral, result.sequences, max_new_tokens=30, past_key_values=cache), whole)
        cache.close()
        del result, cache


def test_published_pages_are_found_after_a_trim(mistral):
    """What was published before it was given back stays in the pool's cache."""
    tokens = random_tokens(1, 40)
    with pool_for(mistral) as pool, enabled(pool):
        answer = generate(mistral, tokens, max_new_tokens=60)
        assert torch.equal(generate(mistral, tokens, max_new_tokens=60), answer)
        assert pool.counts().n_cached >= (40 + 60 - 1) // PAGE_SIZE


def test_another_mask_keeps_all(mistral):
    """A mask of the caller's may show every token: nothing is given back, or the pass is refused."""
    tokens = random_tokens(1, 60)
    mask = torch.ones(1, 1, 30, 30, dtype=torch.bool).tril()
    with pool_for(mistral) as pool, attention(mistral, "paged"), torch.no_grad():
        cache = PagedCache(pool, window=WINDOW)
        mistral(tokens[:, :30], attention_mask=mask, past_key_values=cache)
        run(mistral, cache, tokens, chunks=(10, 10), begin=30)
        assert pool.read(cache.sequences[0]).n_trimmed == 0
        cache.reset()
        cache.close()
        cache = PagedCache(pool, window=WINDOW)
        run(mistral, cache, tokens[:, :30], chunks=(29,))
        with pytest.raises(ValueError, match="a mask of the caller's needs all tokens"):
            mistral(tokens[:, 30:31], attention_mask=torch.ones(1, 1, 1, 31, dtype=torch.bool), past_key_values=cache)
        assert cache.get_seq_length() == 30
        cache.close()


def test_arguments(mistral):
    with pool_for(mistral) as pool:
        for arguments in ({"window": 0}, {"window": 4, "slack": -1}):
            with pytest.raises(ValueError, match="window is"):
                PagedCache(pool, **arguments)
