# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with vLLM: configurations of small models, and engines in processes of their own."""
import importlib.util
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine import Engine

from paged.vllm.arguments import arguments

# Where vLLM is not installed, "import vllm" would find this directory, as a namespace package.
_vllm = importlib.util.find_spec("vllm") if "vllm" not in sys.modules else None
if _vllm is None or _vllm.origin is None:
    sys.modules.setdefault("vllm", None)     # type: ignore[arg-type]


# The model of which model_directory() writes the configuration, as a pool.
POOL_CONFIGURATION = """
pool small {{
    layers = 2
    kv-heads = 2
    head-dim = 64
    dtype = {dtype}
    page-size = {page_size}
    pages = {pages}
    max-length = 4096
}}
"""


def pool_configuration(dtype: str = "f32", page_size: int = 32, pages: int = 64) -> str:
    """Configuration of a pagedd for the small model."""
    return POOL_CONFIGURATION.format(dtype=dtype, page_size=page_size, pages=pages)


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
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs

    import paged.vllm

    def make(connector: bool, **arguments: Any) -> Any:
        directory = str(model_directory(tmp_path / "model"))
        config = EngineArgs(model=directory, skip_tokenizer_init=True, enforce_eager=True,
                            **arguments).create_engine_config()
        if connector:
            config.kv_transfer_config = KVTransferConfig(kv_connector="PagedConnector", kv_role="kv_both")
        return config

    paged.vllm.register()
    yield make


@pytest.fixture
def vllm_log() -> Iterator[list[str]]:
    """What is logged where vLLM writes it: by loggers below "vllm", the only ones that it configures."""
    from vllm.config.logging import LoggingConfig
    from vllm.logger import configure_logging_if_needed

    configure_logging_if_needed(LoggingConfig())    # the first engine of a process would do it, and remove the handler
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "paged" in record.name:
                lines.append(record.getMessage())

    handler = Handler(logging.getLogger("vllm").level)
    logging.getLogger("vllm").addHandler(handler)
    yield lines
    logging.getLogger("vllm").removeHandler(handler)


@pytest.fixture
def start_scheduler(tmp_path: Path, start_daemon: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """A function that starts a scheduling.Engine on the test's daemon, which it starts at first; all use one pool."""
    from scheduling import Engine, engine_config, pool_configuration, write_model

    daemons: list[Any] = []
    engines: list[Engine] = []

    def start(*, pages: int = 64, more: str = "", window: int | None = None, **arguments: Any) -> Engine:
        if not daemons:
            daemons.append(start_daemon(pool_configuration(pages, more)))
        config = engine_config(write_model(tmp_path / "model"), daemons[0].runtime_dir, **arguments)
        engines.append(Engine(config, daemons[0], window))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def small_weights(path: Path, seed: int) -> Path:
    """Write the small model with random weights."""
    import torch
    import transformers

    directory = model_directory(path)
    torch.manual_seed(seed)
    config = transformers.AutoConfig.from_pretrained(directory)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    return directory


def engine_keywords(model: Path) -> dict[str, Any]:
    """The keywords of vllm.LLM for an engine of a small model without a pool."""
    return {"model": str(model), "skip_tokenizer_init": True, "enforce_eager": True, "dtype": "float32",
            "block_size": 32, "num_gpu_blocks_override": 65, "max_model_len": 1024, "max_num_seqs": 16,
            "kv_cache_memory_bytes": 1 << 26, "disable_log_stats": True}


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers with random weights; greedy outputs vary with the prompt, and repeat exactly."""
    pytest.importorskip("vllm")
    return small_weights(tmp_path_factory.mktemp("small"), seed=1)


@pytest.fixture
def start_engine(tmp_path: Path, small_model: Path) -> Iterator[Callable[..., Engine]]:
    """A function that starts an engine of the small model.

    pool: the keywords of paged.vllm.arguments(), or None for an engine without a pool.  Other keywords are those of
    vllm.LLM; environment is a mapping.
    """
    engines: list[Engine] = []

    def start(pool: dict[str, Any] | None = None, *, environment: dict[str, str] | None = None,
              wait: bool = True, **keywords: Any) -> Engine:
        defaults = engine_keywords(small_model)
        if pool is not None:
            defaults |= arguments(**pool)
        engines.append(Engine(tmp_path / f"engine{len(engines)}", {**defaults, **keywords}, **(environment or {})))
        if wait:
            assert engines[-1].receive() == "ready"
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()
