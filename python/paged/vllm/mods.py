# SPDX-License-Identifier: Apache-2.0
"""What vLLM's attention layers do beyond causal attention, in the mod language: window, ALiBi, soft cap."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import paged


@dataclass(frozen=True)
class Mods:
    """The mods of a layer.  Equal for layers that may share one mod set, and hashable.

    window
        Tokens that a query sees, itself included; of None all.
    slopes
        ALiBi's slope of each query head, or None.
    soft_cap
        The limit of the scores, or None.
    """

    window: int | None = None
    slopes: tuple[float, ...] | None = None
    soft_cap: float | None = None

    @classmethod
    def of_layer(cls, sliding_window: int | None, alibi_slopes: Sequence[float] | None,
                 logits_soft_cap: float | None) -> Mods:
        """Return the mods of a layer, from what vLLM passes to an attention implementation.

        A window of None or less than 1, and a cap of None or 0 mean that there is none.
        """
        window = sliding_window if sliding_window is not None and sliding_window > 0 else None
        slopes = tuple(float(slope) for slope in alibi_slopes) if alibi_slopes is not None else None
        return cls(window, slopes, logits_soft_cap or None)

    @property
    def mask(self) -> str | None:
        """The mask mod's text.  Causal attention is not part of it: it is an argument of Batch.attention()."""
        return "q_idx - kv_idx < window" if self.window is not None else None

    @property
    def score(self) -> str | None:
        """The score mod's text.  The cap applies to q K^T, ALiBi's bias is added to the capped score."""
        capped = "cap * tanh(score / cap)" if self.soft_cap is not None else "score"
        if self.slopes is not None:
            return f"{capped} + slope[h] * (kv_idx - q_idx)"
        return capped if self.soft_cap is not None else None

    def bind(self, batch: paged.Batch) -> paged.ModSet | None:
        """Return a mod set of the batch, bound for all of its plans; None if the layer needs no mods."""
        if self.mask is None and self.score is None:
            return None
        arrays: dict[str, Any] = {}
        if self.window is not None:
            arrays["window"] = self.window
        if self.soft_cap is not None:
            arrays["cap"] = float(self.soft_cap)
        if self.slopes is not None:
            arrays["slope"] = torch.tensor(self.slopes, dtype=torch.float32)
        return batch.mods(mask=self.mask, score=self.score, **arrays)
