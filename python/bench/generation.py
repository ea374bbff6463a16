#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times generation by transformers: PagedCache next to transformers' own caches, for one model.

    generation.py MODEL [--depths 512,2048,7680] [--rounds N] [--prefix N] [--parts decode,prefix]

decode: for each depth, in three rounds each cache in turn is made and filled with so many random tokens in one pass
(prefill); then in each round each cache decodes some tokens, in turn.  Prints tokens per second, medians of the rounds,
and the share of the decode time that is spent in calls of the extension, as cProfile counts it.

prefix: two processes generate for the same prompt, one after the other, first with caches of their own and then on the
pool of a daemon.  Prints the time to the first token, and how much memory the processes and the daemon gained from
that, as proportional set sizes (PSS), which count a shared page once.
"""
from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

import paged
from paged.transformers import PagedCache, enable, pool_parameters
from paged.transformers.geometry import pool_section

PREFILL_ROUNDS = 3
STEP_TOKENS = 8
PAGE_SIZE = 16


class Contender:
    """One kind of cache that is filled and then decodes."""

    def __init__(self, name: str, model: Any, make: Callable[[], Any], attention: str) -> None:
        self.name, self.model, self.attention = name, model, attention
        self.make, self.cache = make, None
        self.token = torch.zeros(1, 1, dtype=torch.long)
        self.prefill_s: list[float] = []
        self.step_s: list[float] = []

    @torch.no_grad()
    def run(self, tokens: torch.Tensor) -> float:
        """Compute tokens [1, n] after those in the cache; return the seconds."""
        self.model.set_attn_implementation(self.attention)
        begin = time.perf_counter()
        logits = self.model(tokens, past_key_values=self.cache, logits_to_keep=1).logits
        self.token = logits[:, -1].argmax(-1, keepdim=True)
        return time.perf_counter() - begin

    def close(self) -> None:
        if isinstance(self.cache, PagedCache):
            self.cache.close()
        self.cache = None

    def prefill(self, tokens: torch.Tensor) -> None:
        """Fill a new cache."""
        self.close()
        self.cache = self.make()
        self.prefill_s.append(self.run(tokens))

    def decode(self) -> None:
        self.step_s.append(sum(self.run(self.token) for _ in range(STEP_TOKENS)) / STEP_TOKENS)

    def paged_share(self) -> float:
        """The share of the time of a decode that passes in calls of the extension."""
        with cProfile.Profile() as profile:
            for _ in range(STEP_TOKENS):
                self.run(self.token)
        stats: Any = pstats.Stats(profile)
        inside = sum(entry[2] for key, entry in stats.stats.items() if "'paged.Batch'" in key[2])
        return float(inside / stats.total_tt)


def bench_decode(model: Any, depths: list[int], n_rounds: int) -> None:
    n_pages = (max(depths) + (n_rounds + 2) * STEP_TOKENS) // PAGE_SIZE + 8
    for depth in depths:
        length = depth + (n_rounds + 2) * STEP_TOKENS
        with pools(model, n_pages) as (f32, bf16):
            contenders = [
                Contender("DynamicCache, sdpa", model, lambda: DynamicCache(config=model.config), "sdpa"),
                Contender("StaticCache, sdpa", model,
                          lambda n=length: StaticCache(model.config, max_cache_len=n), "sdpa"),
                Contender("PagedCache, f32", model, lambda: PagedCache(f32), "paged"),
                Contender("PagedCache, bf16", model, lambda: PagedCache(bf16), "paged"),
            ]
            tokens = torch.randint(3, model.config.vocab_size, (1, depth), generator=torch.Generator().manual_seed(1))
            for _ in range(PREFILL_ROUNDS):
                for contender in contenders:
                    contender.prefill(tokens)
            for _ in range(n_rounds):
                for contender in contenders:
                    contender.decode()
            for contender in contenders:
                share = contender.paged_share() if "Paged" in contender.name else None
                print(f"{depth:6} {contender.name:20} decode {1 / statistics.median(contender.step_s):7.1f} tok/s   "
                      f"prefill {depth / statistics.median(contender.prefill_s):7.0f} tok/s"
                      + (f"   in paged {share:4.0%}" if share is not None else ""), flush=True)
                contender.close()


@contextmanager
def pools(model: Any, n_pages: int) -> Iterator[list[paged.Pool]]:
    """Pools of f32 and of bf16 in this process."""
    names = ("f32", "bf16")
    parameters = [pool_parameters(model.config, n_pages=n_pages, dtype=name, name=name) for name in names]
    with paged.embedded(parameters) as client:
        yield [client.pool(name) for name in names]


# The processes of the second part.


def run_worker(model_name: str, n_tokens: int, own: bool) -> None:
    """Print "ready"; after each line of input generate, and print the milliseconds to the first token."""
    if not own:
        enable()
    model = AutoModelForCausalLM.from_pretrained(model_name)
    tokens = torch.randint(3, model.config.vocab_size, (1, n_tokens), generator=torch.Generator().manual_seed(2))
    model.generate(tokens[:, :8], max_new_tokens=2, do_sample=False)
    print("ready", flush=True)
    kept = []
    for _ in sys.stdin:
        begin = time.perf_counter()
        # With the result, the cache stays.
        kept.append(model.generate(tokens, max_new_tokens=1, do_sample=False, return_dict_in_generate=True))
        print(round(1000 * (time.perf_counter() - begin)), flush=True)


class Worker:
    def __init__(self, arguments: argparse.Namespace, own: bool, environment: dict[str, str]) -> None:
        command = [sys.executable, __file__, arguments.model, "--worker", "own" if own else "paged", "--prefix",
                   str(arguments.prefix)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def generate(self) -> int:
        """Return the milliseconds to the first token."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.line())


def pss_mib(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


@contextmanager
def daemon(arguments: argparse.Namespace) -> Iterator[tuple[int, str]]:
    """Start a pagedd with a pool for the model; yield its process id and runtime directory."""
    config = AutoConfig.from_pretrained(arguments.model)
    parameters = pool_parameters(config, n_pages=4 * arguments.prefix // PAGE_SIZE, dtype="f32", name="bench")
    pagedd = Path(os.environ.get("PAGED_BUILDDIR", ".")) / "daemon" / "pagedd"
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        configuration, notify = Path(directory) / "pagedd.conf", Path(directory) / "notify"
        configuration.write_text(pool_section(parameters, "bench"))
        ready.bind(str(notify))
        with open(Path(directory) / "log", "w") as log:
            process = subprocess.Popen([pagedd if pagedd.exists() else "pagedd", "--config", configuration,
                                        "--runtime-dir", directory], stderr=log,
                                       env={**os.environ, "NOTIFY_SOCKET": str(notify)})
        try:
            while b"READY=1" not in ready.recv(4096):
                pass
            yield process.pid, directory
        finally:
            process.terminate()
            process.wait()


def bench_prefix(arguments: argparse.Namespace) -> None:
    for own in (True, False):
        with daemon(arguments) as (pid, directory):
            workers = [Worker(arguments, own, {"PAGED_RUNTIME_DIR": directory}) for _ in range(2)]
            pids = [worker.process.pid for worker in workers] + ([] if own else [pid])
            before = pss_mib(pids)
            times = [worker.generate() for worker in workers]
            gained = pss_mib(pids) - before
            with paged.connect(directory) as client:
                counts = client.pool("bench").counts()
            print(f"{'caches of their own' if own else 'one pool':20} first token {times[0]:6} ms, then {times[1]:6} ms"
                  f"   memory + {gained:6.0f} MiB   pages {counts.n_referenced + counts.n_cached}", flush=True)
            for worker in workers:
                worker.process.kill()
                worker.process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the directory of a model, for example that of tools/hf-model")
    parser.add_argument("--depths", default="512,2048,7680")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prefix", type=int, default=4096, help="tokens of the common prompt")
    parser.add_argument("--parts", default="decode,prefix")
    parser.add_argument("--worker", choices=("own", "paged"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        run_worker(arguments.model, arguments.prefix, arguments.worker == "own")
        return
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}", flush=True)
    if "decode" in arguments.parts.split(","):
        model = AutoModelForCausalLM.from_pretrained(arguments.model)
        bench_decode(model, [int(depth) for depth in arguments.depths.split(",")], arguments.rounds)
        del model
    if "prefix" in arguments.parts.split(","):
        bench_prefix(arguments)


if __name__ == "__main__":
    main()
