# SPDX-License-Identifier: Apache-2.0
"""Tries every decoder architecture of the installed vLLM, small and with random weights, on a pool.

    python try_models.py [--write] [ARCHITECTURE...]

Tokens have to be equal to those of vLLM without a pool, twice: the second time the prompts are in the pool.  Or
vLLM has to refuse at the start, with a sentence of paged.vllm.  What table.md has must not change, unless --write adds
the results to it.
"""
from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("table.md")
TITLE = "| architecture | on a pool | |\n|---|---|---|\n"
PAGE = 32
POOL = """
pool small {{
    layers = {n_layers}
    kv-heads = {n_kv_heads}
    k-dim = {k_dim}
    v-dim = {v_dim}
    dtype = {dtype}
    page-size = 32
    pages = 64
    max-length = 512
}}
"""
MAX_SECONDS = 600
# Results that are errors.
FAULTS = ("differs", "fails")


def try_architecture(name: str, directory: Path) -> tuple[str, str]:
    """Return a result and its reason: "equal", "refused", "differs", "fails", "vLLM fails" or "not built"."""
    from small_configs import BFLOAT16, small_config

    try:
        config = small_config(name)
    except Exception as error:
        return "not built", _sentence(error)
    model = directory / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    generator = random.Random(1)
    dtype = "bfloat16" if name in BFLOAT16 else "float32"
    prompts = [[generator.randrange(8, 120) for _ in range(n)] for n in (40, 97)]
    try:
        own, geometry = _generate(model, prompts, dtype, {})
    except Exception as error:
        return "vLLM fails", _sentence(error)
    return _try_pool(directory, model, prompts, dtype, own, geometry)


def _try_pool(directory: Path, model: Path, prompts: list[list[int]], dtype: str, own: Any,
              geometry: Any) -> tuple[str, str]:
    from daemon_process import Daemon
    from paged.vllm import arguments

    daemon = Daemon(directory, POOL.format(**geometry._asdict(), dtype={"float32": "f32"}.get(dtype, "bf16")))
    try:
        pooled, _ = _generate(model, prompts, dtype, arguments("small", runtime_dir=str(daemon.runtime_dir)))
    except Exception as error:
        sentence = _sentence(error)
        refused = isinstance(error, ValueError) and ("no pool can serve this model" in sentence or "paged" in sentence)
        return "refused" if refused else "fails", sentence
    finally:
        daemon.stop()
    (cold, none), (again, found) = pooled
    if cold != own[0][0] or again != own[0][0]:
        return "differs", f"{own[0][0]} without a pool, {cold} and {again} with one"
    if none != [0, 0] or found != [len(prompt) // PAGE * PAGE for prompt in prompts]:
        return "fails", f"{none} and {found} tokens of the prompts are found"
    return "equal", ""


def _generate(model: Path, prompts: list[list[int]], dtype: str, keywords: dict[str, Any]) -> tuple[Any, Any]:
    """Return (tokens, number of cached tokens) of the prompts, twice, and the geometry of the first layer."""
    from vllm import LLM, SamplingParams
    from vllm.distributed.kv_transfer.kv_transfer_state import ensure_kv_transfer_shutdown
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory
    from vllm.model_executor.layers.attention import Attention

    from paged._engines import Geometry

    defaults = {"model": str(model), "load_format": "dummy", "skip_tokenizer_init": True, "enforce_eager": True,
                "dtype": dtype, "max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 256,
                "block_size": PAGE, "num_gpu_blocks_override": 65, "kv_cache_memory_bytes": 1 << 28,
                "disable_log_stats": True, "enable_prefix_caching": False}
    llm = None
    try:
        llm = LLM(**{**defaults, **keywords})
        layers = [layer for layer in llm.llm_engine.vllm_config.compilation_config.static_forward_context.values()
                  if isinstance(layer, Attention) and layer.kv_sharing_target_layer_name is None]
        # A model without such layers must be refused, whatever the pool has.
        geometry = Geometry(1, 1, 32, 32) if not layers else Geometry(
            len(layers), layers[0].num_kv_heads, layers[0].head_size, layers[0].head_size_v)
        sampling = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True, detokenize=False)
        results = []
        for _ in range(2):
            outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
            results.append(([list(output.outputs[0].token_ids) for output in outputs],
                            [output.num_cached_tokens for output in outputs]))
        return results, geometry
    finally:
        del llm
        ensure_kv_transfer_shutdown()
        cleanup_dist_env_and_memory()


def _sentence(error: BaseException) -> str:
    text = re.sub(r"/\S*/", "", " ".join(str(error).split()))[:200]
    if not text:
        lines = traceback.extract_tb(error.__traceback__)
        text = f"{type(error).__name__} in {Path(lines[-1].filename).name}" if lines else type(error).__name__
    return text.replace("|", "\\|")


def _strengthen_weights() -> None:
    """Let vLLM's dummy weights be large enough for prompts to decide the answers."""
    from vllm.model_executor.model_loader import dummy_loader
    sound = dummy_loader.initialize_single_dummy_weight

    def initialize(parameter: Any) -> None:
        # Norms and biases, and matrices.
        low, high = (0.5, 1.5) if parameter.dim() < 2 else (-0.2, 0.2)
        sound(parameter, low, high)

    dummy_loader.initialize_single_dummy_weight = initialize


def _in_a_process(name: str, log: Path) -> tuple[str, str]:
    """Try an architecture in a process of its own, which may crash.  It has imported vLLM already."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with open(log, "wb") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        try:
            import signal
            signal.alarm(MAX_SECONDS)
            with tempfile.TemporaryDirectory(prefix="paged-models-") as directory:
                result = try_architecture(name, Path(directory))
        except BaseException:
            traceback.print_exc()
            result = "fails", _sentence(sys.exc_info()[1] or RuntimeError())
        with os.fdopen(writer, "wb") as stream:
            stream.write(json.dumps([result, list(sys.modules)]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        return "fails", "the process has ended"
    (result, reason), modules = json.loads(text)
    if result == "equal":
        _import_all(modules)
    return result, reason


def _import_all(names: list[str]) -> None:
    """Import what a process needed besides, so that the next ones do not: most of their time would go there."""
    for name in names:
        # Models may need what is not there, and leave other modules half made.
        is_model = name.startswith(("vllm.models.", "vllm.model_executor.models."))
        if name not in sys.modules and name.startswith(("vllm.", "torch.")) and not is_model:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def read_table() -> dict[str, tuple[str, str]]:
    if not TABLE.exists():
        return {}
    rows = [re.split(r"(?<!\\)\|", line)[1:4] for line in TABLE.read_text().splitlines()[2:] if line.startswith("|")]
    return {name.strip(): (result.strip(), reason.strip()) for name, result, reason in rows}


def main() -> int:
    os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_PLUGINS": "",
                       "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"})
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    import vllm  # noqa: F401
    from small_configs import register_configurations
    from vllm import LLM  # noqa: F401
    from vllm.model_executor.models import registry

    import paged.vllm
    paged.vllm.register()
    register_configurations()
    _strengthen_weights()
    # vLLM looks at a class in a process of its own, which imports vLLM again.
    registry._run_in_subprocess = lambda function: function()
    names = [argument for argument in sys.argv[1:] if argument != "--write"]
    expected, n_faults = read_table(), 0
    results = dict(expected)
    for name in names or sorted(registry._TEXT_GENERATION_MODELS):
        log = Path(tempfile.gettempdir()) / f"paged-models-{name}.log"
        results[name] = _in_a_process(name, log)
        result, reason = results[name]
        fault = result in FAULTS or ("--write" not in sys.argv and result != expected.get(name, (result,))[0])
        n_faults += fault
        print(f"{'not ok' if fault else 'ok'} {name}: {result}: {reason}" + (f" ({log})" if fault else ""), flush=True)
        if "--write" in sys.argv:
            # After each: all of them take hours.
            rows = [f"| {key} | {' | '.join(row)} |\n" for key, row in sorted(results.items())]
            TABLE.write_text(TITLE + "".join(rows))
    print(f"# {len(results)} architectures, {n_faults} faults")
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
