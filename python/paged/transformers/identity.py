# SPDX-License-Identifier: Apache-2.0
"""The identity of a model: what the salt of its prefixes is made of.

Equal tokens have equal K and V only in equal models, and a program may change its own between two calls of generate():
by training, by merging or activating an adapter, by assignment of weights or settings.  What is not known to be equal
is not shared.
"""
from __future__ import annotations

import hashlib
import os
import uuid
import weakref
from collections.abc import Iterator
from typing import Any

import torch

import paged
from paged._engines import prefix_salt, refusal
from paged.transformers.fingerprint import (
    adapters_digest,
    configuration,
    is_of_adapter,
    structure_digest,
    weights_digest,
)
from paged.transformers.trial import kv_digest

__all__ = ["model_name", "model_salt", "note_loaded"]

# Types of rotary embeddings under which K of a token depends on its position only.  Others, as "dynamic" and
# "longrope", change with the length of the text.
_FIXED_ROTARY = {None, "default", "linear", "llama3", "proportional", "yarn"}
# The types of pools that have the precision of a model's K and V; in others, those of no model are exact.
_PRECISIONS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
# Digests of K and V that are kept for a model, which change with its adapters.
_MAX_DIGESTS = 64

# Digests of the models that from_pretrained() has loaded.
_loaded: weakref.WeakKeyDictionary[torch.nn.Module, tuple[str, str]] = weakref.WeakKeyDictionary()
# Digests of K and V, by what they depend on.
_computed: weakref.WeakKeyDictionary[torch.nn.Module, dict[Any, str | None]] = weakref.WeakKeyDictionary()
# Random names of models whose weights were written.
_local_names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()


def note_loaded(model: torch.nn.Module) -> None:
    """Remember what a model is that from_pretrained() has just loaded."""
    weights = weights_digest(model, keep=False)
    if weights is not None and _is_as_stored(model):
        _loaded[model] = weights, structure_digest(model)


def _is_as_stored(model: Any) -> bool:
    """Return whether the configuration of a model is that of the files it was loaded from, without changes."""
    name = model_name(model)
    try:
        stored = type(model.config).from_pretrained(name, revision=getattr(model.config, "_commit_hash", None),
                                                    local_files_only=True)
    except (OSError, ValueError):
        return False
    return configuration(stored) == configuration(model.config)


def model_salt(pool: paged.Pool, model: Any) -> bytes | None:
    """Return the salt of the prefixes of a model (transformers.PreTrainedModel) as it is at the moment.

    With the pool's setting "model", the salt is that of all engines while the setting names this model, its weights,
    configuration and layers are those of note_loaded(), the pool has its dtype and no adapter is active.  Otherwise it
    covers the model's name, all of its weights, its configuration, the settings of its layers, and K and V of a few
    tokens.
    Models whose weights were written in place, by training for example, share prefixes with themselves only.

    None: prefixes of this model cannot be shared.
    """
    text = model.config.get_text_config(decoder=True)
    rotary = [getattr(text, name, None) or {} for name in ("rope_parameters", "rope_scaling")]
    if model.training or not _is_causal(text) or not _FIXED_ROTARY.issuperset(_rotary_types(*rotary)):
        return None
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return None     # they may change what the layers compute
    weights, adapters = weights_digest(model), adapters_digest(model)
    if weights is None or adapters is None:
        return None
    structure = structure_digest(model)
    parts = [adapters] if adapters else []
    if torch.is_autocast_enabled(model.device.type):
        parts.append(f"autocast {torch.get_autocast_dtype(model.device.type)}")
    written = _written(model)
    if written:
        parts.append(written)
    if (not pool.model or _loaded.get(model) != (weights, structure)
            or pool.dtype != _PRECISIONS.get(model.dtype) and pool.dtype in _PRECISIONS.values()
            or refusal(pool.name, pool.model, model_name(model)) is not None):
        computed = _kv_digest(model, (weights, structure, model.dtype, *parts))
        if computed is None:
            return None
        parts += f"weights {weights}", f"structure {structure}", f"K and V {computed}"
    return prefix_salt(pool, f"{_real_name(model)}\n{model.dtype}", adapter=", ".join(parts))


def _kv_digest(model: Any, state: tuple[Any, ...]) -> str | None:
    """Return kv_digest() of a model in a state, which is computed once."""
    known = _computed.setdefault(model, {})
    if state not in known:
        if len(known) >= _MAX_DIGESTS:
            known.clear()
        known[state] = kv_digest(model)
    return known[state]


def _is_causal(text: Any) -> bool:
    """Return False if tokens see later ones, on which their K and V in the next layer then depend."""
    return getattr(text, "is_causal", True) is not False and not getattr(text, "use_bidirectional_attention", None)


def _rotary_types(*parameters: dict[str, Any]) -> Iterator[Any]:
    """Return the types of rotary embeddings; parameters are one mapping or one for each type of layer."""
    for rotary in parameters:
        yield rotary.get("rope_type", rotary.get("type"))
        yield from _rotary_types(*(value for value in rotary.values() if isinstance(value, dict)))


def model_name(model: Any) -> str:
    """Return what the model was loaded by, a name of the Hub or a directory, or else the name of its class."""
    name: str = model.config._name_or_path or type(model).__name__
    return name


def _real_name(model: Any) -> str:
    """Return model_name(), with an absolute directory: a relative one means another model elsewhere."""
    name = model_name(model)
    return os.path.realpath(name) if os.path.isdir(name) else name


def _written(model: torch.nn.Module) -> str:
    """Return "" or, if weights of a model were written since they were loaded, what identifies them in this process.

    Loading assigns tensors that were never written in place.  Writes through Tensor.data, as when PEFT merges an
    adapter, are not counted; weights_digest() sees these.
    """
    versions = [parameter._version for name, parameter in model.named_parameters() if not is_of_adapter(name)]
    if not any(versions):
        return ""
    return f"{_local_names.setdefault(model, uuid.uuid4().hex)} {hashlib.sha256(repr(versions).encode()).hexdigest()}"
