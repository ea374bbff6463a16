# SPDX-License-Identifier: Apache-2.0
"""Digests of all that a model is: its weights, its configuration, and the settings of its layers.

PEFT puts a layer that it adapts into a layer of its own, as base_layer, next to parameters such as
lora_A.default.weight.  The digests are those of the model without it; adapters have a digest of their own.
"""
from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from paged._engines import without_names

__all__ = ["adapters_digest", "configuration", "is_of_adapter", "structure_digest", "weights_digest"]

# Elements of each tensor that are compared before the digest of all is taken to be as before.
_SAMPLES = 64
# Words of 8 bytes in a line, and lines in a block, whose sums are taken.
_LINE, _BLOCK = 512, 256
# Entries of a configuration: what does not change what a model computes, or is part of a salt in another way.
_NOT_DIGESTED = {"_name_or_path", "transformers_version", "architectures", "_commit_hash", "dtype", "torch_dtype"}
# Attributes of a layer that a forward pass may change, and the name of the model.
_CHANGING = {"training", "max_seq_len_cached", "name_or_path"}

# For each model its samples, and the digest of all at that time.
_digests: weakref.WeakKeyDictionary[Any, tuple[str, str]] = weakref.WeakKeyDictionary()


def weights_digest(model: torch.nn.Module, *, keep: bool = True) -> str | None:
    """Return a digest of all parameters and buffers but those of adapters; None if they cannot be read.

    Every element counts at the first call for a model, and again whenever samples of 64 elements of each tensor, or a
    count of its in-place operations, have changed.  A later write to a few elements through Tensor.data, which is not
    counted, is not seen.

    keep
        False: the next call is as the first one.
    """
    try:
        if not keep:
            return _all(model)
        seen = _samples(model)
        known = _digests.get(model)
        if known is None or known[0] != seen:
            known = _digests[model] = seen, _all(model)
        return known[1]
    except (RuntimeError, NotImplementedError, TypeError):
        # Offloaded parameters lie on the device "meta"; tensor subclasses may lack these operations.
        return None


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for tensors in (model.named_parameters(), model.named_buffers()):
        for name, tensor in tensors:
            if not is_of_adapter(name):
                yield f"{_plain_name(name)} {tuple(tensor.shape)} {tensor.dtype}", tensor.detach()


def _samples(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in _tensors(model):
        if tensor.device.type == "meta":
            raise RuntimeError("the parameter is offloaded")
        values = tensor.reshape(-1) if tensor.is_contiguous() else tensor.flatten()
        values = values[::max(1, values.numel() // _SAMPLES)][:_SAMPLES]
        digest.update(f"{name} {tensor._version}\n".encode() + _bytes(values))
    return digest.hexdigest()


def _all(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in _tensors(model):
        digest.update(f"{name}\n".encode())
        digest.update(_bytes(_sums(tensor)) if tensor.numel() * tensor.element_size() > 8 * _LINE else _bytes(tensor))
    return digest.hexdigest()[:32]


def _sums(tensor: torch.Tensor) -> torch.Tensor:
    """Return sums of lines and columns of the bytes of a tensor, taken as integers, which do not depend on threads."""
    values = tensor.contiguous().reshape(-1).view(torch.uint8)
    n_bytes = values.numel() // (8 * _LINE) * 8 * _LINE
    # The beginning of a tensor may be inside of 8 bytes of its memory.
    whole = values[:n_bytes] if values.data_ptr() % 8 == 0 else values[:n_bytes].clone()
    parts = [values[n_bytes:].to(torch.int64)]
    for block in whole.view(torch.int64).view(-1, _LINE).split(_BLOCK):
        parts += block.sum(1), block.sum(0)
    return torch.cat(parts)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()


def configuration(config: Any) -> str:
    """Return what a configuration (transformers.PreTrainedConfig) says of what its model computes."""
    return json.dumps(without_names(config.to_dict(), _NOT_DIGESTED), sort_keys=True, default=repr)


def structure_digest(model: Any) -> str:
    """Return a digest of the effective configuration, and of the class and the settings of each layer."""
    digest = hashlib.sha256(configuration(model.config).encode())
    for path, module in model.named_modules():
        if is_of_adapter(path) or is_adapter_layer(module):
            continue
        kind = type(module)
        settings = {name: _setting(value) for name, value in sorted(vars(module).items())
                    if name not in _CHANGING and not name.startswith("_")}
        known = {name: value for name, value in settings.items() if value is not None}
        digest.update(f"{_plain_name(f'.{path}')} {kind.__module__}.{kind.__qualname__} {known}\n".encode())
    return digest.hexdigest()[:32]


def _setting(value: Any) -> str | None:
    """Return what a layer's attribute sets; None: nothing that is compared."""
    if isinstance(value, (list, tuple)) and all(isinstance(element, (bool, int, float, str)) for element in value):
        return repr(value)
    return repr(value) if isinstance(value, (bool, int, float, str)) else None


def _plain_name(name: str) -> str:
    return name.replace(".base_layer.", ".").replace(".original_module.", ".").removesuffix(".base_layer").removesuffix(
        ".original_module")


def is_of_adapter(name: str) -> bool:
    """Return whether the parameter or layer of a name belongs to an adapter."""
    return "lora_" in name or "modules_to_save." in name


def is_adapter_layer(module: Any) -> bool:
    """Return whether a layer is one of PEFT; models of transformers have a method of this name."""
    return isinstance(getattr(module, "disable_adapters", None), bool)


def adapters_digest(model: torch.nn.Module) -> str | None:
    """Return names and a digest of the adapters that are active; "" if none is, None if they are of unknown kind."""
    digest = hashlib.sha256()
    names: set[str] = set()
    for path, module in model.named_modules():
        if not is_adapter_layer(module):
            continue
        for name in _active_adapters(module):
            parameters = [(key, value) for key, value in module.named_parameters()
                          if f".{name}." in f".{key}." and not key.startswith(("base_layer.", "original_module."))]
            if not all(is_of_adapter(key) for key, _ in parameters):
                return None
            if parameters:
                names.add(name)
                digest.update(f"{path} {name} {getattr(module, 'scaling', {}).get(name)}\n".encode())
            for key, value in parameters:
                digest.update(f"{key} {tuple(value.shape)} {value.dtype}\n".encode() + _bytes(value.detach()))
    return f"{' '.join(sorted(names))} {digest.hexdigest()[:32]}" if names else ""


def _active_adapters(module: Any) -> list[str]:
    merged: list[str] = list(getattr(module, "merged_adapters", ()))
    active = [] if module.disable_adapters else module.active_adapters
    return merged + [name for name in active if name not in merged]
