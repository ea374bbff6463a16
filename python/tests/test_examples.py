# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python, and those in README.md and docs/PYTHON.md."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "python"

pytest.importorskip("numpy")
if not EXAMPLES.is_dir():
    pytest.skip("the examples are not in this tree", allow_module_level=True)


@pytest.fixture
def daemon(start_daemon):
    """A daemon with the pool that README.md shows, and less memory."""
    pool = re.search(r"^    pool llama \{\n(?:    .*\n)+?    \}\n", (ROOT / "README.md").read_text(), re.MULTILINE)
    return start_daemon(pool[0].replace("2GiB", "256MiB"))


def run(daemon, example):
    result = subprocess.run([sys.executable, EXAMPLES / example], text=True, stdout=subprocess.PIPE,
                            env={**os.environ, "PAGED_RUNTIME_DIR": str(daemon.runtime_dir)}, check=False)
    assert result.returncode == 0
    return result.stdout


def test_first(daemon):
    match = re.fullmatch(r"out\[0\] = (.*), the first value = (.*)\nK of all pages, in place: \[30, \d+, 3, 16, 64\]\n",
                         run(daemon, "first.py"))
    # The pages hold f32.
    assert match[1] == match[2]


def test_share_prefix(daemon):
    assert run(daemon, "share_prefix.py") == "0 tokens were cached, 0 are shared, 600 were computed\n"
    assert run(daemon, "share_prefix.py") == "592 tokens were cached, 592 are shared, 8 were computed\n"


def test_handover(daemon):
    lines = run(daemon, "handover.py").splitlines()
    pages = re.fullmatch(r"prefill: 100 tokens in pages (\[.*\])", lines[0])[1]
    assert lines[1:] == [f"decode: 100 tokens in pages {pages}",
                         "attention of the last token: 0.833333, the mean over 100 ones of prefill and 20 zeros"]


def blocks(path):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)


def test_readme_shows_the_first_example():
    (block,) = blocks("README.md")
    assert (EXAMPLES / "first.py").read_text().endswith('"""\n' + block)


def test_blocks_of_the_documentation(daemon, monkeypatch, capsys):
    """They run one after the other, in one program."""
    pytest.importorskip("torch", minversion="2.10")
    monkeypatch.setenv("PAGED_RUNTIME_DIR", str(daemon.runtime_dir))
    program = {"__name__": "docs"}
    found = blocks("docs/PYTHON.md")
    assert len(found) > 5
    for block in found:
        exec(compile(block, "docs/PYTHON.md", "exec"), program)  # noqa: S102
    lines = capsys.readouterr().out.splitlines()
    assert "512 512" in lines and "q_idx >= kv_idx && q_idx - kv_idx < window[b]" in lines
    assert any(line.startswith("PAGED_ERR_LIMIT") for line in lines)
