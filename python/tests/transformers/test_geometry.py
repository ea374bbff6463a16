# SPDX-License-Identifier: Apache-2.0
"""The geometry of configurations, and the pools made of it."""
import pytest

pytest.importorskip("transformers")

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import paged
from paged._engines import Geometry
from paged.transformers import pool_parameters
from paged.transformers.geometry import model_geometry, pool_section

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
         "num_attention_heads": 4}
# Type, settings, heads and dimension.
FITTING = [
    ("llama", {"num_key_value_heads": 2}, 2, 8),
    ("llama", {"num_key_value_heads": 2, "head_dim": 24}, 2, 24),
    ("qwen3", {"num_key_value_heads": 1, "head_dim": 16}, 1, 16),
    ("gemma2", {"num_key_value_heads": 2, "head_dim": 16}, 2, 16),
    ("gpt2", {}, 4, 8),
    ("gpt_bigcode", {"multi_query": True}, 1, 8),
    ("falcon", {"multi_query": True}, 1, 8),
    ("falcon", {"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 2}, 4, 8),
    ("gpt_neox", {}, 4, 8),
    ("mpt", {}, 4, 8),
]
# Latent attention, recurrent layers, layers of different heads, an encoder.
OTHERS = ["deepseek_v3", "qwen3_next", "jamba", "gemma4_text", "gemma3n_text", "mllama_text_model", "t5", "mamba"]


@pytest.mark.parametrize("kind, settings, n_kv_heads, dim", FITTING)
def test_geometry_is_that_of_the_keys(kind, settings, n_kv_heads, dim):
    config = AutoConfig.for_model(kind, **{**SMALL, **settings})
    assert model_geometry(config) == Geometry(3, n_kv_heads, dim, dim)
    model = AutoModelForCausalLM.from_config(config).eval()
    cache = model(input_ids=torch.ones(1, 2, dtype=torch.long), use_cache=True).past_key_values
    assert len(cache.layers) == 3
    assert {tuple(layer.keys.shape) for layer in cache.layers} == {(1, n_kv_heads, 2, dim)}


@pytest.mark.parametrize("kind", OTHERS)
def test_models_that_fit_no_pool(kind):
    config = AutoConfig.for_model(kind)
    assert model_geometry(config) is None
    with pytest.raises(ValueError, match=f"a model of type {kind} has K and V that fit no pool"):
        pool_parameters(config, n_pages=8)


def test_layers_that_the_configuration_does_not_describe():
    """The pool is that of the layers, which a model without weights shows; as with JetMoE."""
    config = AutoConfig.for_model("jetmoe", vocab_size=64, hidden_size=32, num_hidden_layers=2, num_key_value_heads=2,
                                  kv_channels=8, intermediate_size=48, num_local_experts=4, num_experts_per_tok=2)
    model = AutoModelForCausalLM.from_config(config).eval()
    keys = model(input_ids=torch.ones(1, 2, dtype=torch.long), use_cache=True).past_key_values.layers[0].keys
    parameters = pool_parameters(config, n_pages=8)
    assert (parameters["n_layers"], parameters["n_kv_heads"], parameters["k_dim"]) == (2, keys.shape[1], keys.shape[3])


def test_pool_parameters():
    config = AutoConfig.for_model("llama", **SMALL, num_key_value_heads=2, max_position_embeddings=96)
    config.dtype = torch.bfloat16
    parameters = pool_parameters(config, n_pages=8, name="tiny")
    with paged.embedded(parameters) as client:
        pool = client.pool("tiny")
        assert (pool.n_layers, pool.n_kv_heads, pool.k_dim, pool.v_dim) == (3, 2, 8, 8)
        assert (pool.dtype, pool.page_size, pool.n_pages, pool.max_length) == ("bf16", 16, 8, 96)
    assert pool_parameters(config, n_pages=8, dtype="i8", page_size=32)["page_size"] == 32


def test_the_daemon_reads_the_section(start_daemon):
    config = AutoConfig.for_model("llama", **SMALL, num_key_value_heads=2, max_position_embeddings=96)
    parameters = pool_parameters(config, n_pages=8, dtype="f32", name="tiny")
    with start_daemon(pool_section(parameters, "tiny@1")).connect() as client:
        (report,) = client.pools()
        assert {name: report[name] for name in parameters} == parameters
        assert client.pool("tiny").model == "tiny@1"


def test_section_with_two_dimensions(start_daemon):
    section = pool_section({"name": "p", "n_layers": 1, "n_kv_heads": 1, "k_dim": 24, "v_dim": 16, "dtype": "f16",
                            "page_size": 16, "n_pages": 4}, "m")
    with start_daemon(section).connect() as client:
        assert (client.pool("p").k_dim, client.pool("p").v_dim) == (24, 16)
