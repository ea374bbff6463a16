# SPDX-License-Identifier: Apache-2.0
"""Translate mask mods and score mods of flex_attention into the language of paged_mods(7).

translate() traces a Python function once with torch's make_fx() and writes the resulting graph as one expression;
operations.py has the table of ATen operations.

Differences from PyTorch that remain:

* Integers have 32 bits and wrap around, also those of int64.  A captured int64 tensor with a value outside 32 bits is
  refused when it is bound.  An integer divided by 0 is 0.
* Floating-point arithmetic is float32.  As in compiled flex_attention, the results of bfloat16 and float16 operations
  are not rounded in between.  Functions that the language lacks are composed of others, and have the absolute error of
  these: log1p(x) is log(1 + x).
* An index outside of a captured tensor gives 0, and paged.Batch.validate() reports it.  Negative indices count from the
  end, as in PyTorch.
* No gradients are computed.
* A translation is used for many calls, so a function may not compute with what changes from call to call.  Random
  numbers of torch are refused.  Those of other modules, the time and counters are refused where a second trace gives
  another result; a comparison with the time that gives the same twice, for example, is not found.
"""
from __future__ import annotations

import contextlib
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from paged.torch.captures import Captures, Incomplete
from paged.torch.expressions import UntranslatableError
from paged.torch.graph import Kind, bindable, check_repeats, write

__all__ = ["Translated", "UntranslatableError", "translate"]


class Translated(NamedTuple):
    """A mod in the language of paged_mods(7).

    kind
        "mask" or "score".
    text
        The expression.
    arrays
        The captured tensors by the names that the text uses.  Those of float32, float16, bfloat16, int32, int64, uint8
        and bool share the memory of the function's tensors.  Others are copies, made by this call of translate():
        float64 as float32, int8 and int16 as int32, and int64 in GPU memory as int32.
    """

    kind: Kind
    text: str
    # Not dict[str, torch.Tensor]: type checkers would refuse **arrays next to the other keywords of Batch.mods().
    arrays: dict[str, Any]


class _Recipe(NamedTuple):
    """A translation without the function's tensors."""

    kind: Kind
    text: str
    # name, index of the tensor in Captures.tensors, and how to view it
    arrays: tuple[tuple[str, int, tuple[Callable[[torch.Tensor], torch.Tensor], ...]], ...]
    # arrays that the function makes itself
    constants: dict[str, torch.Tensor]
    # objects whose ids are in the key: while they live, no other object has such an id
    alive: list[Any]

    def apply(self, tensors: Sequence[torch.Tensor]) -> Translated:
        arrays = dict(self.constants)
        for name, at, steps in self.arrays:
            tensor = tensors[at]
            for step in steps:
                tensor = step(tensor)
            arrays[name] = bindable(tensor)
        return Translated(self.kind, self.text, arrays)


# Most recently used last.
_recipes: OrderedDict[tuple[Any, ...], _Recipe] = OrderedDict()
_MAX_RECIPES = 512


def _hold(objects: Sequence[Any], key: tuple[Any, ...]) -> list[Any]:
    """References that do not prolong lives where possible: the recipe goes with the first object that dies."""

    def forget(_: Any) -> None:
        _recipes.pop(key, None)

    held: list[Any] = []
    for value in objects:
        try:
            held.append(value if isinstance(value, types.CodeType) else weakref.ref(value, forget))
        except TypeError:
            held.append(value)
    return held


def translate(function: Callable[..., Any], kind: Kind) -> Translated:
    """Translate a mask mod or a score mod of flex_attention.

    function
        Is called with scalar tensors.  With kind "mask", function(b, h, q_idx, kv_idx) of int32 returns a condition.
        With kind "score", function(score, b, h, q_idx, kv_idx) with a float32 score returns the new score.  Functions
        that call others, closures, functools.partial, methods and objects with __call__ are allowed, also torch's
        and_masks() and or_masks().
    kind
        "mask" or "score".

    Returns a Translated: its text and arrays are arguments of paged.Pool.mod() and paged.Batch.mods().

    The first translation takes milliseconds.  The result is kept, and used again for every function with the same code
    whose captured numbers are equal and whose captured tensors have the same types and shapes; its arrays are then the
    function's captured tensors.  Tensors' contents may change between uses.

    Python numbers that the function captures are part of the text.  Capture numbers that change in each step as 0-d
    tensors, so that the same translation serves all steps.

    >>> window = torch.tensor(128)
    >>> translate(lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < window), "mask").text
    'q_idx >= kv_idx && q_idx - kv_idx < window'

    The first translation calls the function twice, to find what changes.

    Raises UntranslatableError if the function uses an operation that the mod language lacks, a tensor as a Python
    condition, or numbers that change from call to call: random numbers, the time, a counter.
    """
    if kind not in ("mask", "score"):
        raise ValueError(f'kind is "mask" or "score", not {kind!r}')
    try:
        captures: Captures | None = Captures(function)
    except Incomplete:
        captures = None
    if captures is not None:
        key = (kind, *captures.key)
        recipe = _recipes.get(key)
        if recipe is not None:
            with contextlib.suppress(KeyError):  # another thread may have removed it
                _recipes.move_to_end(key)
            return recipe.apply(captures.tensors)
    names = captures.tensor_names if captures is not None else {}
    written = text, captured, has_read = write(function, kind, names)

    places = captures.places if captures is not None else {}
    made = {name: c for name, c in captured.items() if id(c.source) not in places}
    found = {name: c for name, c in captured.items() if id(c.source) in places}
    recipe = _Recipe(kind, text, tuple((name, places[id(c.source)], c.steps) for name, c in found.items()),
                     {name: bindable(c.view) for name, c in made.items()},
                     _hold(captures.alive, key) if captures is not None else [])
    # A tensor that the walk did not find may be another one at the next call.
    if captures is not None and not has_read and all(c.is_constant for c in made.values()):
        check_repeats(written, function, kind, names)
        _recipes[key] = recipe
        if len(_recipes) > _MAX_RECIPES:
            _recipes.popitem(last=False)
    return recipe.apply(captures.tensors if captures is not None else ())
