# SPDX-License-Identifier: Apache-2.0
"""The attention "paged" against transformers' own eager attention."""
import pytest

pytest.importorskip("transformers")

import torch
from model_cases import MODELS, PAGED_MODELS, attention, expected, make_model, pool_for, random_tokens, run
from transformers import AutoConfig, AutoModelForSeq2SeqLM, DynamicCache, EncoderDecoderCache

import paged
from paged.transformers import PagedCache

TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
CHUNKS = [(), (11, 20), (30, 1, 1, 1, 1)]


@pytest.mark.parametrize("name", PAGED_MODELS)
def test_logits(name: str) -> None:
    """Sliding windows and chunks end within the text, in the middle of a page."""
    model = make_model(name)
    tokens = random_tokens(3, 41)
    wanted = expected(model, tokens)
    with pool_for(model) as pool, attention(model, "paged"):
        for chunks in CHUNKS:
            cache = PagedCache(pool)
            torch.testing.assert_close(run(model, cache, tokens, chunks=chunks), wanted, **TOLERANCE)
            cache.close()


@pytest.mark.parametrize("name", MODELS)
def test_dense(name: str) -> None:
    """A dense cache serves any attention."""
    model = make_model(name)
    tokens = random_tokens(2, 41)
    with pool_for(model) as pool:
        cache = PagedCache(pool, dense=True)
        logits = run(model, cache, tokens, chunks=(30, 1, 1))
        cache.close()
    torch.testing.assert_close(logits, expected(model, tokens), **TOLERANCE)


@pytest.mark.parametrize("name", PAGED_MODELS)
def test_without_paged_cache(name: str) -> None:
    """With any other cache, "paged" is the attention of the tensors."""
    model = make_model(name)
    tokens = random_tokens(2, 41)
    wanted = expected(model, tokens)
    with attention(model, "paged"):
        torch.testing.assert_close(expected(model, tokens), wanted, **TOLERANCE)
        chunked = run(model, DynamicCache(config=model.config), tokens, chunks=(20, 1))
        torch.testing.assert_close(chunked, wanted, **TOLERANCE)
        with torch.no_grad():
            torch.testing.assert_close(model(tokens, use_cache=False).logits, wanted, **TOLERANCE)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_half_precision(dtype: str) -> None:
    """As close to the model in float32 as transformers' own attention is, but for rounding."""
    torch_dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    model = make_model("llama", torch_dtype)
    exact = make_model("llama")
    exact.load_state_dict({name: weight.float() for name, weight in model.state_dict().items()})
    tokens = random_tokens(2, 41)
    wanted = expected(exact, tokens)
    own = (expected(model, tokens) - wanted).abs()
    with pool_for(model, dtype=dtype) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        ours = (run(model, cache, tokens, chunks=(30, 1)) - wanted).abs()
        cache.close()
    assert ours.mean() < 1.5 * own.mean() and ours.max() < 3 * own.max()


def test_pool_of_lower_precision() -> None:
    """A float32 model on a bf16 pool attends as one whose K and V are rounded to bf16."""
    model = make_model("llama")
    tokens = random_tokens(2, 41)

    class Rounding(DynamicCache):
        def update(self, key: torch.Tensor, value: torch.Tensor, *args: object,
                   **kwargs: object) -> tuple[torch.Tensor, torch.Tensor]:
            return super().update(key.bfloat16().float(), value.bfloat16().float(), *args, **kwargs)

    wanted = run(model, Rounding(config=model.config), tokens)
    with pool_for(model, dtype="bf16") as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        logits = run(model, cache, tokens, chunks=(30, 1))
        cache.close()
    # Rounding doubles the small differences of float32 where they cross a boundary: 2^-9 of an element.
    torch.testing.assert_close(logits, wanted, atol=2e-2, rtol=2e-2)
    assert (logits - wanted).abs().mean() < 1e-3


@pytest.mark.parametrize("shape", [(2, 1), (2, 4), (1, 1), (1, 4)])
@pytest.mark.parametrize("kind", ["bool", "numbers"])
def test_matrix_as_mask(kind: str, shape: tuple[int, int]) -> None:
    """A mask of the caller's, for each row or all, and each head or all."""
    model = make_model("llama")
    tokens = random_tokens(2, 20)
    generator = torch.Generator().manual_seed(2)
    allowed = torch.rand(*shape, 20, 20, generator=generator) < 0.5
    # The first pass of 11 columns is not causal.
    possible = torch.ones(20, 20, dtype=torch.bool).tril()
    possible[:11, :11] = True
    allowed = allowed & possible | torch.eye(20, dtype=torch.bool)
    bias = torch.randn(*shape, 20, 20, generator=generator).masked_fill(~allowed, torch.finfo(torch.float32).min)
    sdpa_mask, eager_mask = allowed, torch.zeros(()).where(allowed, torch.finfo(torch.float32).min)
    if kind == "numbers":
        sdpa_mask = eager_mask = bias
    with torch.no_grad():
        wanted = model(tokens, attention_mask=eager_mask, past_key_values=DynamicCache(config=model.config)).logits
    with pool_for(model) as pool, attention(model, "paged"), torch.no_grad():
        cache = PagedCache(pool)
        parts = [model(tokens[:, begin:end], attention_mask=sdpa_mask[:, :, begin:end, :end],
                       past_key_values=cache).logits for begin, end in ((0, 11), (11, 19), (19, 20))]
        cache.close()
    torch.testing.assert_close(torch.cat(parts, 1), wanted, **TOLERANCE)


def test_position_bias() -> None:
    """As T5 has it: a learned number for each head, query and key."""
    from paged.transformers.attention import paged_attention

    model = make_model("llama")
    module = model.model.layers[0].self_attn
    q, k, v = (torch.randn(2, n, 9, 16, generator=torch.Generator().manual_seed(n)) for n in (4, 2, 2))
    bias = torch.randn(1, 4, 9, 9)
    scores = q @ k.repeat_interleave(2, 1).transpose(2, 3) / 4 + bias
    scores = scores.masked_fill(~torch.ones(9, 9, dtype=torch.bool).tril(), -torch.inf)
    wanted = (scores.softmax(-1) @ v.repeat_interleave(2, 1)).transpose(1, 2)
    own, _ = paged_attention(module, q, k, v, None, position_bias=bias)
    torch.testing.assert_close(own, wanted, atol=1e-5, rtol=1e-5)
    with pool_for(model) as pool:
        cache = PagedCache(pool)
        key, value = cache.update(k, v, 0)
        out, _ = paged_attention(module, q, key, value, None, position_bias=bias)
        cache.close()
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("logits_to_keep", [1, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_last_columns(padded: bool, logits_to_keep: int) -> None:
    """Layers that use the K and V of others compute the last columns only."""
    model = make_model("gemma4_text")
    tokens, mask = random_tokens(2, 30), torch.ones(2, 30, dtype=torch.int64)
    if padded:
        mask[0, :7] = mask[1, 28] = 0
    wanted = expected(model, tokens, mask)[:, -logits_to_keep:]
    positions = mask.cumsum(1).sub(1).clamp(min=0)
    with pool_for(model) as pool, attention(model, "paged"), torch.no_grad():
        for cache in (PagedCache(pool), DynamicCache(config=model.config)):
            run(model, cache, tokens[:, :10], mask[:, :10])
            logits = model(tokens[:, 10:], attention_mask=mask, position_ids=positions[:, 10:], past_key_values=cache,
                           logits_to_keep=logits_to_keep).logits
            shown = mask[:, -logits_to_keep:].bool()
            torch.testing.assert_close(logits[shown], wanted[shown], **TOLERANCE)
        del cache


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_encoder_and_decoder(name: str) -> None:
    """The decoder's own K and V may lie in a pool; T5 adds to its scores what only a dense cache lets it compute."""
    shared = {"vocab_size": 96, "pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": None}
    settings = {
        "bart": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
                 "decoder_attention_heads": 2, "init_std": 0.3, "forced_eos_token_id": None},
        "t5": {"d_model": 32, "d_kv": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32, "initializer_factor": 3.0},
    }
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(name, **shared, **settings[name])).eval()
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    tokens = random_tokens(2, 11)
    arguments = {"attention_mask": torch.ones_like(tokens), "max_new_tokens": 20, "do_sample": False}
    wanted = model.generate(tokens, **arguments)
    geometry = {"name": "test", "n_layers": 2, "n_kv_heads": 2, "k_dim": 16, "dtype": "f32", "n_pages": 32}
    with paged.embedded(geometry, threads=1, run="own") as client:
        cache = PagedCache(client.pool("test"), dense=name == "t5")
        with attention(model, "sdpa" if name == "t5" else "paged"):
            both = EncoderDecoderCache(cache, DynamicCache())
            assert torch.equal(model.generate(tokens, past_key_values=both, **arguments), wanted)
        assert cache.get_seq_length() == 20
        if name == "t5":
            # transformers 5.19 does not exchange the attention of T5.
            refusal = r"bias has shape \[1, 2, 1, 1\]|was not computed by the attention"
            with attention(model, "paged"), pytest.raises((ValueError, RuntimeError), match=refusal):
                both = EncoderDecoderCache(PagedCache(client.pool("test")), DynamicCache())
                model.generate(tokens, past_key_values=both, **arguments)


def test_gradients_weights_and_dropout_are_refused() -> None:
    model = make_model("llama", attention_dropout=0.1)
    tokens = random_tokens(1, 5)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        with pytest.raises(NotImplementedError, match="no gradients"):
            model(tokens, past_key_values=cache)
        with torch.no_grad(), pytest.raises(NotImplementedError, match="returns no weights"):
            model(tokens, past_key_values=cache, output_attentions=True)
        model.train()
        with pytest.raises(NotImplementedError, match="no dropout, but got 0.1"):
            run(model, cache, tokens)
        model.eval()
        assert cache.get_seq_length() == 0
        torch.testing.assert_close(run(model, cache, tokens), expected_eager(model, tokens), **TOLERANCE)
        cache.close()


def expected_eager(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    with attention(model, "eager"):
        return expected(model, tokens)
