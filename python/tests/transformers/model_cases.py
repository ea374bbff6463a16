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
}


def make_model(name: str, dtype: torch.dtype = torch.float32, seed: int = 0, **settings: Any) -> PreTrainedModel:
    """A model with eager attention."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(name, **{**_BASE, **MODELS[name], **settings})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype)
    model.generation_config.eos_token_id = None
    return model.eval()


def pool_settings(model: PreTrainedModel, **settings: Any) -> dict[str, Any]:
    """Parameters of a pool for the model."""
    config = model.config.get_text_config()
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
