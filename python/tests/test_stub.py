# SPDX-License-Identifier: Apache-2.0
"""_paged.pyi and the extension agree: names, parameters, members, docstrings; the signatures that help() shows are
those of the calls."""
import ast
import inspect
import types
from pathlib import Path

import pytest

import paged
from paged import _paged
from stub_docstrings import with_docstrings

SOURCE = Path(paged.__file__).with_name("_paged.pyi").read_text()
STUB = ast.parse(SOURCE)
ATTRIBUTES = [node for node in STUB.body if isinstance(node, ast.AnnAssign)]
# Names that only type checkers use.
ALIASES = {node.target.id for node in ATTRIBUTES if ast.unparse(node.annotation) == "TypeAlias"}


def is_private(name):
    return name.startswith("_") and name not in ("__init__", "__enter__", "__exit__", "__len__", "__dlpack__",
                                                 "__dlpack_device__")


def parameters(node):
    """(name, kind, has a default) of each parameter of a stub's function."""
    arguments = node.args
    positional = [(argument, inspect.Parameter.POSITIONAL_OR_KEYWORD) for argument in arguments.args]
    for i in range(len(arguments.posonlyargs)):
        positional.insert(i, (arguments.posonlyargs[i], inspect.Parameter.POSITIONAL_ONLY))
    n_required = len(positional) - len(arguments.defaults)
    found = [(argument.arg, kind, i >= n_required) for i, (argument, kind) in enumerate(positional)]
    if arguments.vararg:
        found.append((arguments.vararg.arg, inspect.Parameter.VAR_POSITIONAL, False))
    found += [(argument.arg, inspect.Parameter.KEYWORD_ONLY, default is not None)
              for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        found.append((arguments.kwarg.arg, inspect.Parameter.VAR_KEYWORD, False))
    return [item for item in found if item[0] != "self"]


def documented(function):
    signature = inspect.signature(function)
    return [(name, parameter.kind, parameter.default is not inspect.Parameter.empty)
            for name, parameter in signature.parameters.items() if name != "self"]


def is_namedtuple_or_error(node):
    return node.name.endswith("Error") or any(isinstance(base, ast.Name) and base.id == "NamedTuple"
                                              for base in node.bases)


FUNCTIONS = [node for node in STUB.body if isinstance(node, ast.FunctionDef)]
CLASSES = [node for node in STUB.body if isinstance(node, ast.ClassDef) and not is_private(node.name)]
METHODS = [(node.name, item) for node in CLASSES for item in node.body
           if isinstance(item, ast.FunctionDef) and not item.decorator_list
           and item.name not in ("__init__", "__exit__", "__enter__", "__len__")]


def test_names():
    stub = {node.name for node in FUNCTIONS + CLASSES}
    stub |= {node.target.id for node in ATTRIBUTES} - ALIASES
    runtime = {name for name in vars(_paged) if not name.startswith("_")}
    assert runtime == stub
    assert set(paged.__all__) == stub
    assert all(getattr(paged, name) is getattr(_paged, name) for name in stub)


def test_docstrings():
    """Editors read the stub.  If this fails, run stub_docstrings.py, which says how."""
    assert SOURCE == with_docstrings(SOURCE, _paged)


@pytest.mark.parametrize("node", FUNCTIONS, ids=lambda node: node.name)
def test_functions(node):
    assert documented(getattr(paged, node.name)) == parameters(node)


@pytest.mark.parametrize("name, node", METHODS, ids=[f"{name}.{node.name}" for name, node in METHODS])
def test_methods(name, node):
    assert documented(getattr(getattr(paged, name), node.name)) == parameters(node)


@pytest.mark.parametrize("node", [node for node in CLASSES if not is_namedtuple_or_error(node)],
                         ids=lambda node: node.name)
def test_members(node):
    class_ = getattr(paged, node.name)
    stub = {item.name if isinstance(item, ast.FunctionDef) else item.target.id for item in node.body
            if isinstance(item, (ast.FunctionDef, ast.AnnAssign))}
    assert {name for name in vars(class_) if not is_private(name)} - {"__init__"} == stub - {"__init__"}
    assert class_.__module__ == "paged"
    # Attributes cannot be assigned: properties.
    properties = {item.name for item in node.body if isinstance(item, ast.FunctionDef) and item.decorator_list}
    assert properties == {name for name, member in vars(class_).items()
                          if isinstance(member, types.GetSetDescriptorType)}
    # @final: the types cannot be subclassed.
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (class_,), {})
    with pytest.raises(TypeError, match="immutable type"):
        class_.attribute = 1


@pytest.mark.parametrize("node", [node for node in CLASSES if node.bases and not node.name.endswith("Error")],
                         ids=lambda node: node.name)
def test_named_tuples(node):
    fields = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]
    assert list(getattr(paged, node.name)._fields) == fields


@pytest.mark.parametrize("node", [node for node in CLASSES if node.name.endswith("Error")], ids=lambda node: node.name)
def test_errors(node):
    class_ = getattr(paged, node.name)
    assert [base.__name__ for base in class_.__bases__] == [base.id for base in node.bases]
