# SPDX-License-Identifier: Apache-2.0
"""What a Python function reads apart from its arguments."""
from __future__ import annotations

import dis
import functools
import types
from typing import Any

import torch

# Packages whose modules and classes do not change.
_CONSTANT_PACKAGES = frozenset(["torch", "math", "numpy", "operator", "functools", "builtins", "typing"])

# Values that the key contains themselves, and objects that it names by id because they cannot change.
_PLAIN = frozenset([int, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, type(Ellipsis)])
_IMMUTABLE = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
              types.GetSetDescriptorType, types.ClassMethodDescriptorType, range, frozenset)

# Special methods that operators do not call, so that an object with no others only has the attributes that code names.
_HARMLESS = frozenset(
    "__init__ __new__ __call__ __module__ __dict__ __weakref__ __doc__ __repr__ __str__ __eq__ __hash__ __slots__ "
    "__annotations__ __match_args__ __getattr__ __getattribute__ __setattr__ __delattr__ __dir__ __getstate__ "
    "__setstate__ __reduce__ __reduce_ex__ __init_subclass__ __class_getitem__ __orig_bases__ __parameters__ "
    "__dataclass_fields__ __dataclass_params__ __del__ __format__ __sizeof__ __copy__ __deepcopy__ __qualname__ "
    "__enter__ __exit__ __name__ __static_attributes__ __firstlineno__ __replace__".split())

# Names that reach attributes and variables which the code does not name, or elements of a tensor.  _IMPORT stands for
# an import statement: a module that it binds to a local variable is in no closure and no globals.
_IMPORT = "import"
_DYNAMIC = frozenset([_IMPORT, *"__import__ import_module __dict__ __getattribute__ attrgetter methodcaller dir eval "
                      "exec getattr globals hasattr locals tolist vars".split()])

_MAX_DEPTH, _MAX_ITEMS, _MAX_CODES = 12, 64, 4096

_names_of_code: dict[int, tuple[types.CodeType, tuple[str, ...]]] = {}


def _is_constant(name: str) -> bool:
    """Whether a module, by its full name, is of a package that does not change."""
    return name.partition(".")[0] in _CONSTANT_PACKAGES


@functools.lru_cache(maxsize=1024)
def _has_only_attributes(kind: Any) -> bool:
    """Whether the attributes that code names are all that it can reach of an object of this class."""
    if kind.__module__ == "builtins" or not (hasattr(kind, "__dict__") or "__slots__" in vars(kind)):
        return False
    special = (name for of in kind.__mro__[:-1] for name in vars(of) if name.startswith("__") and name.endswith("__"))
    return _HARMLESS.issuperset(special)


def _names(code: types.CodeType) -> tuple[str, ...]:
    """The global names and attributes that a function uses, and those of its nested functions."""
    known = _names_of_code.get(id(code))
    if known is None:
        if len(_names_of_code) >= _MAX_CODES:
            _names_of_code.clear()
        found = dict.fromkeys(code.co_names)
        if any(i.opname == "IMPORT_NAME" and not _is_constant(i.argval) for i in dis.get_instructions(code)):
            found[_IMPORT] = None
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                found.update(dict.fromkeys(_names(constant)))
        known = _names_of_code[id(code)] = code, tuple(found)
    return known[1]


class Incomplete(Exception):
    """The function reaches what the walk cannot describe."""


class Captures:
    """What a function reads apart from its arguments.

    The walk visits closures, defaults, globals, and of modules, classes, functions and objects the attributes whose
    names occur in the code.  Equal keys mean that the function does the same operations, on the tensors at the same
    places of `tensors`.
    """

    __slots__ = ("key", "tensors", "places", "tensor_names", "alive", "seen")

    def __init__(self, function: Any) -> None:
        self.key: list[Any] = [torch.get_default_dtype()]
        self.tensors: list[torch.Tensor] = []
        self.places: dict[int, int] = {}  # indices in `tensors`, by id
        self.tensor_names: dict[int, str] = {}
        self.alive: list[Any] = []      # objects that the key names by id
        # The entries keep values and names alive, so that ids stay unique during the walk.
        self.seen: dict[tuple[int, int], tuple[int, Any, tuple[str, ...]]] = {}
        self._walk(function, "", (), 0)

    def _walk(self, value: Any, name: str, names: tuple[str, ...], depth: int) -> None:
        kind: Any = type(value)
        key = self.key
        key.append(kind)
        if kind in _PLAIN:
            key.append(value)
            return
        if kind is float:
            key.append(value.hex())  # 0.0 is not -0.0, and NaN is NaN
            return
        if depth > _MAX_DEPTH:
            raise Incomplete
        seen = self.seen.get((id(value), id(names)))
        if seen is not None:
            key.append(seen[0])
            return
        self.seen[id(value), id(names)] = len(self.seen), value, names
        if isinstance(value, torch.Tensor):
            if id(value) not in self.places:
                self.tensor_names[id(value)] = name
                self.places[id(value)] = len(self.tensors)
                self.tensors.append(value)
            key.append((value.dtype, value.shape, value.stride(), value.device, self.places[id(value)]))
        elif kind is types.FunctionType:
            self._function(value, depth)
            self._attributes(value, tuple(n for n in names if n in value.__dict__), depth)
        elif kind is types.MethodType:
            names = self._function(value.__func__, depth)
            self._walk(value.__self__, name, names, depth + 1)
        elif kind is functools.partial:
            for part in (value.func, value.args, value.keywords):
                self._walk(part, name, names, depth + 1)
        elif kind is tuple or kind is list:
            self._count(len(value))
            for item in value:
                self._walk(item, name, names, depth + 1)
        elif kind is dict:
            self._count(len(value))
            for item_name, item in value.items():
                self._walk(item_name, "", names, depth + 1)
                self._walk(item, str(item_name), names, depth + 1)
        elif kind is types.ModuleType or isinstance(value, type):
            self._hold(value)
            package = value.__name__ if kind is types.ModuleType else value.__module__
            if not _is_constant(package):
                self._attributes(value, names, depth)
        elif isinstance(value, _IMMUTABLE):
            self._hold(value)
        elif _has_only_attributes(kind):
            called = getattr(kind, "__call__", None)  # noqa: B004 (the function itself is wanted)
            if isinstance(called, types.FunctionType):
                names = tuple(dict.fromkeys(names + self._function(called, depth)))
            self._attributes(value, names, depth)
        else:
            raise Incomplete

    def _hold(self, value: Any) -> None:
        self.key.append(id(value))
        self.alive.append(value)

    def _count(self, n: int) -> None:
        if n > _MAX_ITEMS:
            raise Incomplete
        self.key.append(n)

    def _function(self, function: types.FunctionType, depth: int) -> tuple[str, ...]:
        code = function.__code__
        names = _names(code)
        if not _DYNAMIC.isdisjoint(names) and not _is_constant(function.__module__ or ""):
            raise Incomplete
        self._hold(code)
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                self._walk(cell.cell_contents, name, names, depth + 1)
            except ValueError:
                self.key.append("empty")
        if function.__defaults__:
            self._walk(function.__defaults__, "", names, depth + 1)
        if function.__kwdefaults__:
            self._walk(function.__kwdefaults__, "", names, depth + 1)
        variables = function.__globals__
        for name in names:
            if name in variables:
                self._walk(variables[name], name, names, depth + 1)
        return names

    def _attributes(self, value: Any, names: tuple[str, ...], depth: int) -> None:
        for name in names:
            try:
                attribute = getattr(value, name)
            except AttributeError:
                continue
            except Exception as error:  # a property of the program's class: trace each time instead
                raise Incomplete from error
            self.key.append(name)
            self._walk(attribute, name, names, depth + 1)
