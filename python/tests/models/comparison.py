# SPDX-License-Identifier: Apache-2.0
"""One model with transformers' own cache and on a pool: tokens and logits, cold and from the cache."""
from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache

import paged
from paged.transformers import PagedCache, disable, enable
from paged.transformers.trial import CACHE, cache_layout

N_PROMPT, N_NEW, PAGE_SIZE = 43, 10, 8
# Relative to the norm of all logits, in float32.
TOLERANCE = 1e-3

# From the best to the worst.
SHARED, ON_POOL, OWN, NOT_RUN, FAILED = "shared", "on the pool, not shared", "own cache", "not run", "FAILED"
ORDER = (SHARED, ON_POOL, OWN, NOT_RUN, FAILED)


class Result(NamedTuple):
    """What became of a class, one of ORDER, and why."""

    name: str
    result: str
    reason: str


def prompt() -> torch.Tensor:
    """Return the tokens of the prompt."""
    return torch.randint(8, 100, (1, N_PROMPT), generator=torch.Generator().manual_seed(1))


def sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:240]


def compare(name: str, model: Any, **inputs: torch.Tensor) -> Result:
    """Compare generate() of a model with itself on a pool; inputs are arguments besides the tokens."""
    tokens = prompt()
    try:
        own = _generate(model, tokens, inputs)
    except Exception as error:
        return Result(name, NOT_RUN, f"generate() of transformers ends with {sentence(error)}")
    if own.logits is None:
        return Result(name, NOT_RUN, "generate() of transformers returns no logits")
    again = _generate(model, tokens, inputs)
    if _difference(own, again) > TOLERANCE:
        return Result(name, NOT_RUN, "generate() of transformers does not repeat itself")
    cache = getattr(own, CACHE, None)
    geometry = cache_layout(cache) if isinstance(cache, DynamicCache) else "none"
    # generate() must use no pool, of whatever geometry, if that of its layers is not one.
    parameters = {"n_layers": 1, "n_kv_heads": 1, "k_dim": 16} if isinstance(geometry, str) else geometry._asdict()
    with paged.embedded({"name": "test", "dtype": "f32", "page_size": PAGE_SIZE, "n_pages": 64, "n_slots": 16,
                         "max_length": 512, **parameters}, threads=1) as client, client.pool("test") as pool:
        result = _on_pool(name, model, tokens, inputs, own, pool)
        if result.result != FAILED and pool.counts().n_referenced:
            return Result(name, FAILED, f"{pool.counts().n_referenced} pages are left")
        return result


def _on_pool(name: str, model: Any, tokens: torch.Tensor, inputs: dict[str, torch.Tensor], own: Any,
             pool: paged.Pool) -> Result:
    caches: list[PagedCache] = []
    n_found: list[int] = []
    start, made = PagedCache.start, PagedCache.__init__

    def note_start(cache: PagedCache, *arguments: Any) -> int:
        n_found.append(start(cache, *arguments))
        return n_found[-1]

    def note_made(cache: PagedCache, pool: paged.Pool, **arguments: Any) -> None:
        made(cache, pool, **arguments)
        if pool.name == "test":
            caches.append(cache)

    PagedCache.start, PagedCache.__init__ = note_start, note_made   # type: ignore[method-assign]
    try:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            enable(pool)
            for attempt in ("cold", "from the cache"):
                try:
                    found = _generate(model, tokens, inputs)
                except Exception as error:
                    return Result(name, FAILED, f"generate() {attempt} ends with {sentence(error)}")
                difference = _difference(found, own)
                if difference > TOLERANCE:
                    return Result(name, FAILED, f"{attempt}, logits differ by {difference:.2g} of their norm")
                if not torch.equal(found.sequences, own.sequences):
                    return Result(name, FAILED, f"{attempt}, tokens differ")
                del found
    finally:
        disable()
        PagedCache.start, PagedCache.__init__ = start, made         # type: ignore[method-assign]
    if not caches:
        mark = "transformers' own cache is used: "
        reasons = [str(warning.message).split(mark, 1)[1] for warning in noted if mark in str(warning.message)]
        return Result(name, OWN, reasons[0] if reasons else "by its configuration or class")
    how = "copies of K and V" if caches[-1].dense else ""
    if n_found and n_found[-1]:
        return Result(name, SHARED, how)
    return Result(name, ON_POOL, how or ("no salt" if caches[-1].state.salt is None else "other inputs"))


@torch.no_grad()
def _generate(model: Any, tokens: torch.Tensor, inputs: dict[str, torch.Tensor]) -> Any:
    torch.manual_seed(7)
    return model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=N_NEW,
                          min_new_tokens=N_NEW, do_sample=False, num_beams=1, output_logits=True,
                          return_dict_in_generate=True, **inputs)


def _difference(found: Any, expected: Any) -> float:
    a, b = torch.stack(found.logits).float(), torch.stack(expected.logits).float()
    both = torch.isfinite(a) & torch.isfinite(b)
    if a.shape != b.shape or not torch.equal(a[~both], b[~both]):
        return float("inf")
    return float((a[both] - b[both]).norm() / b[both].norm())
