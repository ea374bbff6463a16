# SPDX-License-Identifier: Apache-2.0
"""Greedy answers of the demo's model, token by token: those of transformers in float32."""
import pytest

pytest.importorskip("transformers")

import torch
from generation_cases import Computed, enabled
from golden_cases import MODEL, N_NEW, golden
from model_cases import check_empty
from transformers import AutoModelForCausalLM, DynamicCache

import paged
from paged.transformers import pool_parameters

# Two of one page that is not full, a prompt of 1168 tokens.
SOME = (0, 3, 11)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(MODEL).eval()


@pytest.fixture(scope="module")
def pool(model):
    with paged.embedded(pool_parameters(model.config, n_pages=256)) as client:
        yield client.pool("transformers")


def answer(model, number, **arguments):
    """The tokens of an answer."""
    tokens = torch.tensor([golden(number)[0]])
    result = model.generate(tokens, do_sample=False, max_new_tokens=N_NEW, **arguments)
    return result[0, tokens.shape[1]:].tolist()


@pytest.mark.parametrize("number", SOME)
def test_transformers_own_cache(model, number):
    assert answer(model, number, past_key_values=DynamicCache(config=model.config)) == golden(number)[1]


@pytest.mark.parametrize("number", range(12))
def test_cold(model, pool, number):
    pool.client.evict(pool.name)
    with enabled(pool), Computed(model) as computed:
        assert answer(model, number) == golden(number)[1]
    assert computed.first == len(golden(number)[0])
    check_empty(pool)


@pytest.mark.parametrize("number", SOME)
def test_warm(model, pool, number):
    prompt, expected = golden(number)
    with enabled(pool):
        answer(model, number)
        with Computed(model) as computed:
            assert answer(model, number) == expected
    # The last token is computed always, also if the pages have its K and V: prompt 11 fills 73 pages.
    assert computed.first == max(1, len(prompt) % 16)
    check_empty(pool)


def test_padded_batch(model, pool):
    """Prompts of different lengths as rows of one batch."""
    prompts = [golden(number)[0] for number in SOME[:2]]
    width = max(map(len, prompts))
    tokens = torch.tensor([[2] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with enabled(pool):
        rows = model.generate(tokens, attention_mask=mask, do_sample=False, max_new_tokens=16)[:, width:].tolist()
    for number, row in zip(SOME, rows):
        expected = golden(number)[1][:16]
        assert row[:len(expected)] == expected
    check_empty(pool)
