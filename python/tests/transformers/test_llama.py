# SPDX-License-Identifier: Apache-2.0
"""paged-llama and a Python process use each other's pages.

PAGED_MODEL names the demo's model as a GGUF file, PAGED_HF_MODEL as the directory that tools/hf-model writes.  Here
the Python process uses paged only, without paged.transformers: K and V are those of transformers' own cache.

Both compute the same sums of f32 in different orders.  A sum of n products of f32 differs by at most n * 2^-24 of the
sum of their magnitudes, by about sqrt(n) * 2^-24 as a rule; n is at most 1536 here.  After the 210 products with
weights of 30 layers, whose errors add up as independent ones do, that is sqrt(1536 * 210) * 2^-24 = 3.4e-5 of the
largest element of a layer's K or V.
"""
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import paged
from daemon_process import Daemon
from paged._engines import prefix_salt

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parents[3]
LLAMA = Path(os.environ.get("PAGED_BUILDDIR", ROOT)) / "examples" / "llama" / "paged-llama"
GGUF, HF_MODEL = (os.environ.get(name, "") for name in ("PAGED_MODEL", "PAGED_HF_MODEL"))
if not GGUF or not HF_MODEL or not LLAMA.exists():
    pytest.skip("needs PAGED_MODEL, PAGED_HF_MODEL and paged-llama", allow_module_level=True)

CONFIGURATION = """
pool llama {
    layers = 30   kv-heads = 3   head-dim = 64   dtype = f32
    page-size = 16   pages = 512   max-length = 8192
    model = "SmolLM2-135M-Instruct.Q4_1"
}
"""
MAX_TOKENS = 64
TOLERANCE = 3.4e-5              # of the largest element of a layer
GOLDEN = range(12)


def golden(number: int) -> tuple[list[int], list[int]]:
    """The token ids of a chat prompt, and of transformers' greedy answer (tests/golden/README.md)."""
    text = (ROOT / "tests" / "golden" / "llama" / f"{number:02}.tokens").read_text()
    lines = dict(line.split(" : ") for line in text.splitlines())
    return [int(token) for token in lines["prompt"].split()], [int(token) for token in lines["greedy"].split()]


class Llama:
    """A process of paged-llama --token-lines."""

    def __init__(self, runtime_dir: Path, *options: str) -> None:
        command: list[str | Path] = [LLAMA, "--token-lines", "--model", GGUF, "--runtime-dir", runtime_dir, *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.reply() == {"ready": True}

    def reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def answer(self, prompt: Sequence[int]) -> tuple[list[int], int]:
        """Return the tokens of the answer, and how many of the prompt came from the pool."""
        assert self.process.stdin is not None
        print(MAX_TOKENS, *prompt, file=self.process.stdin, flush=True)
        tokens = []
        while "token" in (reply := self.reply()):
            tokens.append(reply["token"])
        assert reply["prompt"] == len(prompt) and reply["tokens"] == len(tokens)
        return tokens, reply["found"]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


StartLlama = Callable[..., Llama]


@pytest.fixture
def daemon(start_daemon: Callable[..., Daemon]) -> Daemon:
    return start_daemon(CONFIGURATION)


@pytest.fixture
def llama(daemon: Daemon) -> Iterator[StartLlama]:
    """A function that starts a process of paged-llama on the daemon."""
    processes: list[Llama] = []

    def start(*options: str) -> Llama:
        processes.append(Llama(daemon.runtime_dir, *options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


@pytest.fixture
def pool(daemon: Daemon) -> Iterator[paged.Pool]:
    with daemon.connect() as client, client.pool("llama") as pool:
        yield pool


@pytest.fixture(scope="module")
def model() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(HF_MODEL, dtype=torch.float32).eval()


def prefix_of(pool: paged.Pool, tokens: Sequence[int], tenant: str = "") -> paged.Prefix:
    return paged.Prefix(tokens, salt=prefix_salt(pool, "the pool's model is used", tenant=tenant))


def computed(model: Any, tokens: Sequence[int]) -> Any:
    """The cache of transformers with K and V of tokens: [1, heads, tokens, dim] in each layer."""
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(torch.tensor([list(tokens)]), past_key_values=cache)
    return cache


def write(pool: paged.Pool, cache: Any, tokens: Sequence[int]) -> None:
    """Publish the K and V of transformers' cache as those of tokens."""
    prefix = prefix_of(pool, tokens)
    [(sequence, n_shared)] = pool.start([(prefix, len(tokens))])
    with pool.batch() as batch:
        batch.plan([sequence], len(tokens) - n_shared, len(tokens))
        for number, layer in enumerate(cache.layers):
            k, v = (x[0, :, n_shared:].transpose(0, 1) for x in (layer.keys, layer.values))
            batch.append(number, k, v)
        batch.publish(sequence, prefix)
    pool.erase(sequence)


def read(pool: paged.Pool, tokens: Sequence[int]) -> tuple[int, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return how many first tokens are published, and K and V of these, [1, heads, tokens, dim], of each layer."""
    [(sequence, n_shared)] = pool.start([(prefix_of(pool, tokens), 0)])
    layers = []
    with pool.batch() as batch:
        batch.plan([sequence], 1, n_shared, no_append=True)
        for number in range(pool.n_layers):
            k, v = torch.empty(2, n_shared, pool.n_kv_heads, pool.k_dim)
            batch.gather(number, k, v)
            layers.append((k.transpose(0, 1)[None], v.transpose(0, 1)[None]))
    pool.erase(sequence)
    return n_shared, layers


def argmax_on(model: Any, layers: Sequence[tuple[torch.Tensor, torch.Tensor]], prompt: Sequence[int],
              answer: Sequence[int]) -> list[int]:
    """Return the best next token of prompt, and of prompt and each beginning of answer.

    layers hold the K and V of the first tokens of prompt.  The result is answer if, and only if, transformers' greedy
    answer on these begins with it.
    """
    cache = transformers.DynamicCache(config=model.config)
    for number, (k, v) in enumerate(layers):
        cache.update(k, v, number)
    rest = torch.tensor([[*prompt, *answer[:-1]]])[:, cache.get_seq_length():]
    with torch.no_grad():
        logits = model(rest, past_key_values=cache, logits_to_keep=len(answer)).logits
    best: list[int] = logits[0].argmax(dim=-1).tolist()
    return best


def largest_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def test_pages_of_llama_hold_what_transformers_computes(llama: StartLlama, pool: paged.Pool, model: Any) -> None:
    prompt, greedy = golden(11)
    tokens, n_found = llama("--threads", "2").answer(prompt)
    assert (tokens, n_found) == (greedy, 0)
    n_shared, layers = read(pool, prompt + greedy)
    assert n_shared == (len(prompt) + len(greedy) - 1) // 16 * 16
    cache = computed(model, prompt + greedy)
    for (k, v), layer in zip(layers, cache.layers, strict=True):
        assert largest_error(k, layer.keys[:, :, :n_shared]) < TOLERANCE
        assert largest_error(v, layer.values[:, :, :n_shared]) < TOLERANCE


def test_golden_answers_on_pages_of_llama(llama: StartLlama, pool: paged.Pool, model: Any) -> None:
    process = llama("--threads", "2")
    for prompt, greedy in map(golden, GOLDEN):
        assert process.answer(prompt)[0] == greedy
        # The answer depends on the last token's query, which is computed.
        n_shared, layers = read(pool, prompt[:-1])
        assert n_shared == (len(prompt) - 1) // 16 * 16
        assert argmax_on(model, layers, prompt, greedy) == greedy


def test_golden_answers_of_llama_on_pages_of_transformers(llama: StartLlama, pool: paged.Pool, model: Any) -> None:
    process = llama("--threads", "2")
    for prompt, greedy in map(golden, GOLDEN):
        write(pool, computed(model, prompt), prompt)
        tokens, n_found = process.answer(prompt)
        assert n_found == len(prompt) // 16 * 16
        assert tokens == greedy


def test_two_processes_of_llama(llama: StartLlama, pool: paged.Pool) -> None:
    first, second = llama(), llama()
    prompt, greedy = golden(2)
    assert first.answer(prompt) == (greedy, 0)
    assert second.answer(prompt) == (greedy, len(prompt) // 16 * 16)
    first.kill()
    assert second.answer(prompt) == (greedy, len(prompt) // 16 * 16)
    assert pool.check().holds


def test_salts(llama: StartLlama, pool: paged.Pool) -> None:
    """Tenants share nothing; the option --salt is the tenant of prefix_salt()."""
    prompt, greedy = golden(0)
    assert llama("--salt", "a tenant").answer(prompt) == (greedy, 0)
    assert pool.match(prefix_of(pool, prompt)) == 0
    assert pool.match(prefix_of(pool, prompt, "a tenant")) == len(prompt) // 16 * 16


def test_a_pool_of_another_model(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon(CONFIGURATION.replace("135M-Instruct", "135M"))
    result = subprocess.run([LLAMA, "--model", GGUF, "--runtime-dir", daemon.runtime_dir, "--prompt", "Hello"],
                            capture_output=True, text=True)
    assert result.returncode != 0
    assert f"pool llama is for the model SmolLM2-135M.Q4_1, not for {GGUF}: use another pool (--pool)" in result.stderr
