# SPDX-License-Identifier: Apache-2.0
"""What an engine has loaded, as far as K and V depend on it.  The worker's process tells the scheduler's.

A digest of K itself would not do.  Its bits depend on whether the model is compiled, and libraries of linear algebra do
not promise equal bits in two processes, so engines that could share would not.  Weights are loaded, and rotary tables
computed by the same few operations.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorHandshakeMetadata

# Elements of each tensor that a digest covers.
N_SAMPLES = 64
ROTARY = "vllm.model_executor.layers.rotary_embedding."
# Rotary embeddings that follow from the model's configuration alone.
OF_CONFIGURATION = {
    "RotaryEmbedding", "RotaryEmbeddingBase", "LinearScalingRotaryEmbedding", "Llama3RotaryEmbedding",
    "YaRNScalingRotaryEmbedding", "DeepseekScalingRotaryEmbedding", "NTKScalingRotaryEmbedding",
    "DynamicNTKScalingRotaryEmbedding", "DynamicNTKAlphaRotaryEmbedding", "MRotaryEmbedding", "Gemma4RotaryEmbedding",
    "Llama4VisionRotaryEmbedding", "ApplyRotaryEmb",
}


@dataclass
class Loaded(KVConnectorHandshakeMetadata):
    """weights: a digest of samples of all parameters.  rotary: of the rotary embeddings' tables and settings.

    is_plain: whether the rotary embeddings follow from the model's configuration alone.
    """

    weights: str
    rotary: str
    is_plain: bool


def loaded(model: torch.nn.Module) -> Loaded:
    weights, rotary = hashlib.sha256(), hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        _add(weights, name, parameter)
    is_plain = True
    for name, module in _rotary_modules(model):
        settings = {key: value for key, value in vars(module).items() if _is_setting(value)}
        rotary.update(f"{name} {type(module).__name__} {sorted(settings.items())}\n".encode())
        for buffer_name, buffer in module.named_buffers(recurse=False):
            _add(rotary, buffer_name, buffer)
        # Phi-3: vLLM takes the long factors for all sequences if --max-model-len allows one long sequence.
        is_plain &= getattr(module, "use_long_rope", None) is False or type(module).__name__ in OF_CONFIGURATION
    return Loaded(weights.hexdigest(), rotary.hexdigest(), is_plain)


def _rotary_modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that vLLM has for rotary embeddings, and others that have tables of that name."""
    for name, module in model.named_modules():
        buffers = [name for name, _ in module.named_buffers(recurse=False)]
        has_table = any("cos" in buffer or "inv_freq" in buffer for buffer in buffers)
        if type(module).__module__.startswith(ROTARY) or has_table:
            yield name, module


def _is_setting(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, int | float) for item in value)
    return isinstance(value, bool | int | float | str)


def _add(digest: hashlib._Hash, name: str, tensor: torch.Tensor) -> None:
    digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
    values = tensor.detach()
    values = values.reshape(-1) if values.is_contiguous() else values.flatten()
    values = values[::max(1, values.numel() // N_SAMPLES)][:N_SAMPLES].contiguous()
    digest.update(values.view(torch.uint8).numpy().tobytes())
