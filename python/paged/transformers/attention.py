# SPDX-License-Identifier: Apache-2.0
"""The attention function that models of transformers call under the name "paged"."""
from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from paged.transformers.cache import LAYER, PagedLayer
from paged.transformers.sequences import Step

__all__ = ["paged_attention"]


def paged_attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                    attention_mask: torch.Tensor | None, scaling: float | None = None, dropout: float = 0.0,
                    **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute the attention of one layer on the pages of its PagedCache.

    query
        [n_rows, n_heads, n_columns, k_dim].
    key, value
        What PagedLayer.update() returned.  Any other key: scaled_dot_product_attention on these tensors.

    Returns [n_rows, n_columns, n_heads, v_dim], and None for the weights.
    """
    layer: PagedLayer | None = getattr(key, LAYER, None)
    if layer is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                      **kwargs)
    step = layer.state.step
    if step is None or step.end != layer.length:
        step = _plan(layer, query)
    if layer.key is not None:
        step.batch.append(layer.index, layer.key, layer.value)
        layer.key = layer.value = layer.state.pending = None
    n_rows, n_heads, n_columns, _ = query.shape
    out = query.new_empty(n_rows, n_columns, n_heads, layer.state.pool.v_dim)
    step.batch.attention(layer.index, query, out.transpose(1, 2), scale=scaling)
    return out, None


def _plan(layer: PagedLayer, query: torch.Tensor) -> Step:
    n_rows, _, n_columns, _ = query.shape
    try:
        return layer.state.plan(n_rows, n_columns, None, True)
    except BaseException:
        layer.length -= n_columns
        layer.key = layer.value = layer.state.pending = None
        raise


AttentionInterface.register("paged", paged_attention)
