# SPDX-License-Identifier: Apache-2.0
"""What changes K and V, or how they come about, besides tokens and weights: nothing of it is shared or mixed up."""
import copy
import gc

import pytest

pytest.importorskip("transformers")

import torch
from generation_cases import Computed, enabled, generate
from model_cases import PAGE_SIZE, attention, make_model, random_tokens

from paged.transformers import PagedCache, model_salt

TOKENS = random_tokens(1, 3 * PAGE_SIZE + 2)


def test_forward_hooks(model, pool):
    """A hook may change what a layer computes, as when activations are steered."""
    expected = generate(model, TOKENS)
    with enabled(pool):
        hook = model.model.layers[0].register_forward_hook(lambda module, arguments, output: output + 3)
        steered = generate(model, TOKENS)
        hook.remove()
        with Computed(model) as computed:
            assert torch.equal(generate(model, TOKENS), expected)
        assert computed.first == TOKENS.shape[1]
        hook = model.model.layers[0].register_forward_hook(lambda module, arguments, output: output + 3)
        assert torch.equal(generate(model, TOKENS), steered)
        hook.remove()


def test_autocast(model, pool):
    plain = model_salt(pool, model)
    with torch.autocast("cpu", torch.bfloat16):
        assert model_salt(pool, model) != plain
    assert model_salt(pool, model) == plain


def test_buffers(model, pool):
    before = model_salt(pool, model)
    model.model.rotary_emb.inv_freq.mul_(0.5)
    assert model_salt(pool, model) != before


def test_prompt_learning(model, pool):
    """PEFT puts virtual tokens before the prompt, and its pages would be those of other tokens."""
    peft = pytest.importorskip("peft")
    plain = make_model("llama")
    expected = generate(plain, TOKENS)
    tuned = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=8)).eval()
    answers = tuned.generate(input_ids=TOKENS, max_new_tokens=8, do_sample=False)
    with enabled(pool):
        for _ in range(2):
            assert torch.equal(tuned.generate(input_ids=TOKENS, max_new_tokens=8, do_sample=False), answers)
        assert torch.equal(generate(plain, TOKENS), expected)


def test_publish_of_too_few_tokens(model, pool):
    cache = PagedCache(pool, salt=model_salt(pool, model))
    with attention(model, "paged"), torch.no_grad():
        model(TOKENS, past_key_values=cache)
    with pytest.raises(ValueError, match=f"input_ids has 4 columns, the cache {TOKENS.shape[1]}"):
        cache.publish(TOKENS[:, :4])


def test_interrupted_pass(model, pool):
    """A pass that ended between two layers is not continued in silence."""
    cache = PagedCache(pool)
    with attention(model, "paged"), torch.no_grad():
        model(TOKENS[:, :20], past_key_values=cache)

        def interrupt(*arguments):
            raise KeyboardInterrupt

        hook = model.model.layers[1].register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(TOKENS[:, 20:30], past_key_values=cache)
        hook.remove()
        with pytest.raises(RuntimeError, match=r"a forward pass was interrupted; remove its columns with crop\(\)"):
            model(TOKENS[:, 20:30], past_key_values=cache)
        cache.reset()
        again = model(TOKENS[:, :30], past_key_values=cache).logits
    with torch.no_grad():
        assert torch.allclose(again, model(TOKENS[:, :30]).logits, atol=1e-4)


def test_copy_outlives_the_cache(model, pool):
    """transformers' recipe for a prompt that several requests begin with."""
    expected = generate(model, TOKENS)
    with enabled(pool):
        output = model.generate(TOKENS, attention_mask=torch.ones_like(TOKENS), max_new_tokens=2, do_sample=False,
                                return_dict_in_generate=True)
        copied = copy.deepcopy(output.past_key_values)
        del output
        gc.collect()
        answers = generate(model, expected[:, :TOKENS.shape[1] + 2], past_key_values=copied,
                           max_new_tokens=expected.shape[1] - TOKENS.shape[1] - 2)
        assert torch.equal(answers, expected)
        del copied
        gc.collect()
    assert model.config._attn_implementation == "eager"


def test_collection_while_a_model_is_switched(model, pool, monkeypatch):
    """A cache in a cycle of references may be collected at any moment, that of the next generate() included."""
    with enabled(pool):
        output = model.generate(TOKENS, attention_mask=torch.ones_like(TOKENS), max_new_tokens=2, do_sample=False,
                                return_dict_in_generate=True)
        cycle = [output.past_key_values]
        cycle.append(cycle)
        del output, cycle
        other = make_model("llama", seed=1)
        switch = other.set_attn_implementation
        monkeypatch.setattr(other, "set_attn_implementation", lambda name: (gc.collect(), switch(name)))
        generate(other, TOKENS)
    assert model.config._attn_implementation == other.config._attn_implementation == "eager"
