# SPDX-License-Identifier: Apache-2.0
"""Engines on one pool share if they compute a model alike, and only then: Phi-3 with LongRoPE, changed in many ways."""
from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("vllm")

import torch

from paged.vllm.arguments import arguments

PAGE = 16
POOL = """
pool phi {{
    layers = 2
    kv-heads = 2
    head-dim = 32
    dtype = f32
    page-size = 16
    pages = 256
    max-length = 1024
    {more}
}}
"""
# Each engine's options, and with which earlier one it shares.
ENGINES = {
    "short": ({"max_model_len": 128}, None),
    "long": ({"max_model_len": 1024}, None),
    "dummy": ({"max_model_len": 128, "load_format": "dummy"}, None),
    "overrides": ({"max_model_len": 128, "hf_overrides": {"rms_norm_eps": 1e-2}}, None),
    "short again": ({"max_model_len": 100, "seed": 3}, "short"),
    "long again": ({"max_model_len": 512}, "long"),
}


def write_phi(path: Path) -> Path:
    import transformers

    torch.manual_seed(1)
    config = transformers.Phi3Config(
        hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=128, max_position_embeddings=1024, original_max_position_embeddings=128, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, architectures=["Phi3ForCausalLM"], tie_word_embeddings=False,
        initializer_range=0.3,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 16,
                         "long_factor": [4.0] * 16, "original_max_position_embeddings": 128})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("more", ["", 'model = "phi"'], ids=["files", "name"])
def test_engines(tmp_path, start_daemon, start_engine, more):
    daemon = start_daemon(POOL.format(more=more))
    model = write_phi(tmp_path / "phi")
    keywords = {"model": str(model), "max_num_seqs": 4, **arguments("phi", runtime_dir=str(daemon.runtime_dir))}
    engines = {name: start_engine(**{**keywords, **options}, wait=False) for name, (options, _) in ENGINES.items()}
    generator = random.Random(1)
    tokens = [generator.randrange(3, 128) for _ in range(70)]
    answers = {}
    for name, engine in engines.items():
        assert engine.receive() == "ready"
        engine.start([tokens], 20)
        result = engine.result()
        answers[name] = result["tokens"]
        other = ENGINES[name][1]
        assert result["cached"] == [70 // PAGE * PAGE if other is not None else 0], name
        if other is not None:
            assert answers[name] == answers[other]
        # Each finds what it published itself.
        engine.start([tokens], 20)
        result = engine.result()
        assert result["tokens"] == answers[name] and result["cached"] == [70 // PAGE * PAGE]
    with daemon.connect() as client:
        check = client.check("phi")
        assert check.holds and check.n_referenced == 0, check.text
