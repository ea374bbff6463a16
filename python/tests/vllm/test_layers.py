# SPDX-License-Identifier: Apache-2.0
"""What the worker's process refuses at an engine's start, by the layers of the model that it has loaded."""
from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

pytest.importorskip("vllm")

import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention.chunked_local_attention import ChunkedLocalAttention
from vllm.model_executor.layers.attention.encoder_only_attention import EncoderOnlyAttention
from vllm.model_executor.layers.attention.rswa_attention import RSWAAttention
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.attention.backends.utils import record_kv_cache_layout
from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_configs
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)

from paged._engines import Geometry
from paged.vllm import supported
from paged.vllm.backend import Backend, Implementation
from paged.vllm.layers import check_layers, spec_refusal
from paged.vllm.pool_worker import PoolWorker

FULL = FullAttentionSpec(16, num_kv_heads=2, head_size=64, dtype=torch.float32)
WINDOW = SlidingWindowSpec(16, num_kv_heads=2, head_size=64, dtype=torch.float32, sliding_window=128)
NAME = "model.layers.{}.self_attn.attn"


def name(i):
    return NAME.format(i)


@pytest.fixture
def model(vllm_config):
    """A function that builds layers, and returns the configuration of an engine with them.

    layers: of each its class, and keywords that differ from those of a plain one.
    """
    def make(*layers, cache=None):
        config = vllm_config(True, dtype="float32", **(cache or {}))
        with set_current_vllm_config(config):
            for i, (kind, keywords) in enumerate(layers):
                kind(**{"num_heads": 4, "head_size": 64, "scale": 0.125, "num_kv_heads": 2,
                        "cache_config": config.cache_config, "prefix": name(i), **keywords})
        return config

    return make


def check(config):
    return check_layers(config, Backend, Implementation)


PLAIN = (Attention, {})


def test_alike(model):
    """Heads of queries, windows and sinks may differ: K and V are alike."""
    config = model(PLAIN, (Attention, {"num_heads": 8}), (Attention, {"per_layer_sliding_window": 32}),
                   (Attention, {"sinks": torch.zeros(4)}), (Attention, {"kv_sharing_target_layer_name": name(1)}),
                   (EncoderOnlyAttention, {"num_kv_heads": 4, "prefix": "encoder.layers.0.attn"}))
    assert check(config) == Geometry(4, 2, 64, 64)


@pytest.mark.parametrize("layers, sentence", [
    ([PLAIN, (ChunkedLocalAttention, {"attention_chunk_size": 8192})],
     r"layer model.layers.1.self_attn.attn has attention of kind ChunkedLocalAttention \(attention_chunk_size 8192\)"),
    ([PLAIN, (RSWAAttention, {"rswa_window": 64})], "layer .*1.* has attention of kind RSWAAttention"),
    ([PLAIN, PLAIN, (Attention, {"num_kv_heads": 1})],
     "layer model.layers.2.self_attn.attn has 1 KV heads of 64, "
     "layer model.layers.0.self_attn.attn has 2 KV heads of 64"),
    ([(Attention, {"per_layer_sliding_window": 32}), (Attention, {"head_size": 128, "num_kv_heads": 1})],
     "layer .*1.* has 1 KV heads of 128, layer .*0.* has 2 KV heads of 64"),
    ([PLAIN, (Attention, {"head_size_v": 32})], r"layer .*1.* has 2 KV heads of 64 \(K\) and 32 \(V\), layer .*0.*"),
    ([PLAIN, (Attention, {"num_kv_heads": 1, "kv_sharing_target_layer_name": name(0)})],
     "layer .*1.* has 1 KV heads of 64, and shares those of layer .*0.*, which are not alike"),
    ([(Attention, {"attn_backend": CPUAttentionBackend})],
     "layer .*0.* has the attention backend CPUAttentionBackend instead of that of paged"),
    ([(Attention, {"attn_type": AttentionType.ENCODER_DECODER})], "layer .*0.* has attention of type encoder_decoder"),
    ([], "no layers with K and V"),
], ids=["chunks", "r-swa", "heads", "dims", "dim-of-v", "shared", "backend", "cross", "none"])
def test_unlike(model, layers, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(model(*layers))


def test_the_worker_refuses_before_vllm_makes_one_specification(model):
    """vLLM's error where that fails names no layer; as Lfm2, whose other layers are convolutions."""
    worker = PoolWorker.__new__(PoolWorker)
    worker.vllm_config = model(PLAIN, (RSWAAttention, {"rswa_window": 64}))
    with pytest.raises(ValueError, match="layer .*1.* has attention of kind RSWAAttention"):
        worker.get_kv_cache_spec()


def test_fp8_of_a_checkpoint(model):
    """A checkpoint may ask for fp8 where the user does not; vLLM tells its worker's process only."""
    config = model()
    config.cache_config.cache_dtype = "fp8"
    with set_current_vllm_config(config):
        Attention(4, 64, 0.125, 2, cache_config=config.cache_config, prefix=name(0))
    with pytest.raises(ValueError, match="layer .*0.* has kv_quant_mode = .* in its FullAttentionSpec, which paged"):
        check(config)


def test_scheduler_sees_the_first_layer_only(model):
    """Why it is the worker's process that decides."""
    config = model(PLAIN, (Attention, {"num_kv_heads": 1}))
    register_all_kvcache_specs(config)
    record_kv_cache_layout(config.cache_config, "LBHNC")
    layers = config.compilation_config.static_forward_context
    specs = {name: layer.get_kv_cache_spec(config) for name, layer in layers.items()}
    cache = generate_scheduler_kv_cache_config(get_kv_cache_configs(config, [specs], [1 << 30]))
    assert supported.geometry(cache) == Geometry(2, 2, 64, 64)
    with pytest.raises(ValueError, match="layer .*1.* has 1 KV heads of 64"):
        check(config)


@dataclass(frozen=True, kw_only=True)
class UnknownSpec(FullAttentionSpec):
    """What a later vLLM may have."""


@dataclass(frozen=True, kw_only=True)
class UnknownWindowSpec(SlidingWindowSpec):
    n_sinks: int = 4


KEYWORDS = {"num_kv_heads": 2, "head_size": 64, "dtype": torch.float32}


@pytest.mark.parametrize("spec, reason", [
    (UnknownSpec(16, **KEYWORDS), "kind UnknownSpec"),
    (UnknownWindowSpec(16, **KEYWORDS, sliding_window=64), "kind UnknownWindowSpec"),
    (RSWASpec(16, **KEYWORDS, rswa_window=64), "kind RSWASpec"),
    (SinkFullAttentionSpec(16, **KEYWORDS, sink_len=4), "kind SinkFullAttentionSpec"),
    (MLAAttentionSpec(16, **KEYWORDS), "kind MLAAttentionSpec"),
    (SlidingWindowMLASpec(16, **KEYWORDS, sliding_window=64), "kind SlidingWindowMLASpec"),
    (ChunkedLocalAttentionSpec(16, **KEYWORDS, attention_chunk_size=64), "kind ChunkedLocalAttentionSpec"),
    (MambaSpec(16, shapes=((4,),), dtypes=(torch.float32,)), "kind MambaSpec"),
    # What vLLM makes of chunks where its hybrid manager is off.
    (replace(FULL, attention_chunk_size=8192), "attention_chunk_size = 8192 in its FullAttentionSpec"),
    (replace(FULL, non_causal=True), "non_causal = True"),
    (replace(FULL, kv_quant_mode=KVQuantMode.FP8_PER_TENSOR), "kv_quant_mode"),
    (replace(FULL, tokens_per_state=4), "tokens_per_state = 4"),
    (replace(WINDOW, page_size_padded=1 << 20), "page_size_padded = 1048576 in its SlidingWindowSpec"),
], ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:20].strip())
def test_specs(spec, reason):
    assert reason in spec_refusal(spec)


def test_known_specs():
    assert spec_refusal(FULL) is None and spec_refusal(WINDOW) is None
    assert spec_refusal(replace(FULL, sliding_window=128, head_size_v=32)) is None
