# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers with random weights, pools that fit them, and comparisons with DynamicCache."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedModel

import paged

VOCABULARY = 96
PAGE_SIZE = 8

_BASE = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
    "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "initializer_range": 0.2,
}

# The settings of each model, by its model type.
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "mistral": {"sliding_window": 12},
    "gemma2": {"sliding_window": 12, "attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 20,
               "final_logit_softcapping": None},
    "gemma3_text": {"sliding_window": 12, "query_pre_attn_scalar": 20},
    "gpt_oss": {"sliding_window": 12, "num_local_experts": 2, "num_experts_per_tok": 1,
                "layer_types": ["sliding_attention", "full_attention"] * 2},
    "llama4_text": {"attention_chunk_size": 16, "num_local_experts": 2, "num_experts_per_tok": 1,
                    "intermediate_size_mlp": 96, "no_rope_layers": [1, 1, 1, 0]},
    # The last two layers use the K and V of the others; at a prompt, gemma4 computes only the last column there.
    "gemma3n_text": {"sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"] * 2,
                     "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8, "laurel_rank": 4,
                     "num_kv_shared_layers": 2, "activation_sparsity_pattern": None},
    "gemma4_text": {"sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"] * 2,
                    "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8,
                    "num_kv_shared_layers": 2, "global_head_dim": 16},
    # It keeps latent vectors of K and V: 32 and 8 elements of 1 head.  Its attention sees others.
    "deepseek_v3": {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                    "v_head_dim": 16, "num_key_value_heads": 4, "first_k_dense_replace": 4, "n_routed_experts": 2,
                    "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 32,
                    "head_dim": 8},
}

# Those whose attention reads the pages.
PAGED_MODELS = [name for name in MODELS if name != "deepseek_v3"]


def make_model(name: str, dtype: torch.dtype = torch.float32, seed: int = 0, **settings: Any) -> PreTrainedModel:
    """A model with eager attention."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(name, **{**_BASE, **MODELS[name], **settings})
    auto: Any = AutoModelForCausalLM
    model: PreTrainedModel = auto.from_config(config, attn_implementation="eager", dtype=dtype).eval()
    model.generation_config.eos_token_id = None
    return model


def pool_settings(model: PreTrainedModel, **settings: Any) -> dict[str, Any]:
    """Parameters of a pool for the model."""
    config = model.config.get_text_config()
    if config.model_type == "deepseek_v3":
        settings = {"n_kv_heads": 1, "k_dim": config.kv_lora_rank, "v_dim": config.qk_rope_head_dim, **settings}
    return {"name": "test", "n_layers": config.num_hidden_layers, "n_kv_heads": config.num_key_value_heads,
            "k_dim": config.head_dim, "dtype": "f32", "page_size": PAGE_SIZE, "n_pages": 128, "n_slots": 64,
            "max_length": 512, **settings}


@contextmanager
def pool_for(model: PreTrainedModel, **settings: Any) -> Iterator[paged.Pool]:
    """A pool in this process.  At the end nothing may be left in it."""
    with paged.embedded(pool_settings(model, **settings), threads=1, run="own") as client:
        pool = client.pool("test")
        yield pool
        check_empty(pool)


def check_empty(pool: paged.Pool) -> None:
    """All caches have given their pages back."""
    assert pool.counts().n_referenced == 0
    result = pool.check()
    assert result.holds and result.n_sequences == 0, result.text


def random_tokens(n_rows: int, n_columns: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (n_rows, n_columns), generator=torch.Generator().manual_seed(seed))


@contextmanager
def attention(model: PreTrainedModel, name: str) -> Iterator[None]:
    """The model with another attention."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@torch.no_grad()
def run(model: PreTrainedModel, cache: Any, tokens: torch.Tensor, mask: torch.Tensor | None = None,
        chunks: tuple[int, ...] = (), begin: int = 0) -> torch.Tensor:
    """Logits of the columns from begin on, in passes of these sizes and one for the rest."""
    logits = []
    for size in (*chunks, tokens.shape[1] - begin - sum(chunks)):
        end = begin + size
        positions = (torch.ones_like(tokens) if mask is None else mask)[:, :end].cumsum(1).sub(1).clamp(min=0)
        logits.append(model(tokens[:, begin:end], attention_mask=None if mask is None else mask[:, :end],
                            position_ids=positions[:, begin:], past_key_values=cache).logits)
        begin = end
    return torch.cat(logits, 1)


def expected(model: PreTrainedModel, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Logits of the model with transformers' own cache and eager attention."""
    return run(model, DynamicCache(config=model.config), tokens, mask)
