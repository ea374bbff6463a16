# SPDX-License-Identifier: Apache-2.0
"""vLLM's attention on CPUs, with K and V in the pages of a pool.

register_backend() gets the name "selected", which vLLM resolves where it chooses the backend of a layer: Backend if
the engine has a PagedConnector, vLLM's own otherwise.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.v1.attention.backend import AttentionLayer, AttentionType, CommonAttentionMetadata, MultipleOf
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
    CPUAttentionMetadataBuilder,
)
from vllm.v1.kv_cache_interface import KVCacheSpec

import paged
from paged.vllm.arguments import CONNECTOR
from paged.vllm.mods import Mods
from paged.vllm.worker import Worker


def is_configured(config: VllmConfig) -> bool:
    """Whether the engine's KV cache is a pool."""
    return config.kv_transfer_config is not None and config.kv_transfer_config.kv_connector == CONNECTOR


def __getattr__(name: str) -> type[CPUAttentionBackend]:
    if name == "selected":
        return Backend if is_configured(get_current_vllm_config()) else CPUAttentionBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass
class Metadata:
    """A step's batch.  The first layer plans it: only then is it certain that the connector has the step."""

    worker: Worker
    num_actual_tokens: int
    query_start_loc: torch.Tensor       # [n_rows + 1]
    seq_lens: torch.Tensor              # [n_rows]
    block_table: torch.Tensor           # [n_rows, n]
    batch: paged.Batch | None = None    # planned for this step; None before the first layer, and in vLLM's warm-up

    def plan(self) -> paged.Batch | None:
        """Plan the batch, and return it; None in vLLM's warm-up."""
        if self.worker.plan(self.query_start_loc, self.seq_lens, self.block_table):
            self.batch = self.worker.batch
        return self.batch


class Builder(CPUAttentionMetadataBuilder):
    """Makes a step's Metadata; for layers of an encoder, which have no KV cache, vLLM's own."""

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
              fast_build: bool = False) -> Any:
        if self.is_encoder_only_attention:
            return super().build(common_prefix_len, common_attn_metadata, fast_build)
        common = common_attn_metadata
        if common.causal is not True:
            # K and V of a token then depend on later ones, and a prefix is not what was published.
            raise NotImplementedError("paged.vllm: attention that is not causal")
        return Metadata(Worker.current(), common.num_actual_tokens, common.query_start_loc, common.seq_lens,
                        common.block_table_tensor)


class Implementation(CPUAttentionBackendImpl):
    """A layer's attention; for layers of an encoder, vLLM's own."""

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int,
                 alibi_slopes: list[float] | None, sliding_window: int | None, kv_cache_dtype: str,
                 logits_soft_cap: float | None = None, attn_type: str = AttentionType.DECODER,
                 kv_sharing_target_layer_name: str | None = None, sinks: torch.Tensor | None = None) -> None:
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                         logits_soft_cap, attn_type, kv_sharing_target_layer_name, sinks)
        self.mods = Mods.of_layer(sliding_window, alibi_slopes, logits_soft_cap)
        # Known at the first step.
        self.layer_number: int | None = None
        self.mod_set: paged.ModSet | None = None
        self.sink: torch.Tensor | None = None

    def forward(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor | None,
                value: torch.Tensor | None, kv_cache: torch.Tensor,
                attn_metadata: Metadata | CPUAttentionMetadata | None, output: torch.Tensor,
                output_scale: torch.Tensor | None = None,
                output_block_scale: torch.Tensor | None = None) -> torch.Tensor:
        """Append the step's K and V, and attend.

        query, key, value, output: [n_tokens, heads, dim]; n_tokens may exceed that of the metadata, whose tokens come
        first.  key and value are None where the layer has those of the step already.  Writes and returns output.
        """
        if attn_metadata is None and self.attn_type == AttentionType.DECODER:
            return self._warm_up(layer, query, key, value, output)
        if not isinstance(attn_metadata, Metadata):
            super().forward(layer, query, key, value, kv_cache, attn_metadata, output, output_scale,
                            output_block_scale)
            return output
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("paged.vllm: quantized output of attention")
        batch = attn_metadata.batch or attn_metadata.plan()
        if batch is None:
            return self._warm_up(layer, query, key, value, output)
        if self.layer_number is None:
            self.layer_number = self._set_up(layer, attn_metadata.worker)
        n = attn_metadata.num_actual_tokens
        padded, out = query.shape[0] != n, output
        if padded:
            query, out = query[:n], output[:n]
            if key is not None and value is not None:
                key, value = key[:n], value[:n]
        # A layer that shares the K and V of an earlier one reads them only, and so does a second call of a layer.
        if self.kv_sharing_target_layer_name is None and key is not None and value is not None:
            batch.append(self.layer_number, key, value)
        batch.attention(self.layer_number, query, out, mods=self.mod_set, scale=self.scale,
                        sink=self.sink)
        return output

    def do_kv_cache_update(self, layer: torch.nn.Module, key: torch.Tensor, value: torch.Tensor,
                           kv_cache: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Do nothing: forward(), which vLLM calls next, writes K and V."""

    def _warm_up(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor | None,
                 value: torch.Tensor | None, output: torch.Tensor) -> torch.Tensor:
        """Attend to the guard while the model is examined.  Otherwise leave the output, which is not used."""
        guard = Worker.guard_of_process()
        if guard is not None:
            guard.attend(layer.layer_name, self, self.mods, query, key, value, output)
        return output

    def _set_up(self, layer: AttentionLayer, worker: Worker) -> int:
        """Set what the engine's pool and weights determine.  Returns the pool's layer."""
        self.mod_set = worker.mod_set(self.mods)
        self.sink = self.sinks.float().contiguous() if self.sinks is not None else None
        name = self.kv_sharing_target_layer_name or layer.layer_name
        return worker.layers[name]


class Backend(CPUAttentionBackend):
    """vLLM's CPU backend with Implementation and Builder.

    forward_includes_kv_cache_update stays that of vLLM's own backend, although Implementation.forward() does write K
    and V.  It decides which operators the compiled model has, and vLLM's cache of compiled models does not tell
    engines with a connector from those without: with another value, an engine without a pool could load a model that
    never writes its KV cache.
    """

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: KVCacheSpec | None = None) -> list[int | MultipleOf]:
        # A block is a page, of whatever size.
        return [MultipleOf(1)]

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []

    @staticmethod
    def get_impl_cls() -> type[CPUAttentionBackendImpl]:
        return Implementation

    @staticmethod
    def get_builder_cls() -> type[CPUAttentionMetadataBuilder]:
        return Builder
