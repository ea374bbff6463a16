# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with vLLM: configurations of small models, and engines in processes of their own."""
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import paged

# Where vLLM is not installed, "import vllm" would find this directory, as a namespace package.
_vllm = importlib.util.find_spec("vllm") if "vllm" not in sys.modules else None
if _vllm is None or _vllm.origin is None:
    sys.modules.setdefault("vllm", None)     # type: ignore[arg-type]


def model_directory(path: Path, **config: Any) -> Path:
    """Write the configuration of a small Llama; there are no weights and no tokenizer."""
    path.mkdir(exist_ok=True)
    defaults = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "vocab_size": 128,
                "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
                "num_hidden_layers": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}
    (path / "config.json").write_text(json.dumps({**defaults, **config}))
    return path


@pytest.fixture
def vllm_config(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A function that returns vLLM's configuration of an engine, with the given arguments of EngineArgs."""
    pytest.importorskip("vllm")
    import paged.vllm
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs

    def make(connector: bool, **arguments: Any) -> Any:
        directory = str(model_directory(tmp_path / "model"))
        config = EngineArgs(model=directory, skip_tokenizer_init=True, enforce_eager=True,
                            **arguments).create_engine_config()
        if connector:
            config.kv_transfer_config = KVTransferConfig(kv_connector="PagedConnector", kv_role="kv_both")
        return config

    paged.vllm.register()
    yield make
