# SPDX-License-Identifier: Apache-2.0
"""Which attention layers a pool can serve, decided from the layers of the loaded model.

The scheduler's process sees one specification for all layers, that of the first one where they differ, and a layer with
a window, with chunks or with sinks may have the specification of a plain one.  So the worker's process looks at the
layers themselves, before any request.
"""
from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from vllm.config import VllmConfig, get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention.encoder_only_attention import EncoderOnlyAttention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import AttentionType
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, KVCacheSpec, SlidingWindowSpec

from paged._engines import Geometry

# Fields of a specification that may have any value: what they say is compared with the pool, or holds for any pages.
FREE = {"block_size", "num_kv_heads", "head_size", "head_size_v", "dtype", "sliding_window", "extra_retained_tokens",
        "max_tp_shards"}
SPECS = (FullAttentionSpec, SlidingWindowSpec)


class Shape(NamedTuple):
    """K and V of a token in a layer."""

    n_kv_heads: int
    k_dim: int
    v_dim: int

    def __str__(self) -> str:
        dims = f"{self.k_dim}" if self.k_dim == self.v_dim else f"{self.k_dim} (K) and {self.v_dim} (V)"
        return f"{self.n_kv_heads} KV heads of {dims}"


def spec_refusal(spec: KVCacheSpec) -> str | None:
    """Return why pages cannot hold what the specification describes, or None if they can.

    Only types and fields that are known here are accepted: a subclass may mean another kind of attention, and so may a
    field that is not at its default.
    """
    if type(spec) not in SPECS:
        return (f"a KV cache of kind {type(spec).__name__}; paged holds that of multi-head, grouped-query and "
                "multi-query attention, with one sliding window or none")
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name not in FREE and (field.default is MISSING or value != field.default):
            return f"{field.name} = {value} in its {type(spec).__name__}, which paged does not know"
    return None


def spec_shape(spec: AttentionSpec) -> Shape:
    return Shape(spec.num_kv_heads, spec.head_size, spec.head_size_v)


def check_layers(config: VllmConfig, backend: type, implementation: type) -> Geometry:
    """Return what the loaded model needs of a pool.

    backend, implementation
        Those of this package, which each layer with a KV cache must have, and no subclass of them.

    Raises ValueError, naming the layer, if a pool cannot serve one of them.
    """
    layers: dict[str, Any] = get_layers_from_vllm_config(config, AttentionLayerBase)    # type: ignore[type-abstract]
    with_cache: dict[str, Shape] = {}
    shared: dict[str, tuple[str, Shape]] = {}
    for name, layer in layers.items():
        if _is_encoder(layer):
            continue
        refusal = _layer_refusal(config, layer, backend, implementation)
        if refusal is not None:
            raise ValueError(f"layer {name} has {refusal}; no pool can serve this model")
        shape = Shape(layer.num_kv_heads, layer.head_size, layer.head_size_v)
        if layer.kv_sharing_target_layer_name is not None:
            shared[name] = layer.kv_sharing_target_layer_name, shape
        else:
            with_cache[name] = shape
    if not with_cache:
        raise ValueError("the model has no layers with K and V")
    first = next(iter(with_cache))
    for name, shape in with_cache.items():
        if shape != with_cache[first]:
            raise ValueError(f"layer {name} has {shape}, layer {first} has {with_cache[first]}; all layers of a pool "
                             "are alike, so no pool can serve this model")
    for name, (target, shape) in shared.items():
        if shape != with_cache.get(target):
            raise ValueError(f"layer {name} has {shape}, and shares those of layer {target}, which are not alike; "
                             "no pool can serve this model")
    return Geometry(len(with_cache), *with_cache[first])


def _is_encoder(layer: Any) -> bool:
    """Whether vLLM's own attention computes the layer: one of an encoder, which has no KV cache."""
    return type(layer) in (Attention, EncoderOnlyAttention) and layer.attn_type in (AttentionType.ENCODER,
                                                                                 AttentionType.ENCODER_ONLY)


def _layer_refusal(config: VllmConfig, layer: Any, backend: type, implementation: Any) -> str | None:
    if type(layer) is not Attention:
        chunk = getattr(layer, "attention_chunk_size", None)
        more = f" (attention_chunk_size {chunk})" if chunk is not None else ""
        return f"attention of kind {type(layer).__name__}{more}, which paged does not know"
    if layer.attn_type != AttentionType.DECODER:
        return f"attention of type {AttentionType(layer.attn_type).value}"
    if layer.attn_backend is not backend or type(layer.impl) is not implementation:
        return f"the attention backend {layer.attn_backend.__name__} instead of that of paged"
    spec = layer.get_kv_cache_spec(config)
    if spec is None:
        return "no specification of its KV cache"
    refusal = spec_refusal(spec)
    if refusal is not None:
        return refusal
    shape = Shape(layer.num_kv_heads, layer.head_size, layer.head_size_v)
    used = Shape(layer.impl.num_kv_heads, layer.impl.head_size, layer.head_size_v)
    if spec_shape(spec) != shape or used != shape:
        return f"{shape}, and {spec_shape(spec)} in its specification"
    return None
