# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/TRANSFORMERS.md."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch
from model_cases import make_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from paged.transformers import disable

DOCUMENT = Path(__file__).parents[3] / "docs" / "TRANSFORMERS.md"
if not DOCUMENT.exists():
    pytest.skip("the documentation is not in this tree", allow_module_level=True)
NAME = "SmolLM2-135M-Instruct"


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A small model of the documentation's name, whose tokens are bytes."""
    torch.set_num_threads(1)
    make_model("llama", vocab_size=256).save_pretrained(tmp_path / NAME)
    alphabet = {character: token for token, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def daemon(directory, start_daemon, monkeypatch):
    """A daemon with the pool that the documented command prints."""
    printed = subprocess.run([sys.executable, "-m", "paged.transformers", "--print-pool", f"./{NAME}", "--pages", "64"],
                             check=True, text=True, stdout=subprocess.PIPE).stdout
    shown = re.search(r"^    pool .*?^    \}\n", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)[0]
    assert re.sub(r"\d+", "N", printed) == re.sub(r"\d+", "N", re.sub("^    ", "", shown, flags=re.MULTILINE))
    daemon = start_daemon(printed)
    monkeypatch.setenv("PAGED_RUNTIME_DIR", str(daemon.runtime_dir))
    return daemon


def test_blocks(daemon, capsys):
    """They run one after the other, in one program."""
    program = {"__name__": "docs"}
    found = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 5
    try:
        for block in found:
            exec(compile(block, os.fspath(DOCUMENT), "exec"), program)  # noqa: S102
    finally:
        disable()
    lines = capsys.readouterr().out.splitlines()
    # enable() has published the first page of the prompt, of 24 bytes.
    assert any(line.startswith("The capital of France is") for line in lines)
    assert "16 of 24 tokens were in the pool" in lines
