# SPDX-License-Identifier: Apache-2.0
"""The table of ATen operations that the translator of mods knows.

operation() adds an entry, in this file or in a program:

    @operation("hypot")
    def _hypot(node, x, y):
        return template("sqrt(x * x + y * y)", FLOAT, x=x, y=y)
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from paged.torch.expressions import (
    BOOL, FLOAT, INT, PRIMARY, UntranslatableError, Value, as_float, binary, call, conditional, convert, literal,
    template, unary, wrap,
)

__all__ = ["OPERATIONS", "Node", "operation"]


@dataclass(frozen=True, slots=True)
class Node:
    """What a rule may know about the operation that it translates."""

    name: str           # "div"
    kind: str           # of the result
    dtype: torch.dtype  # of the result


Rule = Callable[..., Value]

# Rules by the name of an ATen operation without namespace and overload.  A rule is called with a Node and the
# operation's arguments: tensors as Value, others as they are.
OPERATIONS: dict[str, Rule] = {}


def operation(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: add a rule to the table."""

    def add(rule: Rule) -> Rule:
        OPERATIONS.update(dict.fromkeys(names, rule))
        return rule

    return add


# Functions of one float, as templates of x.
FLOAT_FUNCTIONS = {
    **{name: f"{name}(x)" for name in ("exp", "exp2", "log", "tanh", "sin", "cos", "tan", "sigmoid", "sqrt")},
    "expm1": "exp(x) - 1.0",
    "log1p": "log(1.0 + x)",
    "log2": f"log(x) * {1 / math.log(2)!r}",
    "log10": f"log(x) * {1 / math.log(10)!r}",
    "sinh": "0.5 * exp(x) - 0.5 * exp(-x)",
    "cosh": "0.5 * exp(x) + 0.5 * exp(-x)",
    "rsqrt": "1.0 / sqrt(x)",
    "reciprocal": "1.0 / x",
    "silu": "x * sigmoid(x)",
    "log_sigmoid_forward": "min(x, 0.0) - log(1.0 + exp(-abs(x)))",
    "hardsigmoid": "clamp(x + 3.0, 0.0, 6.0) / 6.0",
    "hardswish": "x * (clamp(x + 3.0, 0.0, 6.0) / 6.0)",
    "mish": "x * tanh(max(x, 0.0) + log(1.0 + exp(-abs(x))))",
}

# Functions of one float that leave an integer as it is.
ROUNDING = {
    "floor": "floor(x)",
    "ceil": "-floor(-x)",
    "trunc": "x < 0.0 ? -floor(-x) : floor(x)",
    "fix": "x < 0.0 ? -floor(-x) : floor(x)",
}

CLASSIFICATION = {"isnan": "x != x", "isinf": "abs(x) == inf", "isfinite": "abs(x) < inf"}


def _float_function(node: Node, x: Value, **_: Any) -> Value:
    text = FLOAT_FUNCTIONS[node.name]
    return call(node.name, as_float(x)) if text == f"{node.name}(x)" else template(text, FLOAT, x=as_float(x))


def _rounding(node: Node, x: Value) -> Value:
    return template(ROUNDING[node.name], FLOAT, x=x) if x.kind == FLOAT else x


def _classification(node: Node, x: Value) -> Value:
    return template(CLASSIFICATION[node.name], BOOL, x=as_float(x))


OPERATIONS.update(dict.fromkeys(FLOAT_FUNCTIONS, _float_function))
OPERATIONS.update(dict.fromkeys(ROUNDING, _rounding))
OPERATIONS.update(dict.fromkeys(CLASSIFICATION, _classification))


def both(x: Value, y: Value) -> Value:
    """x && y"""
    for one, other in ((x, y), (y, x)):
        if one.literal is not None:
            return convert(other, BOOL) if one.literal else literal(False)
    return binary("&&", x, y, BOOL)


def either(x: Value, y: Value) -> Value:
    """x || y"""
    for one, other in ((x, y), (y, x)):
        if one.literal is not None:
            return literal(True) if one.literal else convert(other, BOOL)
    return binary("||", x, y, BOOL)


def negated(x: Value) -> Value:
    """!x"""
    return literal(not x.literal) if x.literal is not None else unary("!", x, BOOL)


@operation("add", "sub", "rsub", "subtract")
def _add(node: Node, x: Value, y: Value, alpha: Value = literal(1)) -> Value:
    if node.name == "rsub":
        x, y = y, x
    if alpha.literal != 1:
        y = _multiply(replace(node, kind=y.kind), y, alpha)
    if node.kind == BOOL:
        return either(x, y)
    symbol = "+" if node.name == "add" else "-"
    return wrap(binary(symbol, x, y, node.kind, symbol == "+" and x.non_negative and y.non_negative), node.dtype)


@operation("mul", "multiply")
def _multiply(node: Node, x: Value, y: Value) -> Value:
    if node.kind == BOOL:
        return both(x, y)
    return wrap(binary("*", x, y, node.kind, x.non_negative and y.non_negative), node.dtype)


@operation("addcmul")
def _addcmul(node: Node, x: Value, y: Value, z: Value, value: Value = literal(1)) -> Value:
    product = binary("*", y, z, node.kind)
    return binary("+", x, product if value.literal == 1 else binary("*", value, product, node.kind), node.kind)


@operation("lerp")
def _lerp(node: Node, x: Value, y: Value, weight: Value) -> Value:
    return template("x + w * (y - x)", FLOAT, x=x, y=y, w=weight)


@operation("div", "true_divide", "divide", "floor_divide")
def _divide(node: Node, x: Value, y: Value, rounding_mode: str | None = None) -> Value:
    if node.name == "floor_divide":
        rounding_mode = "floor"
    if rounding_mode is None:
        return binary("/", as_float(x), y, FLOAT)
    if node.kind == INT:
        sure = x.non_negative and y.non_negative
        # A sum or product of positions is not negative, unless it overflows.
        if rounding_mode == "floor" or sure and PRIMARY == x.precedence == y.precedence:
            return binary("/", x, y, INT, sure)
        return template("(x < 0) != (y < 0) ? -(abs(x) / abs(y)) : abs(x) / abs(y)", INT, x=x, y=y)
    quotient = binary("/", as_float(x), y, FLOAT)
    return call("floor", quotient) if rounding_mode == "floor" else template(ROUNDING["trunc"], FLOAT, x=quotient)


@operation("remainder")
def _remainder(node: Node, x: Value, y: Value) -> Value:
    if node.kind == INT:
        return binary("%", x, y, INT, y.non_negative)
    return template("x - floor(x / y) * y", FLOAT, x=as_float(x), y=as_float(y))


@operation("fmod")
def _fmod(node: Node, x: Value, y: Value) -> Value:
    if node.kind == INT:
        return template("x < 0 ? -(abs(x) % abs(y)) : x % abs(y)", INT, x=x, y=y)
    return template("x < 0.0 ? -(abs(x) - floor(abs(x) / abs(y)) * abs(y)) : x - floor(x / abs(y)) * abs(y)", FLOAT,
                    x=as_float(x), y=as_float(y))


@operation("pow")
def _power(node: Node, x: Value, y: Value) -> Value:
    exponent, base = y.literal, x.literal
    if exponent is not None and float(exponent).is_integer() and 0 <= exponent <= 8:
        if exponent == 0:
            return literal(1.0 if node.kind == FLOAT else 1)
        result = x = convert(x, node.kind)
        for _ in range(int(exponent) - 1):
            result = binary("*", result, x, node.kind)
        return wrap(result, node.dtype)
    if node.kind == INT:
        if base == 2:
            return _shift(replace(node, name="__lshift__"), literal(1), y)
        raise UntranslatableError("a power of integers needs an exponent of 0 to 8, or the base 2")
    if exponent is not None and float(exponent).is_integer() and -8 <= exponent < 0:
        return binary("/", literal(1.0), _power(node, as_float(x), literal(-exponent)), FLOAT)
    if exponent in (0.5, -0.5):
        return template("sqrt(x)" if exponent > 0 else "1.0 / sqrt(x)", FLOAT, x=as_float(x))
    if exponent is not None and not float(exponent).is_integer() and math.isfinite(exponent):
        # log() of a negative base is NaN, as the result has to be.
        return template("exp(y * log(x))", FLOAT, x=as_float(x), y=y)
    if base is not None and 0 < base < math.inf:
        return call("exp2", as_float(y) if base == 2 else binary("*", literal(math.log2(base)), y, FLOAT))
    raise UntranslatableError("a power needs a constant exponent, or a constant base above 0; integer exponents are "
                              "limited to -8 to 8")


@operation("square")
def _square(node: Node, x: Value) -> Value:
    return _multiply(node, x, x)


@operation("neg", "negative")
def _negative(node: Node, x: Value) -> Value:
    if x.literal is not None:
        return literal(-x.literal)
    return wrap(unary("-", x, node.kind), node.dtype)


@operation("abs", "absolute")
def _absolute(node: Node, x: Value) -> Value:
    return call("abs", x, kind=node.kind, non_negative=True)


@operation("sign", "sgn")
def _sign(node: Node, x: Value) -> Value:
    zero = literal(0.0 if x.kind == FLOAT else 0)
    if x.kind == FLOAT:  # of NaN it is 0
        return as_float(template("int(x > 0.0) - int(x < 0.0)", INT, x=x))
    return template("int(x > z) - int(x < z)", INT, x=x, z=zero)


@operation("minimum", "maximum", "fmin", "fmax", "min", "max")
def _extreme(node: Node, x: Value, y: Value | None = None) -> Value:
    if y is None:  # of all elements of one number
        return x
    if node.name in ("fmin", "fmax"):
        raise UntranslatableError("use minimum or maximum; the mod language's min and max propagate NaN")
    function = node.name[:3]
    sure = x.non_negative and y.non_negative if function == "min" else x.non_negative or y.non_negative
    return call(function, convert(x, node.kind), convert(y, node.kind), kind=node.kind, non_negative=sure)


@operation("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
def _clamp(node: Node, x: Value, min: Value | None = None, max: Value | None = None, *,
           min_val: Value | None = None, max_val: Value | None = None) -> Value:
    low, high = min or min_val, max or max_val
    if node.name == "hardtanh":
        low, high = low or literal(-1.0), high or literal(1.0)
    if node.name == "clamp_max":
        low, high = None, low or high
    bounded = replace(node, name="maximum")
    if low is not None:
        x = _extreme(bounded, x, low)
    return x if high is None else _extreme(replace(node, name="minimum"), x, high)


@operation("relu", "relu6")
def _relu(node: Node, x: Value) -> Value:
    zero = literal(0.0 if x.kind == FLOAT else 0)
    x = call("max", x, zero, kind=x.kind, non_negative=True)
    return x if node.name == "relu" else call("min", x, convert(literal(6.0), x.kind), kind=x.kind, non_negative=True)


@operation("leaky_relu")
def _leaky_relu(node: Node, x: Value, negative_slope: Value = literal(0.01)) -> Value:
    return template("x > 0.0 ? x : s * x", FLOAT, x=x, s=negative_slope)


@operation("elu")
def _elu(node: Node, x: Value, alpha: Value = literal(1.0), scale: Value = literal(1.0),
         input_scale: Value = literal(1.0)) -> Value:
    return template("s * (x > 0.0 ? x : a * (exp(x * i) - 1.0))", FLOAT, x=x, a=alpha, s=scale, i=input_scale)


@operation("softplus")
def _softplus(node: Node, x: Value, beta: Value = literal(1.0), threshold: Value = literal(20.0)) -> Value:
    return template("x * b > t ? x : log(1.0 + exp(x * b)) / b", FLOAT, x=x, b=beta, t=threshold)


@operation("gelu")
def _gelu(node: Node, x: Value, approximate: str = "none") -> Value:
    if approximate != "tanh":
        raise UntranslatableError('the mod language has no erf; approximate="tanh" can be translated')
    return template("0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))", FLOAT, x=x)


COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@operation(*COMPARISONS)
def _compare(node: Node, x: Value, y: Value) -> Value:
    if node.name not in ("eq", "ne"):  # the language does not order conditions
        x, y = (convert(value, INT) if value.kind == BOOL else value for value in (x, y))
    return binary(COMPARISONS[node.name], x, y, BOOL)


@operation("logical_and", "logical_or", "logical_xor", "logical_not")
def _logical(node: Node, *operands: Value) -> Value:
    operands = tuple(convert(x, BOOL) for x in operands)
    if node.name == "logical_not":
        return negated(operands[0])
    x, y = operands
    if node.name == "logical_xor":
        return binary("!=", x, y, BOOL)
    return both(x, y) if node.name == "logical_and" else either(x, y)


BITWISE = {"and": "&", "or": "|", "xor": "^"}


@operation("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
def _bitwise(node: Node, x: Value, y: Value) -> Value:
    name = node.name.strip("_").removeprefix("bitwise_")
    if node.kind == BOOL:
        return _logical(replace(node, name=f"logical_{name}"), x, y)
    sure = x.non_negative or y.non_negative if name == "and" else x.non_negative and y.non_negative
    return binary(BITWISE[name], x, y, INT, sure)


@operation("bitwise_not")
def _bitwise_not(node: Node, x: Value) -> Value:
    return negated(x) if node.kind == BOOL else wrap(unary("~", x, INT), node.dtype)


SHIFTS = {"bitwise_left_shift": "<<", "__lshift__": "<<", "bitwise_right_shift": ">>", "__rshift__": ">>"}


@operation(*SHIFTS)
def _shift(node: Node, x: Value, y: Value) -> Value:
    if node.kind == FLOAT:
        raise UntranslatableError("the mod language shifts integers only")
    symbol, count = SHIFTS[node.name], y.literal
    sure = symbol == ">>" and x.non_negative
    if count is not None and 0 <= count < 32:
        return wrap(binary(symbol, x, y, INT, sure), node.dtype)
    # The language takes counts modulo 32.  In PyTorch a count outside of the type shifts all bits out.
    if symbol == ">>":
        text = "x >> (y & ~31 ? 31 : y)"
    else:
        text = "y & ~31 ? 0 : x << y"
    return wrap(replace(template(text, INT, x=x, y=y), non_negative=sure), node.dtype)


@operation("where")
def _where(node: Node, condition: Value, x: Value, y: Value) -> Value:
    return conditional(condition, convert(x, node.kind), convert(y, node.kind), node.kind)


@operation("masked_fill")
def _masked_fill(node: Node, x: Value, condition: Value, value: Value) -> Value:
    return conditional(condition, convert(value, node.kind), x, node.kind)


@operation("_to_copy", "to", "convert_element_type", "type_as")
def _to(node: Node, x: Value, *_: Any, **__: Any) -> Value:
    if node.kind == INT and x.kind != BOOL:
        return wrap(convert(x, INT), node.dtype)
    return convert(x, node.kind)


@operation("new_ones", "ones_like")
def _ones(node: Node, *_: Any, **__: Any) -> Value:
    return convert(literal(1), node.kind)


@operation("new_zeros", "zeros_like")
def _zeros(node: Node, *_: Any, **__: Any) -> Value:
    return convert(literal(0), node.kind)


@operation("full_like")
def _full_like(node: Node, _: Value, value: Value, **__: Any) -> Value:
    return convert(value, node.kind)


@operation("new_full")
def _new_full(node: Node, _: Value, __: Any, value: Value, **___: Any) -> Value:
    return convert(value, node.kind)


@operation("clone", "contiguous", "lift_fresh", "lift_fresh_copy", "squeeze", "view", "_unsafe_view", "reshape",
           "expand", "unsqueeze", "detach", "alias", "permute", "t", "transpose")
def _same(node: Node, x: Value, *_: Any, **__: Any) -> Value:
    """A number stays one: results of more than one element are refused before."""
    return x


@operation("any", "all", "sum", "mean", "prod", "amax", "amin")
def _of_one(node: Node, x: Value, *_: Any, **__: Any) -> Value:
    """A reduction of one number."""
    return convert(x, node.kind)
