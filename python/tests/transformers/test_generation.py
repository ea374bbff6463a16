# SPDX-License-Identifier: Apache-2.0
"""enable(): generate() gives the tokens of transformers' own cache, and shares what it computes."""
import threading
import warnings

import pytest

pytest.importorskip("transformers")

import torch
from generation_cases import Computed, enabled, generate
from model_cases import PAGE_SIZE, check_empty, make_model, pool_for, pool_settings, random_tokens
from transformers import AutoConfig, AutoModelForSeq2SeqLM, DynamicCache
from transformers.generation.streamers import BaseStreamer

import paged
from paged.transformers import PagedCache, disable, enable

MODES = {
    "greedy": {},
    "sample": {"do_sample": True, "top_k": 8},
    "samples": {"do_sample": True, "num_return_sequences": 3},
    "beams": {"num_beams": 4},
    "beam samples": {"num_beams": 3, "do_sample": True, "num_return_sequences": 2},
    "prefill in chunks": {"prefill_chunk_size": 7},
    "scores": {"output_scores": True, "return_dict_in_generate": True},
}
# Assisted decoding takes one row.
ASSISTED = {"prompt lookup": {"prompt_lookup_num_tokens": 3}, "assistant": {"num_assistant_tokens": 4}}


@pytest.mark.parametrize("mode", MODES)
def test_tokens_are_those_of_transformers_own_cache(model, pool, mode):
    tokens = random_tokens(2, 37)
    answers = generate(model, tokens, **MODES[mode])
    with enabled(pool):
        for _ in ("cold", "warm"):
            with Computed(model) as computed:
                assert torch.equal(generate(model, tokens, **MODES[mode]), answers)
            check_empty(pool)
        # All but the last 5 of 37 tokens, in full pages.
        assert computed.first == (5 if mode != "prefill in chunks" else 7)
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("mode", ASSISTED)
def test_assisted_decoding(model, pool, mode):
    tokens = torch.cat([random_tokens(1, 9)] * 4, dim=1)
    arguments = dict(ASSISTED[mode])
    if mode == "assistant":
        arguments["assistant_model"] = make_model("llama", seed=3)
    answers = generate(model, tokens, **arguments)
    with enabled(pool):
        for _ in ("cold", "warm"):
            assert torch.equal(generate(model, tokens, **arguments), answers)
            check_empty(pool)
        with Computed(model) as computed:
            generate(model, tokens)
        assert computed.first == 4


def test_padded_rows_share_with_others(model, pool):
    """Padding takes no pages, so rows share with those that have other padding."""
    tokens = random_tokens(1, 37)
    padded = torch.cat([torch.zeros(1, 6, dtype=torch.long), tokens], dim=1)
    batch = torch.cat([padded, random_tokens(1, 43, seed=5)])
    mask = torch.ones_like(batch)
    mask[0, :6] = 0
    answers = generate(model, batch, mask)
    with enabled(pool):
        assert torch.equal(generate(model, batch, mask), answers)
        with Computed(model) as computed:
            assert torch.equal(generate(model, tokens)[0], answers[0, 6:])
        assert computed.first == 5


def test_prefix_of_an_answer(model, pool):
    """Generated tokens are shared, too."""
    tokens = random_tokens(1, 20)
    with enabled(pool):
        answer = generate(model, tokens)
        again = torch.cat([answer, random_tokens(1, 2)], dim=1)
        with Computed(model) as computed:
            generate(model, again)
    # The last token of the answer has no K and V.
    assert computed.first == 2 + answer.shape[1] - (answer.shape[1] - 1) // PAGE_SIZE * PAGE_SIZE


class Matches(BaseStreamer):
    """How much of the tokens so far others could share, each time a token comes."""

    def __init__(self, pool, salt):
        self.pool, self.salt = pool, salt
        self.tokens, self.matches, self.ended = [], [], False

    def put(self, value):
        self.tokens += value.flatten().tolist()
        self.matches.append(self.pool.match(paged.Prefix(self.tokens, salt=self.salt)))

    def end(self):
        self.ended = True


def test_pages_are_published_while_tokens_come(model, pool):
    salt = paged.salt("test")
    streamer = Matches(pool, salt)
    with enabled(pool, salt=salt):
        answer = generate(model, random_tokens(1, 20), streamer=streamer)
    assert streamer.ended and streamer.tokens == answer[0].tolist()
    # Before any token nothing is; then the full pages of all tokens but the newest.
    expected = [n // PAGE_SIZE * PAGE_SIZE for n in range(20, 20 + len(streamer.matches) - 1)]
    assert streamer.matches == [0, *expected]


def test_other_weights_do_not_share(model, pool):
    tokens = random_tokens(1, 37)
    other = make_model("llama", seed=9)
    with enabled(pool):
        generate(model, tokens)
        with Computed(other) as computed:
            generate(other, tokens)
        assert computed.first == 37
    assert torch.equal(generate(other, tokens), generate(other, tokens))


def test_adapters_do_not_share(pool):
    """The prefixes of one adapter are neither the base model's nor another adapter's."""
    peft = pytest.importorskip("peft")
    tokens = random_tokens(1, 37)
    config = peft.LoraConfig(r=2, init_lora_weights=False, target_modules=["k_proj", "v_proj"])
    wrapped = peft.get_peft_model(make_model("llama"), config, adapter_name="one")
    wrapped.add_adapter("two", config)
    base = wrapped.base_model.model

    def use(name):
        if name == "base":
            return wrapped.disable_adapter()
        wrapped.set_adapter(name)
        return warnings.catch_warnings()

    answers, first = {}, {}
    for name in ("one", "two", "base"):
        with use(name):
            answers[name] = generate(wrapped, tokens)
    with enabled(pool):
        for attempt in range(2):
            for name in ("base", "one", "two"):
                with use(name), Computed(base) as computed:
                    assert torch.equal(generate(wrapped, tokens), answers[name])
                first[name, attempt] = computed.first
    assert first == {(name, attempt): 5 if attempt else 37 for name in answers for attempt in range(2)}


@pytest.mark.parametrize("arguments", [
    {"use_cache": False}, {"cache_implementation": "static"}, {"cache_implementation": "dynamic"},
    {"output_attentions": True, "return_dict_in_generate": True}], ids=str)
def test_transformers_own_behaviour(model, pool, arguments):
    tokens = random_tokens(1, 20)
    answers = generate(model, tokens, **arguments)
    with enabled(pool), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(generate(model, tokens, **arguments), answers)
    assert pool.counts().n_cached == 0


def test_own_past_key_values(model, pool):
    tokens = random_tokens(1, 20)
    cache = DynamicCache(config=model.config)
    with enabled(pool):
        generate(model, tokens, past_key_values=cache)
    assert cache.get_seq_length() > 20 and pool.counts().n_cached == 0


def test_encoder_and_decoder(pool):
    config = AutoConfig.for_model("t5", vocab_size=64, d_model=32, d_ff=32, d_kv=16, num_heads=2, num_layers=4,
                                  decoder_start_token_id=0, pad_token_id=0)
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    tokens = random_tokens(1, 9) % 64
    answers = generate(model, tokens)
    with enabled(pool):
        assert torch.equal(generate(model, tokens), answers)
    assert pool.counts().n_cached == 0


def test_embeddings_are_not_shared(model, pool):
    """Equal tokens say nothing about K and V of other inputs."""
    embeddings = torch.randn(1, 37, 64, generator=torch.Generator().manual_seed(0))
    arguments = {"inputs_embeds": embeddings, "max_new_tokens": 20, "do_sample": False}
    answers = model.generate(**arguments)
    with enabled(pool):
        assert torch.equal(model.generate(**arguments), answers)
    assert pool.counts().n_cached == 0


def test_other_positions_are_not_shared(model, pool):
    tokens = random_tokens(1, 37)
    positions = torch.arange(37)[None] * 2
    answers = generate(model, tokens, position_ids=positions)
    with enabled(pool):
        generate(model, tokens)
        assert torch.equal(generate(model, tokens, position_ids=positions), answers)


def test_hidden_states_are_complete(model, pool):
    """A prefix that is not computed has none, so all is computed."""
    arguments = {"output_hidden_states": True, "return_dict_in_generate": True, "max_new_tokens": 3}
    tokens = random_tokens(1, 37)
    with enabled(pool):
        generate(model, tokens)
        result = model.generate(tokens, **arguments)
    assert result.hidden_states[0][0].shape[1] == 37


def test_returned_cache_goes_on(model, pool):
    """The cache belongs to the caller, and the model keeps the attention that it needs."""
    tokens = random_tokens(1, 20)
    answers = generate(model, tokens, max_new_tokens=30)
    with enabled(pool):
        result = model.generate(tokens, max_new_tokens=10, do_sample=False, return_dict_in_generate=True)
        cache = result.past_key_values
        assert isinstance(cache, PagedCache) and cache.get_seq_length() == 29
        assert model.config._attn_implementation == "paged"
        assert torch.equal(generate(model, result.sequences, past_key_values=cache, max_new_tokens=20), answers)
        del result, cache
        assert model.config._attn_implementation == "eager"
        check_empty(pool)


def test_two_threads(pool):
    """Each with a model of its own, one pool."""
    models = [make_model("llama", seed=seed) for seed in (0, 1)]
    batches = [random_tokens(1, 21, seed=seed) for seed in range(4)]
    answers = [[generate(model, tokens) for tokens in batches] for model in models]
    found = [[], []]

    def run(i):
        found[i] = [generate(models[i], tokens) for tokens in batches]

    with enabled(pool):
        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for i in range(2):
        assert all(torch.equal(a, b) for a, b in zip(answers[i], found[i], strict=True))


def test_full_pool(model):
    """The exception names the numbers, the pages come back, and smaller work goes on."""
    with pool_for(model, n_pages=8) as pool, enabled(pool):
        with pytest.raises(paged.FullError) as caught:
            generate(model, random_tokens(2, 40))
        assert caught.value.__notes__ == ["generate() with 2 rows of 40 tokens had come to 0 tokens in pool test, of "
                                          "8 pages of 8 tokens. It gave its pages back."]
        check_empty(pool)
        with pytest.raises(paged.FullError) as caught:
            generate(model, random_tokens(1, 40), max_new_tokens=60)
        assert "1 rows of 40 tokens had come to 64 tokens" in caught.value.__notes__[0]
        check_empty(pool)
        generate(model, random_tokens(1, 40))
        disable()


@pytest.mark.parametrize("settings, reason", [
    ({"n_layers": 5}, "pool test has n_layers = 5, the model needs 4"),
    ({"max_length": 32}, "pool test has max-length = 32, this generate() may need 43 tokens"),
    ({"dtype": "e4m3"}, "pool test has dtype = e4m3, which paged.transformers does not support")])
def test_misfits(model, settings, reason):
    """One warning; then transformers' own cache."""
    tokens = random_tokens(1, 20)
    answers = generate(model, tokens)
    with paged.embedded(pool_settings(model, **settings), threads=1, run="own") as client:
        with enabled(client.pool("test")), pytest.warns(RuntimeWarning) as caught:
            for _ in range(2):
                assert torch.equal(generate(model, tokens), answers)
        assert client.pool("test").counts().n_cached == 0
    assert [str(warning.message) for warning in caught] == [
        f"LlamaForCausalLM: transformers' own cache is used: {reason}"]


def test_enable_twice_and_disable(model, pool):
    original = type(model).generate, type(model)._sample
    for _ in range(2):
        enable(pool)
        enable(pool)
        assert type(model)._sample is not original[1]
        disable()
        disable()
        assert (type(model).generate, type(model)._sample) == original
