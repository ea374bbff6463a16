# SPDX-License-Identifier: Apache-2.0
"""A check at an engine's start: attention on a pool next to a plain computation, on the tensors of the loaded model.

What a pool computes for a layer follows from what vLLM says of it.  If vLLM means something else, or says more than
this package knows, answers would be wrong without an error.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import paged
from paged._engines import Geometry
from paged.vllm.mods import Mods

if TYPE_CHECKING:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

# Tokens of the forward pass, if --max-num-batched-tokens allows them.
N_TOKENS = 32
# Largest difference, relative to the largest element of V.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}
DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class Guard:
    """Takes the place of the pool in one forward pass, in which vLLM passes no metadata.

    All tokens of the pass are one sequence.  K and V lie in a pool in this process, of the engine's dtype.
    """

    def __init__(self, geometry: Geometry, layers: dict[str, int], dtype: torch.dtype) -> None:
        self._layers = layers
        self._client = paged.embedded({"name": "guard", **geometry._asdict(), "dtype": DTYPES[dtype], "page_size": 16,
                                       "n_pages": N_TOKENS // 16, "max_length": N_TOKENS}, name="vllm guard")
        self._pool = self._client.pool("guard")
        self._seq, = self._pool.create(1, N_TOKENS)
        self._batch = self._pool.batch(max_rows=1)
        self._given: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self._mod_sets: dict[Mods, paged.ModSet | None] = {}

    @property
    def n_checked(self) -> int:
        """Layers with K and V of their own that were checked."""
        return len(self._given)

    def attend(self, name: str, implementation: CPUAttentionBackendImpl, mods: Mods, query: torch.Tensor,
               key: torch.Tensor | None, value: torch.Tensor | None, output: torch.Tensor) -> None:
        """Compute a layer's attention on the pool.  Raises RuntimeError if it is not that of attention_of().

        Tensors are those of Implementation.forward().
        """
        n, owner = min(query.shape[0], N_TOKENS), implementation.kv_sharing_target_layer_name or name
        if mods not in self._mod_sets:
            self._mod_sets[mods] = mods.bind(self._batch)
        self._batch.plan([self._seq], n, n)
        if owner == name and key is not None and value is not None:
            self._given[name] = key[:n].clone(), value[:n].clone()
            self._batch.append(self._layers[name], key[:n], value[:n])
        sink = implementation.sinks.float().contiguous() if implementation.sinks is not None else None
        self._batch.attention(self._layers[owner], query[:n], output[:n], mods=self._mod_sets[mods],
                              scale=implementation.scale, sink=sink)
        key, value = self._given[owner]
        expected = attention_of(implementation, query[:n], key, value)
        scale = float(value.abs().max())
        error = float((output[:n].double() - expected).abs().max())
        allowed = TOLERANCE[query.dtype] * scale
        if torch.isfinite(expected).all() and not error <= allowed:
            raise RuntimeError(f"layer {name}: attention on a pool differs from the layer's own by {error:.3g} in one "
                               f"of {n} tokens, where V is up to {scale:.3g} and {allowed:.3g} is allowed for "
                               f"rounding; no pool can serve this model")

    def close(self) -> None:
        self._mod_sets.clear()
        self._batch.close()
        self._pool.close()
        self._client.close()


def attention_of(implementation: CPUAttentionBackendImpl, query: torch.Tensor, key: torch.Tensor,
                 value: torch.Tensor) -> torch.Tensor:
    """Return a layer's attention over one sequence, in float64, from what vLLM keeps in its own implementation."""
    q, k, v = (each.double() for each in (query, key, value))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * implementation.scale
    if implementation.logits_soft_cap:
        scores = implementation.logits_soft_cap * torch.tanh(scores / implementation.logits_soft_cap)
    position = torch.arange(len(k))
    distance = position[:, None] - position[None]
    if implementation.alibi_slopes is not None:
        scores = scores - implementation.alibi_slopes.double()[:, None, None] * distance
    hidden = distance < 0
    if implementation.sliding_window > 0:
        hidden |= distance >= implementation.sliding_window
    scores = scores.masked_fill(hidden, float("-inf"))
    if implementation.sinks is not None:
        scores = torch.cat([scores, implementation.sinks.double()[:, None, None].expand(-1, len(q), 1)], -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :len(k)], v)


def check_model(runner: Any, guard: Guard) -> None:
    """Let the model runner compute one forward pass of random tokens on the guard, which the layers have to find."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        runner._dummy_run(min(N_TOKENS, runner.max_num_tokens), randomize_inputs=True, skip_eplb=True)
    if not guard.n_checked:
        raise RuntimeError("no attention layer of the model computed K and V in a forward pass; no pool can serve it")
