# SPDX-License-Identifier: Apache-2.0
"""Expressions of the mod language, paged_mods(7), as text."""
from __future__ import annotations

import linecache
import math
from dataclasses import dataclass, replace

import torch

# Limits of paged_mods(7).
MAX_TEXT = 4096
MAX_DIMS = 4

BOOL, INT, FLOAT = "bool", "int", "float"

# Precedence of operators, as in C; an operand that binds less tightly is put in parentheses.
CONDITIONAL, PRIMARY = 0, 12
PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}
EQUALITY, SHIFT, UNARY = 6, 8, 11


class UntranslatableError(ValueError):
    """A mod uses something that the mod language does not have.

    reason
        What the mod language lacks.
    operation
        Name of the ATen operation, such as "aten.erf.default"; None: no single operation is the cause.
    filename, lineno
        The line of the mod that uses it; None: not known.
    """

    def __init__(self, reason: str, operation: str | None = None, filename: str | None = None,
                 lineno: int | None = None) -> None:
        self.reason, self.operation, self.filename, self.lineno = reason, operation, filename, lineno
        text = reason if operation is None else f"{operation}: {reason}"
        if filename is not None and lineno is not None:
            line = linecache.getline(filename, lineno).strip()
            text += f" ({filename}:{lineno}{line and ': ' + line})"
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Value:
    """A number as text of the mod language."""

    text: str
    kind: str
    precedence: int = PRIMARY
    non_negative: bool = False
    literal: bool | int | float | None = None

    def within(self, precedence: int) -> str:
        """The text as an operand of an operator of this precedence."""
        return self.text if self.precedence >= precedence else f"({self.text})"


def kind_of(dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return BOOL
    if dtype.is_complex:
        raise UntranslatableError("the mod language has no complex numbers")
    if dtype in (torch.uint32, torch.uint64):
        raise UntranslatableError("the mod language's integers have a sign, and 32 bits")
    return FLOAT if dtype.is_floating_point else INT


def literal(value: bool | int | float) -> Value:
    """A Python number."""
    if isinstance(value, bool):
        return Value("true" if value else "false", BOOL, literal=value, non_negative=True)
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise UntranslatableError(f"{value} does not fit 32 bits")
        # -2147483648 would be read as the negative of a number that does not fit.
        text = str(value) if value > -(2**31) else "-2147483647 - 1"
        precedence = PRIMARY if value >= 0 else UNARY if value > -(2**31) else PRECEDENCE["-"]
        return Value(text, INT, precedence, value >= 0, value)
    if math.isnan(value):
        return Value("inf - inf", FLOAT, PRECEDENCE["-"], literal=value)
    text = "inf" if math.isinf(value) else repr(abs(float(value)))
    if math.copysign(1.0, value) < 0:
        return Value("-" + text, FLOAT, UNARY, literal=value)
    return Value(text, FLOAT, PRIMARY, True, value)


def call(function: str, *arguments: Value, kind: str = FLOAT, non_negative: bool = False) -> Value:
    return Value(f"{function}({', '.join(a.text for a in arguments)})", kind, non_negative=non_negative)


def binary(symbol: str, x: Value, y: Value, kind: str, non_negative: bool = False) -> Value:
    level = PRECEDENCE[symbol]
    # The right operand of equal precedence needs parentheses: operators group from the left.  Comparisons do not chain.
    left, right = (SHIFT, SHIFT) if EQUALITY <= level < SHIFT else (level, level + 1)
    return Value(f"{x.within(left)} {symbol} {y.within(right)}", kind, level, non_negative)


def unary(symbol: str, x: Value, kind: str) -> Value:
    # Two signs in a row are legal, but hard to read.
    return Value(f"{symbol}{x.within(PRIMARY)}", kind, UNARY)


def conditional(condition: Value, x: Value, y: Value, kind: str) -> Value:
    if condition.literal is not None:
        return convert(x if condition.literal else y, kind)
    text = f"{condition.within(CONDITIONAL + 1)} ? {x.within(CONDITIONAL + 1)} : {y.within(CONDITIONAL + 1)}"
    return Value(text, kind, CONDITIONAL, x.non_negative and y.non_negative)


def template(text: str, kind: str, **values: Value) -> Value:
    """An expression with one-letter placeholders, such as "x * sigmoid(x)"."""
    out, at = [], 0
    while at < len(text):
        end = at
        while end < len(text) and (text[end].isalnum() or text[end] in "_."):
            end += 1
        word = text[at:end]
        out.append(values[word].within(PRIMARY) if word in values else word or text[at])
        at = max(end, at + 1)
    return Value("".join(out), kind, CONDITIONAL)


def convert(x: Value, kind: str) -> Value:
    """As a value of another kind."""
    if x.kind == kind:
        return x
    if x.literal is not None:
        return literal({BOOL: bool, INT: int, FLOAT: float}[kind](x.literal))
    if kind == BOOL:
        return binary("!=", x, literal(0.0 if x.kind == FLOAT else 0), BOOL)
    return call(kind, x, kind=kind, non_negative=x.non_negative)


def as_float(x: Value) -> Value:
    return convert(x, FLOAT)


def wrap(x: Value, dtype: torch.dtype) -> Value:
    """The result of arithmetic in an integer type of less than 32 bits."""
    if dtype in (torch.uint8, torch.uint16):
        return replace(binary("&", x, literal(255 if dtype is torch.uint8 else 65535), INT), non_negative=True)
    if dtype in (torch.int8, torch.int16):
        sign = 128 if dtype is torch.int8 else 32768
        low = binary("&", x, literal(2 * sign - 1), INT)
        return binary("-", binary("^", low, literal(sign), INT), literal(sign), INT)
    return x
