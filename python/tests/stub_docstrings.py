#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the docstrings of the C extension into paged/_paged.pyi, which editors read.

The extension's docstrings (python/ext) are the source.  Run this after they change:

    PYTHONPATH=BUILDDIR/python python3 python/tests/stub_docstrings.py

Signatures and comments stay as they are.  test_stub.py fails if the file is not as this program leaves it.
"""
import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

Definition: TypeAlias = ast.FunctionDef | ast.ClassDef

# Special methods, which Python's own words describe, and a type that the extension does not have.
UNDOCUMENTED = ("__init__", "__enter__", "__exit__", "__len__", "_BlockArrays")


def literal(text: str, indent: int) -> list[str]:
    """A docstring of the text, as lines of source."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"""')
    if text.endswith('"'):
        text = text[:-1] + '\\"'
    lines = text.split("\n")
    lines[0] = '"""' + lines[0]
    if len(lines) > 1:
        lines.append("")
    lines[-1] += '"""'
    return [" " * indent + line if line else "" for line in lines]


def definitions(node: ast.Module | ast.ClassDef, owner: Any) -> Iterator[tuple[Definition, str]]:
    """(definition, its docstring at run time) of each definition of a body."""
    for item in node.body:
        if isinstance(item, (ast.FunctionDef, ast.ClassDef)) and item.name not in UNDOCUMENTED:
            found = getattr(owner, item.name)
            if not found.__doc__:
                raise ValueError(f"{item.name} has no docstring")
            yield item, inspect.cleandoc(found.__doc__)
            if isinstance(item, ast.ClassDef):
                yield from definitions(item, found)


def with_docstrings(source: str, module: ModuleType) -> str:
    """The text of a stub with the docstrings of a module."""
    lines = source.split("\n")
    # From the end on, so that line numbers before it stay true.
    for node, text in sorted(definitions(ast.parse(source), module), key=lambda found: -found[0].lineno):
        first = node.body[0]
        new = literal(text, node.col_offset + 4)
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            # "...", or the docstring that the node has.
            header = lines[first.lineno - 1][:first.col_offset].rstrip()
            lines[first.lineno - 1:first.end_lineno] = [header, *new] if header else new
        else:
            lines[node.lineno:node.lineno] = new
    return "\n".join(lines)


def main() -> None:
    from paged import _paged

    path = Path(__file__).parents[1] / "paged" / "_paged.pyi"
    path.write_text(with_docstrings(path.read_text(), _paged))


if __name__ == "__main__":
    main()
