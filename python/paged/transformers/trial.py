# SPDX-License-Identifier: Apache-2.0
"""The trial of a model: whether a PagedCache gives the results of transformers' own cache.

The names in a configuration do not say what a class does with K and V between its cache and its attention.  Before a
model uses a pool for the first time, trial() lets it compute a few tokens with transformers' own cache, and again on
the pages of a small pool of this process.  If the results differ, the model uses no pool.
"""
from __future__ import annotations

import hashlib
import inspect
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.generation.utils import GenerationMixin

import paged
from paged._engines import Geometry
from paged.transformers.cache import PagedCache
from paged.transformers.masks import MAKE_ALL
from paged.transformers.switch import Switched

__all__ = ["CACHE", "Trial", "cache_layout", "kv_digest", "layout_of_config", "trial"]

# The cache among the arguments of models and decoding loops, and in their results; "past_key_values" before 5.24.
CACHE = ("cache" if "cache" in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
         else "past_key_values")
# Columns of the passes with transformers' own cache, and on pages.  The results differ if K and V depend on later
# tokens.
_OWN_PASSES = (11, 1)
_PASSES = (6, 5, 1)
_N_TOKENS = sum(_PASSES)
_PAGE_SIZE = 8
# Relative to the norm of all logits.  A router of experts may choose others after a rounding to 16 bits.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.1}


class Trial(NamedTuple):
    """What a trial has found.

    geometry
        What a pool must have for the model; None: nothing that all of its layers would fit.
    dense
        The model's own attention computes, on copies of K and V, because "paged" does not give its results.
    refusal
        Why no pool can be used; None: one can.
    """

    geometry: Geometry | None
    dense: bool
    refusal: str | None


_trials: weakref.WeakKeyDictionary[Any, dict[Any, Trial]] = weakref.WeakKeyDictionary()


def trial(model: Any) -> Trial:
    """Return what the trial of a model (transformers.PreTrainedModel) has found; the first call makes it."""
    made = _trials.setdefault(model, {})
    key = model.dtype, model.device, model.training
    if key not in made:
        with torch.no_grad(), _random_numbers_kept(model.device):
            made[key] = _make(model)
    return made[key]


def kv_digest(model: Any) -> str | None:
    """Return a digest, bit for bit, of the K and V of a few tokens in each layer; None if the model cannot be run."""
    own = DynamicCache(config=model.config)
    try:
        with torch.no_grad(), _random_numbers_kept(model.device), Switched.suspended(model):
            _compute(model, own, (_N_TOKENS,))
    except Exception:
        return None
    return None if isinstance(cache_layout(own), str) else _digest(own)


def _make(model: Any) -> Trial:
    own = DynamicCache(config=model.config)
    try:
        with Switched.suspended(model):
            logits = _compute(model, own, _OWN_PASSES)
    except Exception as error:      # Classes of models raise anything.
        return Trial(None, False, f"a trial of {_N_TOKENS} tokens with it ended with {_sentence(error)}")
    geometry = cache_layout(own)
    if isinstance(geometry, str):
        return Trial(None, False, geometry)
    if own.get_seq_length() != _N_TOKENS:
        return Trial(None, False, f"its cache has {own.get_seq_length()} columns for {_N_TOKENS} tokens")
    # Layers whose cache keeps a window only, and the windows of their masks, which the attention "paged" sees.
    kept = {index: layer.sliding_window for index, layer in enumerate(own.layers)
            if isinstance(layer, DynamicSlidingWindowLayer)}
    windows: dict[int, int | None] = {}
    refusal: str | None = None
    for dense in (False, True) if kept or type(model)._can_set_attn_implementation() else (True,):
        refusal = _compare(model, geometry, dense, logits, windows)
        different = [index for index in kept if windows.get(index, windows and kept[index]) != kept[index]]
        if different:
            refusal = (f"the cache of layer {different[0]} keeps the last {kept[different[0]]} tokens, and its mask is "
                       "not of that window")
            break
        if refusal is None:
            return Trial(geometry, dense, None)
    return Trial(geometry, True, refusal)


def layout_of_config(config: Any) -> Geometry | str | None:
    """Return cache_layout() of a model of a configuration, without weights; None if its class needs weights to run."""
    try:
        with torch.device("meta"), torch.no_grad():
            is_text = type(config) in AutoModelForCausalLM._model_mapping
            kind = AutoModelForCausalLM if is_text else AutoModelForImageTextToText
            model = kind.from_config(config, attn_implementation="eager").eval()
            cache = DynamicCache(config=model.config)
            _compute(model, cache, (_N_TOKENS,))
    except Exception:       # Classes of models raise anything.
        return None
    return cache_layout(cache)


def cache_layout(cache: Cache) -> Geometry | str:
    """Return what a pool must have for the K and V that a pass has left in a DynamicCache, or why no pool can."""
    shapes: list[tuple[int, int, int]] = []
    layer: Any
    for index, layer in enumerate(cache.layers):
        # The exact types: others keep more than K and V, or something else.
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) or not layer.is_initialized:
            return f"layer {index} keeps no K and V of its own ({type(layer).__name__})"
        keys, values = layer.keys, layer.values
        if keys.shape[:3] != values.shape[:3]:
            return f"layer {index} keeps K of shape {list(keys.shape)} and V of shape {list(values.shape)}"
        shapes.append((keys.shape[1], keys.shape[3], values.shape[3]))
        if shapes[index] != shapes[0]:
            return (f"its layers keep K and V of several shapes: {_shape_text(shapes[0])} in layer 0, "
                    f"{_shape_text(shapes[index])} in layer {index}")
    if not shapes:
        return "it keeps no K and V in the cache of generate()"
    return Geometry(len(shapes), *shapes[0])


def _shape_text(shape: tuple[int, int, int]) -> str:
    n_heads, k_dim, v_dim = shape
    dims = f"{k_dim}" if k_dim == v_dim else f"{k_dim} and {v_dim}"
    return f"{n_heads} {'head' if n_heads == 1 else 'heads'} of {dims}"


def _compare(model: Any, geometry: Geometry, dense: bool, expected: torch.Tensor,
             windows: dict[int, int | None]) -> str | None:
    """Return why the model does not give the expected logits on pages, or None if it does; fill in layers' windows."""
    try:
        with _pool(model, geometry) as pool:
            cache = PagedCache(pool, dense=dense)
            cache.state.windows = windows
            use = None if dense else Switched(model)
            try:
                with Switched.suspended(model) if dense else nullcontext():
                    logits = _compute(model, cache, _PASSES)
            finally:
                del use
                cache.close()
    except Exception as error:
        return f"a trial of {_N_TOKENS} tokens on pages ended with {_sentence(error)}"
    difference = _difference(logits, expected)
    tolerance = _TOLERANCE.get(model.dtype, 0.1)
    if not difference <= tolerance:
        return (f"in a trial of {_N_TOKENS} tokens, the logits on pages differed by {difference:.2g} of their norm; "
                f"{tolerance:g} is allowed")
    return None


@contextmanager
def _pool(model: Any, geometry: Geometry) -> Iterator[paged.Pool]:
    """A pool of this process for the trial, of f32, which holds what models of 16 bits store, too."""
    device = {} if model.device.type == "cpu" else {"backend": "cuda", "device": str(model.device.index or 0)}
    parameters = {"name": "trial", **geometry._asdict(), "dtype": "f32", "page_size": _PAGE_SIZE, "n_slots": 2,
                  "n_pages": -(-_N_TOKENS // _PAGE_SIZE) + 1, "max_length": 2 * _N_TOKENS, **device}
    with paged.embedded(parameters) as client, client.pool("trial") as pool:
        yield pool


def _compute(model: Any, cache: Cache, passes: tuple[int, ...]) -> torch.Tensor:
    """Return the logits [columns, vocabulary] of a few tokens, in passes of so many columns, as generate() has them."""
    tokens = _tokens(model, sum(passes))
    ones, logits, begin = torch.ones_like(tokens), [], 0
    for n_columns in passes:
        end = begin + n_columns
        inputs = model.prepare_inputs_for_generation(
            tokens[:, :end], next_sequence_length=n_columns, use_cache=True,
            # Whether it hides something cannot be asked on the device "meta".
            attention_mask=None if tokens.device.type == "meta" else ones[:, :end],
            position_ids=torch.arange(begin, end, device=tokens.device)[None], is_first_iteration=begin == 0,
            **{CACHE: cache})
        # The first pass has the masks of generate(), whose attention may get none; later ones all, for their windows.
        make_all = MAKE_ALL.set(begin > 0)
        try:
            # Not model(): a program that counts or changes the passes of a model has put its function there.
            logits.append(type(model).forward(model, **inputs, return_dict=True).logits[0].float())
        finally:
            MAKE_ALL.reset(make_all)
        begin = end
    return torch.cat(logits)


def _tokens(model: Any, n_tokens: int) -> torch.Tensor:
    """Return tokens [1, n_tokens] that stand for no image or other input, as far as the configuration says."""
    configs = [model.config, model.config.get_text_config(decoder=True)]
    special = {value for config in configs for name, value in config.to_dict().items()
               if name.endswith(("_token_id", "_token_index")) and isinstance(value, int)}
    size = model.get_input_embeddings().weight.shape[0]
    usual = [token for token in range(size) if token not in special]
    step = max(len(usual) // (4 * n_tokens), 1)
    return torch.tensor([[usual[(5 + 3 * step * i) % len(usual)] for i in range(n_tokens)]], device=model.device)


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    # Logits of tokens that a model excludes are infinite.
    both = torch.isfinite(found) & torch.isfinite(expected)
    if found.shape != expected.shape or not torch.equal(found[~both], expected[~both]):
        return float("inf")
    return float((found[both] - expected[both]).norm() / expected[both].norm().clamp(min=1e-30))


def _digest(cache: Cache) -> str:
    digest = hashlib.sha256()
    layer: Any
    for layer in cache.layers:
        for values in (layer.keys, layer.values):
            digest.update(f"{tuple(values.shape)} {values.dtype}\n".encode())
            digest.update(values.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()[:32]


def _sentence(error: Exception) -> str:
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def _random_numbers_kept(device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        yield
