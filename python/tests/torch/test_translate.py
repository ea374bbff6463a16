# SPDX-License-Identifier: Apache-2.0
"""The translator of mods: each translation is evaluated by the library and compared with the Python function."""
from __future__ import annotations

import enum
import functools
import gc
import math
import random
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from mod_cases import (  # noqa: E402
    MASKS,
    N_B,
    N_H,
    N_Q,
    SCORES,
    Function,
    SoftCap,
    by_all,
    by_q_kv,
    causal,
    conditions,
    dilated_by,
    document,
    floats,
)
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # noqa: E402
from torch.nn.attention.flex_attention import and_masks  # noqa: E402

import paged  # noqa: E402
from paged.torch import mods, operations  # noqa: E402
from paged.torch.mods import Translated, UntranslatableError, translate  # noqa: E402


def python_and(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx and q_idx < 4


def python_if(score, b, h, q_idx, kv_idx):
    if h > 1:
        score = score * 2
    return score


def reduction(score, b, h, q_idx, kv_idx):
    return score + by_q_kv[q_idx].sum()


class Point(NamedTuple):
    score: float
    b: int
    h: int
    q_idx: int
    kv_idx: int


def points(n: int, seed: int = 1) -> Iterator[Point]:
    pick = random.Random(seed)
    for _ in range(n):
        yield Point(pick.uniform(-4, 4), pick.randrange(N_B), pick.randrange(N_H), pick.randrange(N_Q),
                    pick.randrange(N_Q))


def call(function: Callable[..., Any], kind: str, point: Point) -> float:
    """The Python function's result, with the score in float64."""
    index = [torch.tensor(i, dtype=torch.int32) for i in point[1:]]
    score = [torch.tensor(point.score, dtype=torch.float64)] if kind == "score" else []
    with TransformGetItemToIndex():
        return float(function(*score, *index))


@pytest.fixture(scope="module")
def pool() -> Iterator[paged.Pool]:
    with paged.embedded({"name": "mods", "n_layers": 1, "n_kv_heads": 1, "k_dim": 8, "dtype": "f32", "n_pages": 1},
                        threads=1, run="own") as client:
        yield client.pool("mods")


def evaluate(pool: paged.Pool, translated: Translated, point: Point) -> float:
    mod = pool.mod(translated.kind, translated.text, **translated.arrays)
    return mod.evaluate(**point._asdict(), arrays=translated.arrays)


def compare(pool: paged.Pool, function: Callable[..., Any], kind: Any, n: int = 200, tolerance: float = 1e-6) -> None:
    translated = translate(function, kind)
    mod = pool.mod(kind, translated.text, **translated.arrays)
    for point in points(n):
        expected = call(function, kind, point)
        got = mod.evaluate(**point._asdict(), arrays=translated.arrays)
        assert got == pytest.approx(expected, rel=tolerance, abs=tolerance, nan_ok=True), (translated.text, point)


@pytest.mark.parametrize("name", MASKS)
def test_mask(pool: paged.Pool, name: str) -> None:
    compare(pool, MASKS[name], "mask", tolerance=0)


@pytest.mark.parametrize("name", SCORES)
def test_score(pool: paged.Pool, name: str) -> None:
    compare(pool, SCORES[name], "score")


@pytest.mark.parametrize("function, kind, operation, line", [
    (python_and, "mask", "aten._local_scalar_dense", "return q_idx >= kv_idx and q_idx < 4"),
    (python_if, "score", "aten._local_scalar_dense", "if h > 1:"),
    (reduction, "score", "aten.sum.default", "return score + by_q_kv[q_idx].sum()"),
])
def test_untranslatable(function: Callable[..., Any], kind: Any, operation: str, line: str) -> None:
    with pytest.raises(UntranslatableError) as caught:
        translate(function, kind)
    assert caught.value.operation == operation
    assert caught.value.filename == __file__
    assert line in str(caught.value) and operation in str(caught.value)


def unpacked(score, b, h, q_idx, kv_idx):
    first, second = by_q_kv[:2]
    return score + first[q_idx] - second[kv_idx]


MORE_SCORES: dict[str, Callable[..., Any]] = {
    **{name: lambda s, b, h, q, kv, name=name: getattr(torch, name)(s)
       for name in ("exp", "exp2", "tanh", "sinh", "cosh", "sigmoid", "expm1", "floor", "ceil", "trunc", "sign",
                    "square", "relu", "neg", "reciprocal")},
    **{name: lambda s, b, h, q, kv, name=name: getattr(torch, name)(s.abs() + 0.5)
       for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")},
    **{name: lambda s, b, h, q, kv, name=name: getattr(torch.nn.functional, name)(s)
       for name in ("softplus", "hardtanh", "hardsigmoid", "hardswish", "mish", "elu", "leaky_relu", "relu6",
                    "logsigmoid")},
    "gelu tanh": lambda s, b, h, q, kv: torch.nn.functional.gelu(s, approximate="tanh"),
    "remainder": lambda s, b, h, q, kv: s % 1.5,
    "fmod": lambda s, b, h, q, kv: torch.fmod(s, -1.5) + torch.fmod(q - 2 * kv, 5),
    "floor division": lambda s, b, h, q, kv: s // 0.75 + (q - kv) // 3,
    "rounding": lambda s, b, h, q, kv: (torch.div(q - kv, 3, rounding_mode="trunc")
                                        + torch.div(s, 0.5, rounding_mode="trunc")),
    "true division": lambda s, b, h, q, kv: s + q / (kv + 1),
    "int powers": lambda s, b, h, q, kv: s + q**2 + 2 ** (h + 1),
    "negative powers": lambda s, b, h, q, kv: (s.abs() + 1) ** -2 + (s.abs() + 1) ** 1.7 + 3.0**s,
    "in place": lambda s, b, h, q, kv: (s.add_(1).mul_(2)),
    "masked fill": lambda s, b, h, q, kv: s.masked_fill(q < kv, -5.0),
    "min max": lambda s, b, h, q, kv: torch.minimum(s, torch.tensor(1.0)) + torch.maximum(q, kv) + s.clamp(min=0),
    "alpha": lambda s, b, h, q, kv: torch.sub(torch.add(s, kv, alpha=3), q, alpha=2),
    "rsub": lambda s, b, h, q, kv: 1 - s,
    "bits": lambda s, b, h, q, kv: s + ((q & 3) | (kv ^ 5)) + (~q) + (kv << 2) + (q >> 1),
    "conditions": lambda s, b, h, q, kv: s + (q > kv) + (q > kv) * 2 + torch.logical_xor(q > 3, kv > 3),
    "of numbers": lambda s, b, h, q, kv: torch.where(torch.logical_and(q, kv) & ~torch.logical_not(h), s, -s),
    "classes": lambda s, b, h, q, kv: torch.where(torch.isfinite(s) & ~torch.isnan(s) & ~torch.isinf(s), s, 0),
    "views": lambda s, b, h, q, kv: (s + by_q_kv.T[q, kv] + by_q_kv[2:][h, -1] + by_all[:, 1][b][q][kv]
                                     + by_all[0, h, 3][kv]),
    "constants": lambda s, b, h, q, kv: (s + torch.arange(N_Q)[q] + torch.tensor([1.5, -2.5])[h % 2]
                                         + torch.ones_like(s)),
    "types": lambda s, b, h, q, kv: s.to(torch.int32) + (kv * 9).to(torch.uint8) + (s > 0).to(torch.float32) + q.bool(),
    "addcmul": lambda s, b, h, q, kv: torch.addcmul(s, s, s, value=0.5) + torch.lerp(s, s * 2, 0.25),
    "constant": lambda s, b, h, q, kv: torch.full_like(s, 2.5),
    "long shifts": lambda s, b, h, q, kv: s + ((q + 7) >> (4 * kv)) + ((-5 - q) >> (kv - 2)) + (q >> 40),
    "negative shifts": lambda s, b, h, q, kv: s + (q << (-1 - kv)) + (q << -3),
    "comparisons of conditions": lambda s, b, h, q, kv: s + ((q > 3) == (kv > 5)) + ((q > 3) < (kv > 5)) * 2,
    "conditions in place": lambda s, b, h, q, kv: -(s * 1).gt_(0) / 2,
    "unsigned": lambda s, b, h, q, kv: s + (kv - 5).to(torch.uint16).to(torch.int32) % 3,
    "unpacked": unpacked,
    "chunks": lambda s, b, h, q, kv: s + by_q_kv.chunk(2)[1][h, kv] + torch.arange(4).split(2)[1][h % 2],
}


@pytest.mark.parametrize("name", MORE_SCORES)
def test_operation(pool: paged.Pool, name: str) -> None:
    # Rounding functions jump, so the float64 of both sides must be the same number: no tolerance would help.
    compare(pool, MORE_SCORES[name], "score", n=60, tolerance=3e-6)


def test_every_operation_has_a_rule_that_runs() -> None:
    """Names in the table are those of ATen operations, so that a misspelt one is found."""
    for name in operations.OPERATIONS:
        assert hasattr(torch.ops.aten, name) or hasattr(torch.ops.prims, name) or name in dir(torch), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8,
                                   torch.bool])
def test_captured_tensors_are_not_copied(pool: paged.Pool, dtype: torch.dtype) -> None:
    table = torch.zeros(N_Q, dtype=dtype)

    def mod(score, b, h, q_idx, kv_idx):
        return score + table[q_idx]

    translated = translate(mod, "score")
    assert list(translated.arrays) == ["table"]
    assert translated.arrays["table"].data_ptr() == table.data_ptr()
    point = Point(0.5, 0, 0, 3, 0)
    assert evaluate(pool, translated, point) == 0.5
    table[3] = 1
    assert evaluate(pool, translated, point) == 1.5


@pytest.mark.parametrize("dtype, becomes", [(torch.float64, torch.float32), (torch.int8, torch.int32),
                                            (torch.int16, torch.int32)])
def test_other_types_are_copied_at_each_use(pool: paged.Pool, dtype: torch.dtype, becomes: torch.dtype) -> None:
    table = torch.arange(N_Q).to(dtype)

    def mod(score, b, h, q_idx, kv_idx):
        return score + table[q_idx]

    assert translate(mod, "score").arrays["table"].dtype is becomes
    table[3] = 40
    assert evaluate(pool, translate(mod, "score"), Point(0.5, 0, 0, 3, 0)) == 40.5


def test_small_integers_wrap_around(pool: paged.Pool) -> None:
    bytes_, shorts = torch.tensor([250, 3], dtype=torch.uint8), torch.tensor([-120, 100], dtype=torch.int8)

    def mod(score, b, h, q_idx, kv_idx):
        return score + (bytes_[q_idx % 2] + 9) + (bytes_[1] - bytes_[0]) + shorts[kv_idx % 2] * 3 + -shorts[0]

    compare(pool, mod, "score", n=20)


def test_int64_outside_32_bits_is_refused(pool: paged.Pool) -> None:
    table = torch.tensor([0, 2**40])
    translated = translate(lambda s, b, h, q, kv: s + table[q], "score")
    with pytest.raises(paged.RangeError, match="table"):
        evaluate(pool, translated, Point(0.0, 0, 0, 0, 0))


def test_index_out_of_bounds(pool: paged.Pool) -> None:
    table = torch.zeros(4)
    translated = translate(lambda s, b, h, q, kv: s + table[q + 2], "score")
    with pytest.raises(paged.RangeError, match="table"):
        evaluate(pool, translated, Point(0.0, 0, 0, 3, 0))


def test_one_tensor_has_one_name() -> None:
    table = torch.zeros(N_Q)
    alias = table

    def inner(q):
        return alias[q]

    def mod(score, b, h, q_idx, kv_idx):
        return score + table[q_idx] + inner(kv_idx)

    assert len(translate(mod, "score").arrays) == 1


def test_names() -> None:
    """Names of variables are used, if the language allows them."""
    doc, exp, größe, mask, a_very_long_name_of_more_than_31_bytes = (torch.zeros(N_Q) for _ in range(5))

    def mod(score, b, h, q_idx, kv_idx):
        return (score + doc[q_idx] + exp[q_idx] + größe[q_idx] + mask[q_idx]
                + a_very_long_name_of_more_than_31_bytes[q_idx])

    assert sorted(translate(mod, "score").arrays) == ["c0", "c1", "c2", "c3", "doc"]


def test_strided_tensors(pool: paged.Pool) -> None:
    wide = torch.arange(4 * N_Q * N_Q, dtype=torch.float32).view(2 * N_Q, 2 * N_Q)
    table = wide[::2, 1::2].T

    def mod(score, b, h, q_idx, kv_idx):
        return score + table[q_idx, kv_idx]

    assert translate(mod, "score").arrays["table"].data_ptr() == table.data_ptr()
    compare(pool, mod, "score", n=40)


# ------------------------------------------------------------------------------------------------------------ cache


@pytest.fixture
def count_traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    traced: list[Any] = []
    real = mods.write

    def write(function: Any, kind: Any, names: Any) -> Any:
        traced.append(function)
        return real(function, kind, names)

    monkeypatch.setattr(mods, "write", write)
    monkeypatch.setattr(mods, "_recipes", type(mods._recipes)())
    return traced


def shifted(offset: torch.Tensor, step: int = 1) -> Callable[..., Any]:
    return lambda b, h, q_idx, kv_idx: q_idx + offset * step >= kv_idx


def test_same_structure_is_traced_once(pool: paged.Pool, count_traces: list[Any]) -> None:
    for n in range(3):
        translated = translate(shifted(torch.tensor(n)), "mask")
        assert evaluate(pool, translated, Point(0.0, 0, 0, 5, 5 + n)) == 1
        assert evaluate(pool, translated, Point(0.0, 0, 0, 5, 6 + n)) == 0
    assert len(count_traces) == 1


@pytest.mark.parametrize("first, second", [
    (shifted(torch.tensor(1)), shifted(torch.tensor(1), 2)),                        # a captured number
    (shifted(torch.tensor(1)), shifted(torch.tensor(1), True)),                     # 1 == True
    (shifted(torch.tensor(1)), shifted(torch.tensor(1, dtype=torch.int32))),        # a type
    (shifted(torch.tensor(1)), lambda b, h, q_idx, kv_idx: q_idx >= kv_idx),        # other code
    (functools.partial(dilated_by, 2), functools.partial(dilated_by, 3)),
    (and_masks(causal, document), and_masks(document, causal)),
])
def test_other_structure_is_traced_again(count_traces: list[Any], first: Any, second: Any) -> None:
    for mod in (first, second, first, second):
        translate(mod, "mask")
    assert len(count_traces) == 2


def test_changes_between_uses_are_seen(pool: paged.Pool, count_traces: list[Any]) -> None:
    """Attributes, closure variables and globals may change: a translation belongs to what they were."""
    cap, step = SoftCap(30.0), 1

    def mod(score, b, h, q_idx, kv_idx):
        return cap(score, b, h, q_idx, kv_idx) + step * UNIT

    point = Point(2.0, 0, 0, 0, 0)
    for _ in range(2):
        assert evaluate(pool, translate(mod, "score"), point) == pytest.approx(call(mod, "score", point))
    assert len(count_traces) == 1
    cap.cap = 1.5
    assert evaluate(pool, translate(mod, "score"), point) == pytest.approx(call(mod, "score", point))
    step = 5
    assert evaluate(pool, translate(mod, "score"), point) == pytest.approx(call(mod, "score", point))
    global UNIT
    before, UNIT = UNIT, 3.0
    try:
        assert evaluate(pool, translate(mod, "score"), point) == pytest.approx(call(mod, "score", point))
    finally:
        UNIT = before
    assert len(count_traces) == 4


UNIT = 1.0


def test_replaced_tensors_are_seen(pool: paged.Pool, count_traces: list[Any]) -> None:
    table = torch.zeros(4)

    def mod(score, b, h, q_idx, kv_idx):
        return score + table[h]

    assert evaluate(pool, translate(mod, "score"), Point(1.0, 0, 0, 0, 0)) == 1
    table = torch.ones(4)
    assert evaluate(pool, translate(mod, "score"), Point(1.0, 0, 0, 0, 0)) == 2
    assert len(count_traces) == 1


def test_cache_keeps_no_tensors_and_no_objects() -> None:
    class Gate:
        def __init__(self) -> None:
            self.table = torch.zeros(4)

        def __call__(self, score, b, h, q_idx, kv_idx):
            return score + self.table[h]

    gate = Gate()
    translate(gate, "score")
    table, mod = weakref.ref(gate.table), weakref.ref(gate)
    del gate
    gc.collect()
    assert table() is None and mod() is None


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Slots:
    __slots__ = ("cap", "table")

    def __init__(self, cap: float) -> None:
        self.cap, self.table = cap, torch.full((4,), cap)

    def method(self, score, b, h, q_idx, kv_idx):
        return score * self.cap + self.table[h]


class Times:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __mul__(self, other):
        return other * self.factor


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.rand(N_H))
        self.cap = 2.0

    def forward(self, score, b, h, q_idx, kv_idx):
        return self.cap * score + self.slopes[h]

    def method(self, score, b, h, q_idx, kv_idx):
        return self.forward(score, b, h, q_idx, kv_idx)


def scaled(factor: Any) -> Callable[..., Any]:
    return lambda score, b, h, q_idx, kv_idx: factor * score


@pytest.mark.parametrize("make, change", [
    (lambda: scaled(Level.LOW), lambda mod: scaled(Level.HIGH)),
    (lambda: scaled(Times(2.0)), lambda mod: scaled(Times(3.0))),
    (lambda: Slots(2.0).method, lambda mod: setattr(mod.__self__, "cap", 3.0)),
    (lambda: Slots(2.0).method, lambda mod: mod.__self__.table.add_(1)),
    (Module, lambda mod: setattr(mod, "cap", 5.0)),
    (lambda: Module().method, lambda mod: setattr(mod.__self__, "slopes", torch.nn.Parameter(torch.rand(N_H)))),
    (lambda: functools.partial(Module().method), lambda mod: setattr(mod.func.__self__, "cap", 7.0)),
])
def test_state_of_objects(pool: paged.Pool, make: Any, change: Any) -> None:
    point, mod = Point(2.0, 0, 1, 0, 0), make()
    for _ in range(2):
        assert evaluate(pool, translate(mod, "score"), point) == pytest.approx(call(mod, "score", point))
    changed = change(mod)
    mod = changed if callable(changed) else mod
    assert evaluate(pool, translate(mod, "score"), point) == pytest.approx(call(mod, "score", point))


@pytest.mark.parametrize("hidden", [list(range(1000)), Times(2.0), {1, 2}, Level.LOW])
def test_what_cannot_be_walked_is_traced_each_time(count_traces: list[Any], hidden: Any) -> None:
    def mod(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx + bool(hidden)

    assert translate(mod, "mask").text == translate(mod, "mask").text
    assert len(count_traces) == 2


class Configuration:
    cap = 2.0


module = types.ModuleType("module_of_test_translate")


def by_getattr(score, b, h, q_idx, kv_idx):
    return score * getattr(Configuration, "cap")  # noqa: B009


def by_globals(score, b, h, q_idx, kv_idx):
    return score * globals()["Configuration"].cap


def by_import(score, b, h, q_idx, kv_idx):
    import module_of_test_translate
    return score * module_of_test_translate.cap


def by_attribute(score, b, h, q_idx, kv_idx):
    return score * by_attribute.cap


@pytest.mark.parametrize("owner, mod", [
    (Configuration, by_getattr), (Configuration, by_globals), (module, by_import), (by_attribute, by_attribute),
])
def test_names_that_the_code_does_not_show(monkeypatch: pytest.MonkeyPatch, pool: paged.Pool, owner: Any,
                                           mod: Any) -> None:
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for cap in 2.0, 3.0:
        monkeypatch.setattr(owner, "cap", cap, raising=False)
        assert evaluate(pool, translate(mod, "score"), Point(1.5, 0, 0, 0, 0)) == 1.5 * cap


@pytest.mark.parametrize("read", [
    lambda t: t.item(), lambda t: float(t), lambda t: t.tolist(), lambda t: 2.0 if t else 1.0,
    lambda t: 2.0 if torch.equal(t, torch.tensor(1.5)) else 1.0,
])
def test_contents_that_become_numbers(pool: paged.Pool, read: Any) -> None:
    """The text has the elements of the tensor, so it is not kept."""
    factor = torch.tensor(0.0)

    def mod(score, b, h, q_idx, kv_idx):
        return score * read(factor)

    for number in 0.0, 1.5:
        factor.fill_(number)
        assert evaluate(pool, translate(mod, "score"), Point(4.0, 0, 0, 0, 0)) == 4 * read(factor)


def test_tensor_captured_twice(pool: paged.Pool) -> None:
    def mod(x: Any, y: Any, z: Any) -> Any:
        def z_abs(i):
            return z[i].abs()

        return lambda score, b, h, q_idx, kv_idx: x[kv_idx].sin() + y[kv_idx] + z_abs(kv_idx)

    x, y = torch.tensor([0.5, -1.5]), torch.tensor([-2.0, -7.0])
    point = Point(0.0, 0, 0, 0, 1)
    for function in mod(x, y, x), mod(x, y, y):
        assert evaluate(pool, translate(function, "score"), point) == pytest.approx(call(function, "score", point))


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("function, kind, match", [
    (lambda s, b, h, q, kv: torch.erf(s), "score", r"aten\.erf\.default: the mod language has no such operation"),
    (lambda s, b, h, q, kv: torch.nn.functional.gelu(s), "score", "approximate"),
    (lambda s, b, h, q, kv: s**s, "score", "constant exponent"),
    (lambda s, b, h, q, kv: s + by_q_kv[q], "score", "shape"),
    (lambda s, b, h, q, kv: s + by_q_kv, "score", "shape"),
    (lambda s, b, h, q, kv: s + 2**40, "score", "32 bits"),
    (lambda s, b, h, q, kv: by_q_kv, "score", "shape"),
    (lambda s, b, h, q, kv: s + torch.zeros(2, 2, 2, 2, 2)[b, h, 0, 0, 0], "score", "5 dimensions, 4 are allowed"),
    (lambda s, b, h, q, kv: s + by_q_kv.to(torch.complex64)[q, kv].real, "score", "shape"),
    (lambda s, b, h, q, kv: torch.real(s * 1j), "score", "complex|1j"),
    (lambda s, b, h, q, kv: s + by_q_kv[q.view(1)][0, kv], "score", "number without dimensions"),
    (lambda s, b, h, q, kv: s + by_q_kv[:, kv][q], "score", "index by tensors alone"),
    (lambda s, b, h, q, kv: s.view(1).add_(kv) + s, "score", "has a view"),
    (lambda s, b, h, q, kv: s + q.to(torch.uint32).to(torch.int64), "score", "have a sign"),
    (lambda b, h, q, kv: q - kv, "mask", "returns a condition, not int"),
    (lambda b, h, q, kv: functools.reduce(lambda m, i: m & (q + kv != i), range(500), q >= kv), "mask", "4096"),
    (lambda s, b, h, q, kv: functools.reduce(lambda x, _: x * x + x, range(40), s), "score", "4096"),
])
def test_errors(function: Callable[..., Any], kind: Any, match: str) -> None:
    with pytest.raises(UntranslatableError, match=match):
        translate(function, kind)


def test_captured_tensors_may_not_change() -> None:
    table = torch.zeros(())
    with pytest.raises(UntranslatableError, match="must not change"):
        translate(lambda s, b, h, q, kv: s + table.add_(1), "score")
    assert table == 0


def test_what_changes_from_call_to_call_is_refused() -> None:
    """One translation serves many calls, so a number would stay as it was at the first."""
    calls, numpy = [0], pytest.importorskip("numpy")
    for change in (
            random.random, time.perf_counter, lambda: calls.append(0) or len(calls), lambda: float(numpy.random.rand()),
            lambda: torch.from_numpy(numpy.random.rand(16)).float()[3]):
        with pytest.raises(UntranslatableError, match="random numbers, the time or a counter"):
            translate(lambda s, b, h, q, kv: s + change(), "score")  # noqa: B023
    table = torch.zeros(8)
    for draw in (
            lambda: torch.rand(()), lambda: torch.randn(8)[3], lambda: torch.randperm(8)[0],
            lambda: torch.zeros(8).uniform_()[1], lambda: torch.rand_like(table)[2],
            lambda: torch.bernoulli(torch.full((8,), 0.5))[1]):
        with pytest.raises(UntranslatableError, match="draws no random numbers"):
            translate(lambda s, b, h, q, kv: s + draw(), "score")  # noqa: B023
    with pytest.raises(UntranslatableError, match="no defined contents"):
        translate(lambda s, b, h, q, kv: s + torch.empty(8)[3], "score")


def test_other_exceptions_pass() -> None:
    with pytest.raises(ZeroDivisionError):
        translate(lambda s, b, h, q, kv: s / (1 // 0), "score")
    with pytest.raises(TypeError):
        translate(lambda q, kv: q >= kv, "mask")
    with pytest.raises(ValueError, match="kind"):
        translate(causal, "both")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- hypothesis

relaxed = settings(max_examples=60, deadline=None, derandomize=True,
                   suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@relaxed
@given(function=conditions)
def test_generated_masks(pool: paged.Pool, function: Function) -> None:
    _compare_generated(pool, lambda b, h, q, kv: function(None, b, h, q, kv), "mask", 0)


@relaxed
@given(function=floats)
def test_generated_scores(pool: paged.Pool, function: Function) -> None:
    # float32 in Python where only integers are divided; magnitudes reach 1e9, where sin() and cos() lose everything.
    _compare_generated(pool, lambda s, b, h, q, kv: function(s, b, h, q, kv) * 1.0, "score", 1e-4)


def _compare_generated(pool: paged.Pool, function: Function, kind: Any, tolerance: float) -> None:
    try:
        translated = translate(function, kind)
        mod = pool.mod(kind, translated.text, **translated.arrays)
    except (UntranslatableError, paged.LimitError) as error:
        assert "4096" in str(error) or isinstance(error, paged.LimitError)
        return
    for point in points(12):
        expected = call(function, kind, point)
        got = mod.evaluate(**point._asdict(), arrays=translated.arrays)
        if math.isfinite(expected) and abs(expected) > 1e4:
            continue
        assert got == pytest.approx(expected, rel=tolerance, abs=tolerance, nan_ok=True), (translated.text, point)
