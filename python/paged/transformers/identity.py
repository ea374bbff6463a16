# SPDX-License-Identifier: Apache-2.0
"""The identity of a model's weights: what the salt of its prefixes is made of.

Equal tokens have equal K and V only under equal weights, and a program may change these between two calls of
generate(): by training, by merging or activating an adapter, by assignment.
"""
from __future__ import annotations

import hashlib
import os
import uuid
import weakref
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch

import paged
from paged._engines import prefix_salt, refusal

__all__ = ["model_name", "model_salt", "note_loaded"]

# Elements of each parameter that the digest of a model covers.  Training and merging change nearly all elements.
_SAMPLES = 64
# Rotary embeddings of these types depend on the length of the whole text, so K of equal tokens may differ.
_VARIABLE_ROTARY = ("dynamic", "longrope")

# Digests of the models that from_pretrained() has loaded.
_loaded: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
# Random names of models whose weights were written.
_local_names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()


def note_loaded(model: torch.nn.Module) -> None:
    """Remember the weights of a model that from_pretrained() has just loaded."""
    digest = _weights_digest(model)
    if digest is not None:
        _loaded[model] = digest


def model_salt(pool: paged.Pool, model: Any) -> bytes | None:
    """Return the salt of the prefixes of a model (transformers.PreTrainedModel) as it is at the moment.

    With the pool's setting "model", the salt is that of all engines while the setting names this model, its weights are
    those of note_loaded() and no adapter is active.  Otherwise it covers the model's name, type, rotary embedding and a sample of its weights.
    Models whose weights were written in place, by training for example, share prefixes with themselves only.

    None: prefixes of this model cannot be shared.
    """
    text = model.config.get_text_config(decoder=True)
    rotary = getattr(text, "rope_parameters", None) or {}
    if model.training or not _is_causal(text) or any(kind in _VARIABLE_ROTARY for kind in _rotary_types(rotary)):
        return None
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return None     # they may change what the layers compute
    weights = _weights_digest(model)
    adapters = _adapters_digest(model)
    if weights is None or adapters is None:
        return None
    name = "\n".join((_real_name(model), str(model.dtype), repr(rotary), weights))
    parts = [adapters] if adapters else []
    if pool.model and (_loaded.get(model) != weights or refusal(pool.name, pool.model, model_name(model)) is not None):
        parts.append(f"weights {weights}")
    if torch.is_autocast_enabled(model.device.type):
        parts.append(f"autocast {torch.get_autocast_dtype(model.device.type)}")
    written = _written(model)
    if written:
        parts.append(written)
    return prefix_salt(pool, name, adapter=", ".join(parts))


def _is_causal(text: Any) -> bool:
    """Return False if tokens see later ones, on which their K and V in the next layer then depend."""
    return getattr(text, "is_causal", True) is not False and not getattr(text, "use_bidirectional_attention", None)


def _rotary_types(rotary: dict[str, Any]) -> Iterator[Any]:
    """Return rope_type of the parameters, which may be one mapping or one for each type of layer."""
    yield rotary.get("rope_type")
    for value in rotary.values():
        if isinstance(value, dict):
            yield value.get("rope_type")


def model_name(model: Any) -> str:
    """Return what the model was loaded by, a name of the Hub or a directory, or else the name of its class."""
    name: str = model.config._name_or_path or type(model).__name__
    return name


def _real_name(model: Any) -> str:
    """Return model_name(), with an absolute directory: a relative one means another model elsewhere."""
    name = model_name(model)
    return os.path.realpath(name) if os.path.isdir(name) else name


def _weights_digest(model: torch.nn.Module) -> str | None:
    """Return a digest of samples of all parameters and buffers but those of adapters; None if these cannot be read."""
    digest = hashlib.sha256()
    try:
        for name, parameter in chain(model.named_parameters(), model.named_buffers()):
            if _is_of_adapter(name):
                continue
            digest.update(f"{_plain_name(name)} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
            digest.update(_sample(parameter))
    except (RuntimeError, NotImplementedError, TypeError):
        # Offloaded parameters lie on the device "meta"; tensor subclasses may lack these operations.
        return None
    return digest.hexdigest()[:32]


def _sample(parameter: torch.Tensor) -> bytes:
    values = parameter.detach()
    if values.device.type == "meta":
        raise RuntimeError("the parameter is offloaded")
    values = values.reshape(-1) if values.is_contiguous() else values.flatten()
    values = values[::max(1, values.numel() // _SAMPLES)][:_SAMPLES].contiguous()
    return values.view(torch.uint8).cpu().numpy().tobytes()


def _written(model: torch.nn.Module) -> str:
    """Return "" or, if weights of a model were written since they were loaded, what identifies them in this process.

    Loading assigns tensors that were never written in place.  Samples of the weights may miss a change of few of them.
    Writes through Tensor.data, as when PEFT merges an adapter, are not counted, but the samples show these.
    """
    versions = [parameter._version for name, parameter in model.named_parameters() if not _is_of_adapter(name)]
    if not any(versions):
        return ""
    return f"{_local_names.setdefault(model, uuid.uuid4().hex)} {hashlib.sha256(repr(versions).encode()).hexdigest()}"


# PEFT puts the layer that it adapts into a layer of its own, as base_layer, next to parameters such as
# lora_A.default.weight.


def _plain_name(name: str) -> str:
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")


def _is_of_adapter(name: str) -> bool:
    return "lora_" in name or "modules_to_save." in name


def _adapters_digest(model: torch.nn.Module) -> str | None:
    """Return names and a digest of the adapters that are active; "" if none is, None if they are of unknown kind."""
    digest = hashlib.sha256()
    names: set[str] = set()
    for path, module in model.named_modules():
        # Layers of PEFT; models of transformers have methods of these names.
        if not isinstance(getattr(module, "disable_adapters", None), bool):
            continue
        for name in _active_adapters(module):
            parameters = [(key, value) for key, value in module.named_parameters()
                          if f".{name}." in f".{key}." and not key.startswith(("base_layer.", "original_module."))]
            if not all(_is_of_adapter(key) for key, _ in parameters):
                return None
            if parameters:
                names.add(name)
                digest.update(f"{path} {name} {getattr(module, 'scaling', {}).get(name)}\n".encode())
            for key, value in parameters:
                digest.update(f"{key} {tuple(value.shape)} {value.dtype}\n".encode())
                digest.update(value.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return f"{' '.join(sorted(names))} {digest.hexdigest()[:32]}" if names else ""


def _active_adapters(module: Any) -> list[str]:
    merged: list[str] = list(getattr(module, "merged_adapters", ()))
    active = [] if module.disable_adapters else module.active_adapters
    return merged + [name for name in active if name not in merged]
