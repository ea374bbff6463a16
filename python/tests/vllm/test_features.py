# SPDX-License-Identifier: Apache-2.0
"""Features of vLLM in engines on a pool: their tokens are those of an engine with memory of its own."""
from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from conftest import pool_configuration
from paged.vllm.arguments import arguments

MODEL = os.environ.get("PAGED_HF_MODEL")
PAGE = 32
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}


def prompt(n, seed=0):
    generator = random.Random(seed)
    return [generator.randrange(3, 128) for _ in range(n)]


def start_all(start_engine, *keywords):
    """Start engines at the same time; each item is the keywords of one."""
    engines = [start_engine(wait=False, **item) for item in keywords]
    for engine in engines:
        assert engine.receive() == "ready"
    return engines


def test_drafts_after_a_cached_prompt(start_daemon, start_engine):
    """Prompts of whole pages that are in the pool already; repetitions make vLLM draft from the first step on."""
    daemon = start_daemon(pool_configuration())
    pool = arguments("small", runtime_dir=str(daemon.runtime_dir))
    pooled, own = start_all(start_engine, {"speculative_config": NGRAM, **pool}, {"speculative_config": NGRAM})
    prompts = [prompt(8, seed) * (n * PAGE // 8) for seed, n in enumerate((1, 2, 5))]
    right = own.generate(prompts, 60)
    for _ in range(2):
        for tokens, answer in zip(prompts, right):
            pooled.start([tokens], 60)
            result = pooled.result()
            assert result["tokens"] == [[answer]]
    # All pages of the last prompt but one, which is computed with the drafts.
    assert result["cached"] == [len(prompts[-1]) - PAGE]
    assert pooled.generate(prompts, 60) == right
    with daemon.connect() as client:
        check = client.check("small")
        assert check.holds and check.n_referenced == 0, check.text


def write_adapter(path: Path, seed: int, *, hidden=256, kv=128, n_layers=2, rank=8) -> str:
    """Write a LoRA of the small model, with random weights."""
    import torch
    from safetensors.torch import save_file

    path.mkdir()
    (path / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "bias": "none",
        "target_modules": ["q_proj", "k_proj", "v_proj"]}))
    torch.manual_seed(seed)
    weights = {}
    for layer in range(n_layers):
        for name, n in ("q", hidden), ("k", kv), ("v", kv):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}_proj"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(rank, hidden) * 0.2
            weights[f"{prefix}.lora_B.weight"] = torch.randn(n, rank) * 0.2
    save_file(weights, path / "adapter_model.safetensors")
    return str(path)


def test_adapters(tmp_path, start_daemon, start_engine):
    """Adapters share nothing with each other or with the model; each shares with itself in another engine."""
    daemon = start_daemon(pool_configuration(pages=128))
    # One more than needed: vLLM's LoRA on CPUs takes a request without an adapter for one with the last.
    lora = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 8}
    pool = {**lora, **arguments("small", runtime_dir=str(daemon.runtime_dir))}
    own, first, second = start_all(start_engine, lora, pool, pool)
    one, two = (write_adapter(tmp_path / name, seed) for seed, name in enumerate(("one", "two")))
    tokens = prompt(100)
    adapters = [None, ("one", 1, one), ("two", 2, two)]
    right = [own.generate([tokens], 40, adapters=[adapter])[0] for adapter in adapters]
    assert len({tuple(answer) for answer in right}) == 3
    # The second engine gives the adapters other numbers.
    renumbered = [None, ("one", 5, one), ("two", 4, two)]
    whole = 100 // PAGE * PAGE
    for engine, some, found in (first, adapters, [0, 0, 0]), (second, renumbered, [0, whole, whole]):
        for adapter, answer, n_cached in zip(some, right, found):
            engine.start([tokens], 40, adapters=[adapter])
            result = engine.result()
            assert result["tokens"] == [[answer]] and result["cached"] == [n_cached]
    assert second.generate([tokens] * 3, 40, adapters=renumbered) == right
    with daemon.connect() as client:
        check = client.check("small")
        assert check.holds and check.n_referenced == 0, check.text


SMOL_POOL = """
pool smol {
    layers = 30
    kv-heads = 3
    head-dim = 64
    dtype = f32
    page-size = 16
    pages = 200
    max-length = 1024
}
"""
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Lyon", "Marseille"]}, "large": {"type": "boolean"}},
          "required": ["city", "large"], "additionalProperties": False}


@pytest.mark.skipif(not MODEL, reason="PAGED_HF_MODEL is not set: structured output needs a tokenizer")
def test_structured_output(start_daemon, start_engine):
    """A JSON schema, a regular expression and a choice, twice: the second time the prompt is in the pool."""
    pytest.importorskip("xgrammar")
    from transformers import AutoTokenizer

    daemon = start_daemon(SMOL_POOL)
    keywords = {"model": MODEL, "skip_tokenizer_init": False}
    pooled, own = start_all(start_engine, {**keywords, **arguments("smol", runtime_dir=str(daemon.runtime_dir))},
                            keywords)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokens = tokenizer.encode("Name a city in France, and say how many people live there. " * 3)
    texts = []
    for structure in ({"json": SCHEMA, "disable_any_whitespace": True}, {"regex": "[0-9]{2},[0-9]{3}"},
                      {"choice": ["Lyon", "Marseille", "Paris"]}):
        right = own.generate([tokens], 60, ignore_eos=False, structured_outputs=structure)
        for _ in range(2):
            pooled.start([tokens], 60, ignore_eos=False, structured_outputs=structure)
            result = pooled.result()
            assert result["tokens"] == [right]
        assert result["cached"][0] >= len(tokens) // 16 * 16 - 1
        texts.append(tokenizer.decode(right[0], skip_special_tokens=True))
    assert sorted(json.loads(texts[0])) == ["city", "large"]
    assert len(texts[1]) == 6 and texts[2] in ("Lyon", "Marseille", "Paris")
    with daemon.connect() as client:
        check = client.check("smol")
        assert check.holds and check.n_referenced == 0, check.text
