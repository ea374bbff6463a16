#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times vLLM with a pool next to vLLM with its own KV cache: two engines of the same model, with prefix caches.

    vllm_engines.py MODEL [--dtype float32|bfloat16] [--rounds N] [--page-size N] [--eager] [--long TOKENS] [--json]

MODEL is a directory in the format of transformers.  For each case: tokens per second when the prompts are in the
prefix caches, time to the first token then (warm), and time to the first token of prompts that no engine has seen
(cold).
Times are those of LLM.generate(), so they include vLLM's scheduler, sampler and messages between its processes.  Each
round runs each engine once, in alternating order; figures are medians of the rounds, in parentheses the lowest and
the highest.  --json prints a line of JSON for each case and engine, with all rounds.

By itself vLLM computes on fewer CPUs with a connector: it leaves one more of them free.  Here both engines use the
CPUs of $VLLM_CPU_OMP_THREADS_BIND, or else all that this process may use.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests" / "vllm"))

from engine import Engine  # noqa: E402

import paged.vllm  # noqa: E402

DTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


class Case(NamedTuple):
    name: str
    prompts: list[list[int]]
    n_tokens: int


class Times(NamedTuple):
    """What one engine did in one round: tokens per second, and seconds to the first token."""

    rate: float
    warm: float
    cold: float


def golden() -> list[list[int]]:
    """The prompts of tests/golden/llama."""
    files = sorted((ROOT / "tests" / "golden" / "llama").glob("*.tokens"))
    return [[int(word) for word in file.read_text().splitlines()[0].split()[2:]] for file in files]


def shuffled(tokens: list[int], n: int, generator: random.Random) -> list[int]:
    """n tokens of the same vocabulary in an order that no earlier prompt has."""
    return [generator.choice(tokens) for _ in range(n)]


def cases(n_long: int) -> list[Case]:
    prompts = golden()
    words = sorted({token for prompt in prompts for token in prompt})
    generator = random.Random(1)
    return [Case(f"{len(prompts)} short prompts", prompts, 64),
            Case(f"{n_long} tokens", [shuffled(words, n_long, generator)], 64)]


@contextmanager
def daemon(directory: Path, model: dict[str, Any], dtype: str, page_size: int, n_pages: int) -> Iterator[Path]:
    """A pagedd with a pool that fits the model; its runtime directory."""
    runtime_dir, configuration = directory / "run", directory / "pagedd.conf"
    runtime_dir.mkdir(mode=0o750)
    n_heads = model["num_attention_heads"]
    configuration.write_text(f"""
        pool bench {{
            layers = {model["num_hidden_layers"]}
            kv-heads = {model.get("num_key_value_heads", n_heads)}
            head-dim = {model.get("head_dim") or model["hidden_size"] // n_heads}
            dtype = {DTYPES[dtype]}
            page-size = {page_size}
            pages = {n_pages}
            max-length = {n_pages * page_size}
        }}""")
    program = Path(os.environ.get("PAGED_BUILDDIR", ROOT)) / "daemon" / "pagedd"
    process = subprocess.Popen([str(program) if program.exists() else "pagedd", "--config", str(configuration),
                                "--runtime-dir", str(runtime_dir)])
    try:
        paged.connect(str(runtime_dir), threads=1, run="own", wait=30).close()
        yield runtime_dir
    finally:
        process.terminate()
        process.wait()


def seconds(engine: Engine, prompts: list[list[int]], n_tokens: int) -> float:
    engine.start(prompts, n_tokens)
    return float(engine.result()["seconds"])


def measure(engine: Engine, case: Case, fresh: list[list[int]]) -> Times:
    """fresh: prompts of the case's lengths that the engine has not seen."""
    engine.generate(case.prompts, 1)
    warm = seconds(engine, case.prompts, 1)
    rate = len(case.prompts) * case.n_tokens / seconds(engine, case.prompts, case.n_tokens)
    return Times(rate, warm, seconds(engine, fresh, 1))


def rounds(engines: dict[str, Engine], case: Case, n: int) -> dict[str, list[Times]]:
    """n rounds of all engines, after one that is not counted."""
    generator = random.Random(case.name)
    words = sorted({token for prompt in case.prompts for token in prompt})
    results: dict[str, list[Times]] = {name: [] for name in engines}
    for i in range(n + 1):
        fresh = [shuffled(words, len(prompt), generator) for prompt in case.prompts]
        for name in list(engines)[::1 if i % 2 else -1]:
            times = measure(engines[name], case, fresh)
            if i:
                results[name].append(times)
    return results


def text(values: list[float], factor: float = 1) -> str:
    low, middle, high = (factor * value for value in (min(values), statistics.median(values), max(values)))
    return f"{middle:7.1f} ({low:.1f}-{high:.1f})"


def report(case: Case, results: dict[str, list[Times]], as_json: bool) -> None:
    for name, times in results.items():
        rate, warm, cold = (list(column) for column in zip(*times))
        if as_json:
            print(json.dumps({"case": case.name, "engine": name, "tokens_per_s": rate, "warm_ttft_s": warm,
                              "cold_ttft_s": cold}))
        else:
            print(f"{case.name:<20} {name:<8} {text(rate):>26} {text(warm, 1e3):>26} {text(cold, 1e3):>26}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page-size", type=int, default=128)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--long", type=int, default=4096, help="tokens of the long prompt")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    n_pages = 8 * -(-options.long // options.page_size) + 128
    keywords = {"model": str(options.model), "skip_tokenizer_init": True, "dtype": options.dtype,
                "enforce_eager": options.eager, "block_size": options.page_size,
                "num_gpu_blocks_override": n_pages + 1, "max_model_len": options.long + 256, "max_num_seqs": 16,
                "disable_log_stats": True, "enable_prefix_caching": True, "kv_cache_memory_bytes": 1 << 30}
    model = json.loads((options.model / "config.json").read_text())
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paged-vllm-")))
        runtime_dir = stack.enter_context(daemon(directory, model, options.dtype, options.page_size, n_pages))
        pool = paged.vllm.arguments(runtime_dir=str(runtime_dir))
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        binding = {"VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", cpus)}
        engines = {}
        for name, extra in ("vllm", {}), ("paged", pool):
            engines[name] = Engine(directory / name, {**keywords, **extra}, **binding)
            stack.callback(engines[name].close)
        for engine in engines.values():
            engine.receive()
        if not options.json:
            print(f"{'':<20} {'':<8} {'tokens/s':>26} {'warm TTFT, ms':>26} {'cold TTFT, ms':>26}")
        for case in cases(options.long):
            report(case, rounds(engines, case, options.rounds), options.json)


if __name__ == "__main__":
    main()
