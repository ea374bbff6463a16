# SPDX-License-Identifier: Apache-2.0
"""generate(output_attentions=True) while a returned PagedCache keeps its model on the attention "paged"."""
import threading

import pytest

pytest.importorskip("transformers")

import torch
from generation_cases import enabled, generate
from model_cases import check_empty, make_model, random_tokens
from transformers import DynamicCache
from transformers.generation.streamers import BaseStreamer

from paged.transformers import PagedCache

TOKENS = random_tokens(1, 20)


def result_of(model, tokens=TOKENS, **arguments):
    return model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=6, do_sample=False,
                          return_dict_in_generate=True, **arguments)


def assert_equal_attentions(found, expected):
    assert isinstance(found.past_key_values, DynamicCache) and torch.equal(found.sequences, expected.sequences)
    assert [len(layers) for layers in found.attentions] == [4] * 6
    for layers, expected_layers in zip(found.attentions, expected.attentions, strict=True):
        for weights, expected_weights in zip(layers, expected_layers, strict=True):
            assert torch.equal(weights, expected_weights)


@pytest.mark.parametrize("arguments", [{}, {"num_beams": 3}, {"prompt_lookup_num_tokens": 3}], ids=str)
def test_weights_are_those_of_transformers_own_cache(model, pool, arguments):
    arguments = {"output_attentions": True, **arguments}
    expected = result_of(model, **arguments)
    with enabled(pool):
        held = result_of(model)
        found = result_of(model, **arguments)
        assert model.config._attn_implementation == "paged"
        assert torch.equal(found.sequences, expected.sequences)
        pairs = list(zip(sum(found.attentions, ()), sum(expected.attentions, ()), strict=True))
        assert len(pairs) >= 4 and all(torch.equal(a, b) for a, b in pairs)
        # The cache that was held goes on.
        answers = generate(model, held.sequences, past_key_values=held.past_key_values, max_new_tokens=4)
        assert torch.equal(answers, generate(model, TOKENS, max_new_tokens=10))
        del held
        assert model.config._attn_implementation == "eager"


def test_two_threads(model, pool):
    """Each with a model of its own."""
    models = [model, make_model("llama", seed=1)]
    batches = [random_tokens(1, 20, seed=seed) for seed in range(4)]
    expected = [[result_of(model, tokens, output_attentions=True) for tokens in batches] for model in models]
    found = [[], []]

    def run(i):
        for tokens in batches:
            held = result_of(models[i], tokens)
            found[i].append(result_of(models[i], tokens, output_attentions=True))
            del held

    with enabled(pool):
        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for i in range(2):
        assert len(found[i]) == len(batches)
        for a, b in zip(found[i], expected[i]):
            assert_equal_attentions(a, b)
        assert models[i].config._attn_implementation == "eager"


class Release(BaseStreamer):
    """Lets the held result go when the third token comes."""

    def __init__(self, held):
        self.held, self.n_tokens = held, 0

    def put(self, value):
        self.n_tokens += 1
        if self.n_tokens == 3:
            self.held = None

    def end(self):
        pass


def test_cache_is_released_meanwhile(model, pool):
    expected = result_of(model, output_attentions=True)
    with enabled(pool):
        streamer = Release(result_of(model))
        assert_equal_attentions(result_of(model, output_attentions=True, streamer=streamer), expected)
        assert streamer.held is None and model.config._attn_implementation == "eager"
        check_empty(pool)


def test_exception(model, pool):
    def interrupt(input_ids, scores):
        raise KeyboardInterrupt

    with enabled(pool):
        held = result_of(model)
        with pytest.raises(KeyboardInterrupt):
            result_of(model, output_attentions=True, logits_processor=[interrupt])
        assert model.config._attn_implementation == "paged"
        answers = generate(model, held.sequences, past_key_values=held.past_key_values, max_new_tokens=4)
        assert torch.equal(answers, generate(model, TOKENS, max_new_tokens=10))
        del held


def test_of_a_paged_cache(model, pool):
    """Its attention has no weights, and an empty tuple would pass for an answer."""
    with enabled(pool):
        held = result_of(model)
        with pytest.raises(NotImplementedError, match="paged attention returns no weights"):
            result_of(model, held.sequences, past_key_values=held.past_key_values, output_attentions=True)
        del held


def test_of_a_dense_cache(model, pool):
    """It works with any attention."""
    expected = result_of(model, output_attentions=True)
    with enabled(pool):
        held = result_of(model)
        cache = PagedCache(pool, dense=True)
        found = result_of(model, past_key_values=cache, output_attentions=True)
        for layers, expected_layers in zip(found.attentions, expected.attentions, strict=True):
            for weights, expected_weights in zip(layers, expected_layers, strict=True):
                torch.testing.assert_close(weights, expected_weights)
        del held, found
        cache.close()
