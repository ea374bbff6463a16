# SPDX-License-Identifier: Apache-2.0
"""The demonstration examples/python/demo, short and without vLLM.

PAGED_MODEL and PAGED_HF_MODEL are as for test_llama.py.
"""
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon_process import Daemon

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "examples" / "python" / "demo" / "main.py"
LLAMA = Path(os.environ.get("PAGED_BUILDDIR", ROOT)) / "examples" / "llama" / "paged-llama"
GGUF, HF_MODEL = (os.environ.get(name, "") for name in ("PAGED_MODEL", "PAGED_HF_MODEL"))
if not GGUF or not HF_MODEL or not LLAMA.exists():
    pytest.skip("needs PAGED_MODEL, PAGED_HF_MODEL and paged-llama", allow_module_level=True)
pytest.importorskip("paged.transformers")

CONFIGURATION = """
pool demo {
    layers = 30   kv-heads = 3   head-dim = 64   dtype = f32
    page-size = 16   pages = 256   max-length = 8192
    model = "SmolLM2-135M-Instruct.Q4_1"
}
"""


def test_engines_use_each_others_pages(start_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon = start_daemon(CONFIGURATION)
    command: list[str | Path] = [sys.executable, DEMO, "--short", "--runtime-dir", daemon.runtime_dir, "--pool", "demo",
                                 "--gguf", GGUF, "--model", HF_MODEL, "--llama", LLAMA, "--logs", tmp_path]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert result.returncode == 0, result.stdout
    # Ten answers of up to 16 tokens, four of them while another engine is killed or after that.
    assert re.search(r"^\d+ tokens of answers were verified, all equal", result.stdout, re.MULTILINE), result.stdout
    # Each engine is killed once.
    assert len(re.findall("kill -9; ", result.stdout)) == 2
    # Each line fits a terminal.
    assert max(map(len, result.stdout.splitlines())) <= 80
