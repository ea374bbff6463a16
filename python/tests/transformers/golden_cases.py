# SPDX-License-Identifier: Apache-2.0
"""The demo's model in transformers' format, its prompts and greedy answers (tests/golden/README.md)."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
if "PAGED_HF_MODEL" not in os.environ:
    pytest.skip("PAGED_HF_MODEL does not name the directory that tools/hf-model writes", allow_module_level=True)
MODEL = os.environ["PAGED_HF_MODEL"]
N_NEW = 64

POOL = """
pool llama {
    layers = 30   kv-heads = 3   head-dim = 64   dtype = f32
    page-size = 16   pages = 512   max-length = 8192
    model = "SmolLM2-135M-Instruct.Q4_1"
}
"""


def golden(number: int) -> tuple[list[int], list[int]]:
    """The tokens of a prompt, and of its answer."""
    text = (ROOT / "tests" / "golden" / "llama" / f"{number:02}.tokens").read_text()
    lines = dict(line.split(" : ") for line in text.splitlines())
    return [int(token) for token in lines["prompt"].split()], [int(token) for token in lines["greedy"].split()]
