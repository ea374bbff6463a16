# SPDX-License-Identifier: Apache-2.0
"""A model whose results on pages would be others does not use them."""
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

import torch
from generation_cases import Computed, enabled, generate
from model_cases import PAGE_SIZE, attention, make_model, random_tokens, run
from transformers.models.llama import modeling_llama

from paged.transformers import PagedCache
from paged.transformers.generation import _is_empty
from paged.transformers.trial import trial

TOKENS = random_tokens(1, 3 * PAGE_SIZE + 2)


def change(monkeypatch, change_key, change_value):
    """Let Llama change K and V between its cache and its attention."""
    original = modeling_llama.ALL_ATTENTION_FUNCTIONS

    def get_interface(name, default):
        function = original.get_interface(name, default)
        return lambda module, query, key, value, *rest, **named: function(
            module, query, change_key(key), change_value(value), *rest, **named)

    monkeypatch.setattr(modeling_llama, "ALL_ATTENTION_FUNCTIONS", SimpleNamespace(get_interface=get_interface))


@pytest.mark.parametrize("changed", ["key", "value", "both"])
def test_a_class_that_attends_to_other_tensors_computes_on_copies(model, pool, monkeypatch, changed):
    def double(x):
        return 2 * x

    def keep(x):
        return x

    change(monkeypatch, keep if changed == "value" else double, keep if changed == "key" else double)
    expected = generate(model, TOKENS)
    assert trial(model).dense and trial(model).refusal is None
    with enabled(pool):
        for n_computed in (TOKENS.shape[1], 2):
            with Computed(model) as computed:
                assert torch.equal(generate(model, TOKENS), expected)
            assert computed.first == n_computed
    cache = PagedCache(pool)
    with attention(model, "paged"), pytest.raises(RuntimeError, match="from the K and V that the cache returned"):
        run(model, cache, TOKENS)
    cache.close()


def test_a_class_that_gives_other_results_uses_its_own_cache(model, pool, monkeypatch):
    """It writes into what its cache returned: transformers' own keeps that."""
    change(monkeypatch, lambda key: key, lambda value: value.mul_(1.5))
    expected = generate(model, TOKENS)
    with enabled(pool):
        reason = r"in a trial of 12 tokens, the logits on pages differed by \S+ of their norm; 0.001 is allowed"
        with pytest.warns(RuntimeWarning, match=f"transformers' own cache is used: {reason}"):
            assert torch.equal(generate(model, TOKENS), expected)
        assert torch.equal(generate(model, TOKENS), expected)
    assert pool.counts().n_cached == 0


def test_a_class_that_is_causal_by_its_mask_alone(model, pool):
    """generate() without padding has no mask; as BigBirdPegasus."""
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
    expected = generate(model, TOKENS)
    assert trial(model).dense and trial(model).refusal is None
    with enabled(pool):
        assert torch.equal(generate(model, TOKENS), expected)


def test_layers_of_several_shapes(pool, monkeypatch):
    """The configuration does not say so; as MiMo-V2-Flash."""
    model = make_model("llama")
    layer = model.model.layers[2].self_attn
    layer.num_key_value_groups = 1
    for projection in (layer.k_proj, layer.v_proj):
        projection.weight = torch.nn.Parameter(projection.weight.repeat(2, 1))
    expected = generate(model, TOKENS)
    reason = "its layers keep K and V of several shapes: 2 heads of 16 in layer 0, 4 heads of 16 in layer 2"
    with enabled(pool), pytest.warns(RuntimeWarning, match=reason):
        assert torch.equal(generate(model, TOKENS), expected)


def test_a_trial_leaves_no_trace(model, pool, monkeypatch):
    n_passes = []
    forward = type(model).forward

    def count(self, *arguments, **named):
        n_passes.append(named["input_ids"].shape[1])
        return forward(self, *arguments, **named)

    monkeypatch.setattr(type(model), "forward", count)
    expected = generate(model, TOKENS, do_sample=True)
    n_passes.clear()
    with enabled(pool):
        assert torch.equal(generate(model, TOKENS, do_sample=True), expected)
        assert n_passes[:5] == [11, 1, 6, 5, 1]
        n_passes.clear()
        generate(model, TOKENS)
        # One for each new token.
        assert len(n_passes) == expected.shape[1] - TOKENS.shape[1]
    assert model.config._attn_implementation == "eager"


def test_tolerance_of_types_of_16_bits():
    """Models with a router, whose choice a rounding may change, pass."""
    for dtype in (torch.bfloat16, torch.float16):
        for name in ("llama", "gpt_oss", "gemma2"):
            for seed in range(3):
                model = make_model(name, dtype, seed)
                assert trial(model)[1:] == (False, None)


def test_empty_arguments_are_no_inputs():
    assert all(map(_is_empty, (None, {}, [], (), {"image": None}, {"image": {}, "video": []}, [None])))
    assert not any(map(_is_empty, ({"image": torch.zeros(0)}, [0], False, torch.zeros(1), "")))


