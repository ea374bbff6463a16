# SPDX-License-Identifier: Apache-2.0
"""Trace a mod, and write its graph as an expression."""
from __future__ import annotations

import operator
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import paged
from paged.torch.expressions import (
    BOOL, FLOAT, INT, MAX_DIMS, MAX_TEXT, UntranslatableError, Value, as_float, binary, convert, kind_of, literal,
    template,
)
from paged.torch.operations import OPERATIONS, Node

Kind = Literal["mask", "score"]

# Words of the mod language and keywords of paged.Batch.mods(), which no array can have as its name.
RESERVED = frozenset(
    "score b h q_idx kv_idx true false inf and or not min max abs clamp exp exp2 log tanh sin cos tan sigmoid sqrt "
    "floor int float mask blocks".split()
).union(mod.name for mod in paged.named_mods())


# Types of captured tensors, as they are or converted by bindable().
READABLE = {torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8,
            torch.int8, torch.int16, torch.bool}


@dataclass(frozen=True, slots=True)
class Captured:
    """A tensor, or a view of it, of which not all dimensions are indexed yet."""

    source: torch.Tensor
    view: torch.Tensor
    indices: tuple[Value | None, ...]
    # from source to view
    steps: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = ()
    # made by the mod itself, not captured
    is_constant: bool = False


#: Operations whose result is a Python number.
_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


class _Watch(TorchDispatchMode):
    """Watches what a mod does to captured tensors, on which tracing computes: changes are refused."""

    #: Elements became Python numbers, and so parts of the graph.
    has_read = False

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and not isinstance(args[0], FakeTensor):
            if func._schema.is_mutable:
                raise UntranslatableError("a mod must not change a captured tensor", str(func))
            self.has_read |= func in _READS
        return func(*args, **(kwargs or {}))


def trace(function: Callable[..., Any], kind: Kind) -> tuple[torch.fx.GraphModule, bool]:
    """The graph of a mod, and whether it depends on the contents of captured tensors."""
    index = [torch.zeros((), dtype=torch.int32) for _ in range(4)]
    score = [torch.zeros((), dtype=torch.float32)] if kind == "score" else []

    def call(*arguments: torch.Tensor) -> Any:
        return function(*arguments)

    # make_fx() counts the parameters of a function wrongly if it is a method or has defaults; of call() rightly.
    # PyTorch calls mods under TransformGetItemToIndex, so that t[q_idx] indexes by a tensor.
    with torch.no_grad(), _Watch() as watch, TransformGetItemToIndex():
        return make_fx(call, tracing_mode="fake", _allow_non_fake_inputs=True)(*score, *index), watch.has_read


def _is_ours(filename: str) -> bool:
    return filename.startswith((os.path.dirname(__file__), torch.__path__[0], "<frozen", "<eval_with_key>"))


class _Lines(TorchFunctionMode):
    """Records the source line of each node of a graph while it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, tuple[str, int]] = {}

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and _is_ours(frame.f_code.co_filename):
            frame = frame.f_back
        result = func(*args, **(kwargs or {}))
        tracing = get_proxy_mode()
        if frame is not None and tracing is not None:
            for node in reversed(tracing.tracer.graph.nodes):
                if node.name in self.lines:
                    break
                self.lines[node.name] = frame.f_code.co_filename, frame.f_lineno
        return result


def _line_of_node(function: Callable[..., Any], kind: Kind, name: str) -> tuple[str | None, int | None]:
    """The source line of an operation.  Traces again, with lines, which is slower."""
    recorder = _Lines()
    with recorder:
        trace(function, kind)
    return recorder.lines.get(name, (None, None))


def _line_of_error(error: BaseException) -> tuple[str | None, int | None]:
    """The innermost line of the traceback that is neither PyTorch's nor ours."""
    found: tuple[str | None, int | None] = (None, None)
    trace = error.__traceback__
    while trace is not None:
        if not _is_ours(trace.tb_frame.f_code.co_filename):
            found = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found


def _operation_name(target: Any) -> str:
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", packet)).rsplit(".", 1)[-1]


def _is_view(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    if schema is None or len(schema.returns) != 1:
        return False
    alias = schema.returns[0].alias_info
    return alias is not None and not alias.is_write


def _has_views(node: torch.fx.Node) -> bool:
    """Whether other nodes share the memory of a node."""
    return _is_view(node.target) or any(_is_view(user.target) for user in node.users)


class Writer:
    """Writes one graph as an expression.

    The values of nodes are a Value, a Captured, or a tensor that is a constant of the graph.
    """

    def __init__(self, module: torch.fx.GraphModule, kind: Kind, names: dict[int, str]) -> None:
        self.module, self.kind, self.preferred = module, kind, names
        self.values: dict[torch.fx.Node, Any] = {}
        self.arrays: dict[str, Captured] = {}
        self.node = ""

    def write(self) -> Value:
        inputs = (["score"] if self.kind == "score" else []) + ["b", "h", "q_idx", "kv_idx"]
        for node in self.module.graph.nodes:
            self.node = node.name
            if node.op == "placeholder":
                name = inputs.pop(0)
                value: Any = Value(name, FLOAT) if name == "score" else Value(name, INT, non_negative=True)
            elif node.op == "get_attr":
                tensor = getattr(self.module, node.target)
                value = Captured(tensor, tensor.detach(), (None,) * tensor.dim())
            elif node.op == "output":
                result = node.args[0]
                while isinstance(result, (tuple, list)):
                    if len(result) != 1:
                        raise UntranslatableError(f"a mod returns one number, not {len(result)}")
                    result = result[0]
                return self._result(result)
            else:
                value = self._call(node)
            self.values[node] = value
        raise AssertionError("a graph without output")

    def _result(self, node: Any) -> Value:
        value = self._value(node)
        if isinstance(node, torch.fx.Node) and node.meta["val"].numel() != 1:
            shape = tuple(node.meta["val"].shape)
            raise UntranslatableError(f"a mod returns one number, not a tensor of shape {shape}")
        if self.kind == "mask" and value.kind != BOOL:
            raise UntranslatableError(f"a mask mod returns a condition, not {value.kind}")
        value = value if self.kind == "mask" else as_float(value)
        if len(value.text) > MAX_TEXT:
            raise UntranslatableError(f"the mod's text has {len(value.text)} bytes, {MAX_TEXT} are allowed")
        return value

    def _value(self, argument: Any) -> Value:
        """A number: an operand of the graph, or a Python number."""
        if isinstance(argument, torch.fx.Node):
            argument = self.values[argument]
        if isinstance(argument, Captured):
            return self._element(argument)
        if isinstance(argument, Value):
            return argument
        if isinstance(argument, torch.Tensor) and argument.numel() == 1:  # folded
            return literal(argument.item())
        if isinstance(argument, (bool, int, float)):
            return literal(argument)
        raise UntranslatableError(f"operand {argument!r} is not a number")

    def _call(self, node: Any) -> Any:
        target, name = node.target, _operation_name(node.target)
        if target is operator.getitem:  # of an operation with several results
            results, at = self.values[node.args[0]], node.args[1]
            if isinstance(results, (tuple, list)):
                return results[at]
            return results if at == 0 else None  # rules give the first
        result = node.meta.get("val")
        if isinstance(result, (tuple, list)):
            result = result[0]
        if name == "_local_scalar_dense":
            raise UntranslatableError("a computed number is used as a Python number; index by tensors alone, such as "
                                      "t[q_idx][kv_idx]", str(target))
        if not isinstance(result, torch.Tensor):
            raise UntranslatableError("the mod language has no such operation", str(target))
        try:
            if torch.Tag.nondeterministic_seeded in target.tags:
                raise UntranslatableError("a mod draws no random numbers, since a translation is used for many calls; "
                                          "draw them outside of the mod, and capture the tensor")
            operands = [self.values[n] for n in node.all_input_nodes]
            if name in ("lift_fresh", "lift_fresh_copy"):
                # torch.tensor(...) inside the mod: a constant, not a captured tensor.
                return operands[0].source if isinstance(operands[0], Captured) else operands[0]
            if all(isinstance(x, torch.Tensor) for x in operands):
                return self._fold(node)
            if name == "index":
                return self._index(node)
            if isinstance(operands[0], Captured) and len(operands) == 1 and _is_view(target):
                if operands[0].view.dim() or result.dim():
                    return self._view(node, operands[0])
            if result.numel() != 1:
                raise UntranslatableError(f"the result has shape {tuple(result.shape)}, but a mod computes with single "
                                          "numbers; compute tensors outside of the mod")
            return self._apply(node, name, result.dtype)
        except UntranslatableError as error:
            if error.operation is not None:
                raise
            raise UntranslatableError(error.reason, str(target)) from None

    def _apply(self, node: Any, name: str, dtype: torch.dtype) -> Value:
        rule = OPERATIONS.get(name)
        in_place = rule is None and name.endswith("_") and name[:-1] in OPERATIONS
        if in_place:
            name = name[:-1]
            rule = OPERATIONS[name]
        if rule is None:
            raise UntranslatableError("the mod language has no such operation; see paged_mods(7)")
        if in_place and _has_views(node.args[0]):
            raise UntranslatableError("a number that has a view is changed in place; compute a new number")
        arguments, options = self._arguments(node)
        value = rule(Node(name, kind_of(dtype), dtype), *arguments, **options)
        if len(value.text) > 16 * MAX_TEXT:  # repeated operands make a text grow exponentially
            raise UntranslatableError(f"the mod's text exceeds {MAX_TEXT} bytes")
        if in_place:
            value = self.values[node.args[0]] = convert(value, kind_of(dtype))
        return value

    def _arguments(self, node: Any) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of a rule: numbers and tensors as Value, without those that describe the result's type."""

        def of(argument: Any) -> Any:
            is_number = isinstance(argument, (torch.fx.Node, bool, int, float))
            return self._value(argument) if is_number else argument

        ignored = ("dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format", "copy", "force")
        return [of(x) for x in node.args], {k: of(v) for k, v in node.kwargs.items() if k not in ignored}

    def _fold(self, node: Any) -> Any:
        """An operation on constants, such as torch.arange(8)."""
        if _operation_name(node.target).startswith(("empty", "new_empty")):
            raise UntranslatableError("the tensor has no defined contents")
        arguments, options = torch.fx.map_arg((node.args, node.kwargs), lambda n: self.values[n])
        return node.target(*arguments, **options)

    def _view(self, node: Any, operand: Captured) -> Captured | list[Captured]:
        if any(i is not None for i in operand.indices):
            raise UntranslatableError("a view of a tensor that is indexed already; index last")
        target, rest, options = node.target, node.args[1:], dict(node.kwargs)

        def captured(step: Callable[[torch.Tensor], torch.Tensor]) -> Captured:
            view = step(operand.view)
            return replace(operand, view=view, indices=(None,) * view.dim(), steps=(*operand.steps, step))

        if isinstance(node.meta["val"], torch.Tensor):
            return captured(lambda tensor: target(tensor, *rest, **options))
        return [captured(lambda tensor, i=i: target(tensor, *rest, **options)[i])  # type: ignore[misc]
                for i in range(len(node.meta["val"]))]

    def _index(self, node: Any) -> Any:
        operand, wanted = self.values[node.args[0]], list(node.args[1])
        if isinstance(operand, torch.Tensor):
            operand = Captured(operand, operand, (None,) * operand.dim(), is_constant=True)
        if not isinstance(operand, Captured):
            raise UntranslatableError("only captured tensors can be indexed")
        indices = list(operand.indices)
        free = [d for d, i in enumerate(indices) if i is None]
        for dimension, index in zip(free, wanted):
            if index is None:
                continue
            if isinstance(index, torch.fx.Node) and index.meta["val"].numel() != 1:
                raise UntranslatableError("an index is one number; a mod cannot read a row of a tensor")
            value = self._value(index)
            if value.kind == BOOL:
                raise UntranslatableError("a condition is no index")
            indices[dimension] = self._from_start(value, operand.view.shape[dimension])
        captured = replace(operand, indices=tuple(indices))
        if None not in indices:
            return self._element(captured)
        if node.meta["val"].dim() != indices.count(None):
            raise UntranslatableError("an index is a number without dimensions, if others follow")
        return captured

    @staticmethod
    def _from_start(index: Value, extent: int) -> Value:
        """PyTorch counts a negative index from the end."""
        if index.literal is not None and index.literal < 0:
            return literal(int(index.literal) + extent)
        return index if index.non_negative else template("i + (i < 0) * n", INT, i=index, n=literal(extent))

    def _element(self, captured: Captured) -> Value:
        if None in captured.indices:
            raise UntranslatableError(f"a captured tensor of shape {tuple(captured.view.shape)} is used without an "
                                      "index for each dimension; mods read single elements")
        if len(captured.indices) > MAX_DIMS:
            raise UntranslatableError(f"a captured tensor has {len(captured.indices)} dimensions, {MAX_DIMS} are "
                                      "allowed")
        dtype = captured.view.dtype
        if dtype not in READABLE:
            raise UntranslatableError(f"a captured tensor has dtype {dtype}")
        text = self._name(captured) + "".join(f"[{i.text}]" for i in captured.indices if i is not None)
        if captured.view.dim() == 0 and captured.view.device.type != "cpu":
            text += "[0]"  # a parameter is read in host memory
        if dtype is torch.bool:
            return binary("!=", Value(text, INT), literal(0), BOOL)
        return Value(text, kind_of(dtype), non_negative=dtype is torch.uint8)

    def _name(self, captured: Captured) -> str:
        """The name of an array: one for each view of a tensor."""
        def place(c: Captured) -> Any:
            return c.source.dtype, c.view.data_ptr(), c.view.shape, c.view.stride()

        for name, other in self.arrays.items():
            if other.source is captured.source and place(other) == place(captured):
                return name
        name = self.preferred.get(id(captured.source), "")
        if not name.isascii() or not name.isidentifier() or name in RESERVED or name in self.arrays or len(name) > 31:
            name = next(n for i in range(256) if (n := f"c{i}") not in self.arrays)
        self.arrays[name] = captured
        return name


def bindable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a type that the library reads: the same memory if possible."""
    dtype = tensor.dtype
    if dtype is torch.bool:
        tensor = tensor.view(torch.uint8)
    elif dtype is torch.float64:
        tensor = tensor.to(torch.float32)
    elif dtype in (torch.int8, torch.int16) or dtype is torch.int64 and tensor.device.type != "cpu":
        tensor = tensor.to(torch.int32)
    return tensor.reshape(1) if tensor.dim() == 0 and tensor.device.type != "cpu" else tensor


class Written(NamedTuple):
    """The text of a mod, its arrays by name, and whether the text has elements of captured tensors as numbers."""

    text: str
    arrays: dict[str, Captured]
    has_read: bool


def write(function: Callable[..., Any], kind: Kind, names: dict[int, str]) -> Written:
    """Translate a mod; `names` has preferred names of tensors by id."""
    try:
        module, has_read = trace(function, kind)
    except UntranslatableError as error:
        raise UntranslatableError(error.reason, error.operation, *_line_of_error(error)) from None
    except (GuardOnDataDependentSymNode, DataDependentOutputException) as error:
        raise UntranslatableError(
            "the mod uses a tensor as a Python number or condition; write & for and, | for or, ~ for not, and "
            "torch.where() for if", "aten._local_scalar_dense", *_line_of_error(error)) from None
    writer = Writer(module, kind, names)
    try:
        return Written(writer.write().text, writer.arrays, has_read)
    except UntranslatableError as error:
        line = _line_of_node(function, kind, writer.node)
        raise UntranslatableError(error.reason, error.operation, *line) from None


def _same(a: dict[str, Captured], b: dict[str, Captured]) -> bool:
    """Whether two translations of a function read the same arrays: the same tensors, or equal ones that it has made."""
    def equal(x: Captured, y: Captured) -> bool:
        if x.source is y.source:
            return True
        x_bytes, y_bytes = (c.view.contiguous().cpu().reshape(-1).view(torch.uint8) for c in (x, y))
        return x.view.dtype == y.view.dtype and x.view.shape == y.view.shape and torch.equal(x_bytes, y_bytes)

    return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)


def check_repeats(first: Written, function: Callable[..., Any], kind: Kind, names: dict[int, str]) -> None:
    """Refuse a mod of which a second translation differs: a number would stay as it was at the first."""
    second = write(function, kind, names)
    if first.text == second.text and _same(first.arrays, second.arrays):
        return
    texts = f": {first.text!r:.120}, then {second.text!r:.120}" if first.text != second.text else ""
    raise UntranslatableError("a second trace of the mod gave another result: it must not use random numbers, the time "
                              f"or a counter{texts}")
