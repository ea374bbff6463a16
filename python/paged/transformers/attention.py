# SPDX-License-Identifier: Apache-2.0
"""The attention function that models of transformers call under the name "paged"."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import paged
from paged.transformers.cache import LAYER, PagedLayer, refuse_attention
from paged.transformers.masks import MaskText, PagedMask, dense_text, element_text, function_text, visible_columns
from paged.transformers.sequences import Sequences, Step

__all__ = ["paged_attention"]

# Mods whose Python numbers change with every pass make a new set each time.
_MAX_MOD_SETS = 64


class View(NamedTuple):
    """What the kernels need of a mask in one forward pass."""

    mods: paged.ModSet | None
    causal: bool


def paged_attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                    attention_mask: torch.Tensor | None, scaling: float | None = None, dropout: float = 0.0,
                    softcap: float | None = None, s_aux: torch.Tensor | None = None,
                    position_bias: torch.Tensor | None = None, is_causal: bool | None = None,
                    **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute the attention of one layer on the pages of its PagedCache.

    query
        [n_rows, n_heads, n_columns, k_dim].  A layer that uses the key of another may have only the last columns.
    key, value
        What PagedLayer.update() returned.  With two other tensors, the attention is that of these.  If only one is
        another, raises RuntimeError: the pages do not hold it.
    attention_mask
        What paged_mask() returned, or a matrix [n_rows, 1 or n_heads, n_columns, n_keys] over columns: of bool, or of
        numbers that are added to the scores.
    scaling
        Factor of the scores; None: 1 / sqrt(k_dim).
    softcap
        The scores s become softcap * tanh(s / softcap).
    s_aux
        Attention sinks [n_heads]: exp(s_aux) is added to the softmax denominator.
    position_bias
        [1 or n_rows, n_heads, n_columns, n_keys], added to the scores.
    is_causal
        Where attention_mask is None: whether a query sees no key after it.  None: what the module says.

    Returns [n_rows, n_columns, n_heads, v_dim], 0 for columns of padding, and None for the weights.

    Raises NotImplementedError for dropout and output_attentions, and where gradients would be needed, ValueError if
    attention_mask shows columns that were padding, and the exceptions of paged.Batch.
    """
    layer: PagedLayer | None = getattr(key, LAYER, None)
    of_value: PagedLayer | None = getattr(value, LAYER, None)
    found = layer or of_value
    if found is not None and found.state.windows is not None:
        found.state.windows[found.index] = attention_mask.window if isinstance(attention_mask, PagedMask) else None
    if found is not None and layer is not of_value:
        refuse_attention(found)
    if layer is None:
        return _attention_of_tensors(module, query, key, value, attention_mask, scaling, dropout, softcap, s_aux,
                                     position_bias, is_causal, **kwargs)
    state, step = layer.state, layer.state.step
    if step is None or step.end != layer.length:
        try:
            _check(query, dropout, kwargs)
            step = _plan(layer, query, attention_mask)
            _view(state, step, module, attention_mask, softcap, position_bias, is_causal)
        except BaseException:
            layer.undo()
            raise
    n_rows, n_heads, n_columns, _ = query.shape
    if layer.key is not None and layer.value is not None:
        pack = step.packing.pack if step.packing is not None else _identity
        step.batch.append(layer.index, pack(layer.key), pack(layer.value))
        layer.written()
    if n_columns != step.end - step.begin:
        step = state.plan_last(step, n_columns)
    if attention_mask is None and softcap is None and position_bias is None and state.padding.kept is None:
        view = View(None, is_causal if is_causal is not None else getattr(module, "is_causal", True))
    else:
        view = _view(state, step, module, attention_mask, softcap, position_bias, is_causal)
    sink = s_aux.to(torch.float32) if s_aux is not None else None
    if step.packing is not None:
        tokens = step.batch.attention(layer.index, step.packing.pack(query), mods=view.mods, causal=view.causal,
                                      scale=scaling, sink=sink)
        return step.packing.unpack(tokens), None
    out = query.new_empty(n_rows, n_columns, n_heads, state.pool.v_dim)
    step.batch.attention(layer.index, query, out.transpose(1, 2), mods=view.mods, causal=view.causal, scale=scaling,
                         sink=sink)
    return out, None


def _identity(columns: torch.Tensor) -> torch.Tensor:
    return columns


def _check(query: torch.Tensor, dropout: float, arguments: Mapping[str, Any]) -> None:
    if dropout:
        raise NotImplementedError(f"paged attention has no dropout, but got {dropout}: call model.eval()")
    if arguments.get("output_attentions"):
        raise NotImplementedError("paged attention returns no weights: output_attentions needs a cache of transformers "
                                  "and the attention \"eager\"")
    if query.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("paged attention computes no gradients: call the model under torch.no_grad()")


def _plan(layer: PagedLayer, query: torch.Tensor, mask: torch.Tensor | None) -> Step:
    """Plan a forward pass, whose first layer this is."""
    n_rows, _, n_columns, _ = query.shape
    begin, new, plain = layer.length - n_columns, None, mask is None
    layer.check_begin(begin)
    window = mask.window if isinstance(mask, PagedMask) else None
    if isinstance(mask, PagedMask):
        kept = mask.kept(layer.length).kept
        new = None if kept is None or bool(kept[:, begin:].all()) else kept[:, begin:]
        plain = mask.plain
    return layer.state.plan(n_rows, n_columns, new, plain, window)


def _view(state: Sequences, step: Step, module: torch.nn.Module, mask: torch.Tensor | None, softcap: float | None,
          bias: torch.Tensor | None, is_causal: bool | None) -> View:
    """Return the mods of a mask, which are bound once for all layers of a forward pass that have it."""
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    key = id(mask), softcap, id(bias), causal
    view: View | None = step.views.get(key)
    if view is None:
        step.alive += mask, bias
        text = _mask_text(state, step, mask, causal)
        score, arrays = _score_text(state, step, mask, softcap, bias)
        view = step.views[key] = View(_bind(state, step, text, score, arrays), text.causal)
    return view


def _mask_text(state: Sequences, step: Step, mask: torch.Tensor | None, causal: bool) -> MaskText:
    if mask is not None and not isinstance(mask, PagedMask):
        if mask.dtype is not torch.bool:
            return MaskText("", {}, False)      # it is part of the score
        return dense_text(mask, state.padding, step.begin, state.device)
    text = MaskText("", {}, causal)
    kept = None
    if mask is not None:
        text = function_text(mask, state.padding, state.device)
        kept = mask.kept(step.end)
    visible = visible_columns(state.padding, kept)
    if visible is None:
        return text
    condition = "paged_visible[b][kv_idx] != 0"
    return MaskText(f"({text.text}) && {condition}" if text.text else condition,
                    {**text.arrays, "paged_visible": visible.to(state.device)}, text.causal)


def _score_text(state: Sequences, step: Step, mask: torch.Tensor | None, softcap: float | None,
                bias: torch.Tensor | None) -> tuple[str, dict[str, Any]]:
    """Return a score mod, "" if none is needed, and the arrays that it reads."""
    text, arrays = "", dict[str, Any]()
    if softcap is not None:
        text = f"soft_cap({float(softcap)!r}, score)"
    added = {"paged_bias": bias}
    if mask is not None and mask.dtype.is_floating_point:
        added["paged_mask"] = mask
    for name, matrix in added.items():
        if matrix is not None:
            element, more = element_text(name, matrix, state.padding, step.begin, state.device)
            text = f"{text or 'score'} + {element}"
            arrays |= more
    return text, arrays


def _bind(state: Sequences, step: Step, mask: MaskText, score: str, arrays: dict[str, Any]) -> paged.ModSet | None:
    if not mask.text and not score:
        return None
    arrays = {**mask.arrays, **arrays}
    kinds = tuple((name, (array.dtype, array.dim()) if isinstance(array, torch.Tensor) else None)
                  for name, array in arrays.items())
    # Masks of one forward pass may have the same text and other arrays: each needs a binding of its own.
    texts = step.batch, mask.text, score, kinds
    nth = step.n_of_texts[texts] = step.n_of_texts.get(texts, -1) + 1
    mods = state.mod_sets.get((texts, nth))
    if mods is None:
        if len(state.mod_sets) >= _MAX_MOD_SETS:
            state.mod_sets.clear()
        mods = state.mod_sets[texts, nth] = step.batch.mods(mask=mask.text or None, score=score or None, **arrays)
    elif arrays:
        mods.bind(**arrays)
    return mods


def _attention_of_tensors(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                          mask: torch.Tensor | None, scaling: float | None, dropout: float, softcap: float | None,
                          s_aux: torch.Tensor | None, position_bias: torch.Tensor | None, is_causal: bool | None,
                          **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute attention without a PagedCache, as the attention "sdpa" does."""
    is_capped = softcap is not None or s_aux is not None
    n_queries, n_keys = query.shape[2], key.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if mask is None and is_causal and n_queries > 1 and (is_capped or n_queries < n_keys):
        # The queries are the last columns; scaled_dot_product_attention would take them for the first.
        mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=query.device).tril(n_keys - n_queries)
        mask = mask[None, None]
    if is_capped:
        full = mask.full() if isinstance(mask, PagedMask) else mask
        return _capped_attention(module, query, key, value, full, scaling, dropout, softcap, s_aux), None
    if position_bias is not None:
        kwargs["position_bias"] = position_bias
    return sdpa_attention_forward(module, query, key, value, mask.dense() if isinstance(mask, PagedMask) else mask,
                                  dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs)


def _capped_attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                      mask: torch.Tensor | None, scaling: float | None, dropout: float, softcap: float | None,
                      s_aux: torch.Tensor | None) -> torch.Tensor:
    """Compute attention with a soft cap or sinks, which scaled_dot_product_attention lacks."""
    n_groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(n_groups, 1), value.repeat_interleave(n_groups, 1)
    scores = (query @ key.transpose(2, 3)).float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
    if s_aux is not None:
        scores = torch.cat([scores, s_aux.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    # A query that sees no key yields 0.
    weights = scores.softmax(-1).nan_to_num(0)[..., :key.shape[2]].to(value.dtype)
    weights = torch.nn.functional.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous()


AttentionInterface.register("paged", paged_attention)
