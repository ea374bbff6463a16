# SPDX-License-Identifier: Apache-2.0
"""mypy --strict passes: the package, what its tests share, the examples, and the programs of the documentation, as a
program that uses paged may have to."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import paged

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "python" / "README.md", ROOT / "docs" / "PYTHON.md",
             ROOT / "docs" / "TRANSFORMERS.md"]
# mypy may run in another environment than the one that it checks.
MYPY = next(ROOT.glob("environments/requirements-lint-*/bin/mypy"), None) or shutil.which("mypy")
# Errors of installed packages are not shown to their users.  PyTorch documents names that it does not export by mypy's
# rules (torch.from_dlpack), and transformers' types refuse its own model.generate().
CONFIGURATION = """
[mypy]
strict = True
[mypy-paged.*]
ignore_errors = True
[mypy-torch.*]
implicit_reexport = True
[mypy-transformers.*]
follow_imports = skip
"""

pytest.importorskip("torch", minversion="2.10")
if MYPY is None:
    pytest.skip("no mypy: tools/environment python/tests/requirements-lint.txt", allow_module_level=True)
if not DOCUMENTS[-1].exists():
    pytest.skip("the documentation is not in this tree", allow_module_level=True)


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """A function that runs mypy.  PyTorch is analysed once for all runs."""
    cache = tmp_path_factory.mktemp("cache")

    def run(directory, *arguments, path=()):
        result = subprocess.run(
            [MYPY, "--strict", "--cache-dir", cache, "--python-executable", sys.executable, *arguments],
            cwd=directory, text=True, capture_output=True, check=False,
            env={**os.environ, "MYPYPATH": os.pathsep.join(str(entry) for entry in path)})
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


def test_package(check):
    check(ROOT / "python", "-p", "paged")


# Not python/tests/torch, whose mods are as users write them, without types.
@pytest.mark.parametrize("directory", ["python/tests", "python/tests/transformers", "examples/python",
                                       "examples/python/demo"])
def test_fixtures_and_examples(check, directory):
    files = [file for file in sorted((ROOT / directory).glob("*.py")) if not file.name.startswith("test_")]
    # Of the tests' directories, some have the names of packages, which examples may import.
    tests = [ROOT / "python" / "tests"] if directory.startswith("python/tests") else []
    check(ROOT / directory, "--config-file", ROOT / "python" / "pyproject.toml", *files, path=[ROOT / "python", *tests])


def test_documentation(check, tmp_path):
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    programs = []
    for path in DOCUMENTS:
        # The blocks of a document are one program.
        blocks = re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
        assert blocks, path
        programs.append(tmp_path / (re.sub(r"\W", "_", str(path.relative_to(ROOT))) + ".py"))
        programs[-1].write_text("\n".join(blocks))
    output = check(tmp_path, "--config-file", "mypy.ini", *programs, path=[Path(paged.__file__).parents[1]])
    assert output == f"Success: no issues found in {len(programs)} source files\n"
