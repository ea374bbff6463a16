# SPDX-License-Identifier: Apache-2.0
"""Keeps vLLM from using memory for a KV cache of its own: its tensors exist, but no page of them is ever touched."""
from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Smaller tensors are not the KV cache, and a mapping each would waste more than it saves.
MIN_BYTES = 1 << 20
# Linux's value on x86 and ARM; Python has the name from 3.13 on.
MAP_NORESERVE: int = getattr(mmap, "MAP_NORESERVE", 0x4000)


class Untouched(TorchFunctionMode):
    """A context in which torch.zeros() of a megabyte or more of host memory reads as zeros, but takes no memory.

    vLLM allocates its KV cache in it (get_mem_pool_context() of the connector).  The operating system provides a page
    of such a tensor at the first write to it.  K and V are in the pool instead, so no write comes.
    """

    def __torch_function__(self, function: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.zeros and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            size = torch.Size(args[0] if len(args) == 1 and not isinstance(args[0], int) else args or kwargs["size"])
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            n_bytes = size.numel() * dtype.itemsize
            if n_bytes >= MIN_BYTES:
                return _map_zeros(n_bytes).view(dtype).view(size)
        return function(*args, **kwargs)


def _map_zeros(n_bytes: int) -> torch.Tensor:
    """Return n_bytes of uint8; the tensor owns the mapping.  NORESERVE: n_bytes may exceed the free memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    return torch.frombuffer(mmap.mmap(-1, n_bytes, flags=flags), dtype=torch.uint8)
