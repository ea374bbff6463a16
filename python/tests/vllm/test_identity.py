# SPDX-License-Identifier: Apache-2.0
"""Which requests share pages: the salt of a request and its adapter."""
from __future__ import annotations

import json
import types
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from vllm.engine.arg_utils import EngineArgs
from vllm.lora.request import LoRARequest

import paged
from paged._engines import prefix_salt
from paged.vllm.identity import Identity, model_name
from scheduling import answer, assert_idle, contents, prompt, report, write_model

POOL = {"name": "test", "n_layers": 1, "n_kv_heads": 1, "k_dim": 4, "dtype": "f32", "n_pages": 8}


def run(engine, *arguments, n_tokens=1, **keywords):
    """Run a request; return how many tokens it computed.  Its answer must be that of its own content."""
    before = engine.n_computed
    name = engine.add(*arguments, n_tokens, **keywords)
    request = engine.scheduler.requests[name]
    right = answer(contents(request), n_tokens)
    engine.run()
    assert engine.answers[name] == right
    return engine.n_computed - before


# The name of the weights


def name_of(path: Path, **arguments) -> str:
    return model_name(EngineArgs(model=str(path), skip_tokenizer_init=True, **arguments).create_model_config())


def test_model_name_is_the_real_path(tmp_path, monkeypatch):
    model = write_model(tmp_path / "model")
    (tmp_path / "link").symlink_to(model)
    right = name_of(model)
    assert str(model.resolve()) in right
    assert name_of(tmp_path / "link") == right
    monkeypatch.chdir(tmp_path)
    assert name_of(Path("model")) == right
    other = tmp_path / "other"
    other.mkdir()
    write_model(other / "model")
    monkeypatch.chdir(other)
    assert name_of(Path("model")) != right


def test_model_name_has_what_changes_k_and_v(tmp_path):
    model = write_model(tmp_path / "model")
    names = [name_of(model), name_of(model, dtype="float32"), name_of(model, hf_overrides={"rope_theta": 5e5}),
             name_of(model, hf_overrides={"rope_theta": 6e5}), name_of(model, revision="main")]
    assert len(set(names)) == len(names)
    overrides = {"rope_theta": 5e5, "rms_norm_eps": 1e-6}
    backwards = json.loads(json.dumps(dict(reversed(overrides.items()))))
    assert name_of(model, hf_overrides=overrides) == name_of(model, hf_overrides=backwards)
    # What a function changes is not known, so nothing is equal to it, not even itself.
    assert name_of(model, hf_overrides=unchanged) != name_of(model, hf_overrides=unchanged)


def unchanged(config):
    return config


# The tenant's salt


@pytest.mark.parametrize("salt", ["a\0b", "\0", "half \ud800 of a pair", "\u0301\u200d\U0001f600", "x" * 100000, "\n\x1b[2J"])
def test_odd_salts(start_scheduler, salt):
    """Each is a salt like another: equal ones share, and nothing else does."""
    engine = start_scheduler()
    assert [run(engine, prompt(64), cache_salt=text) for text in (salt, salt + "\0", salt, salt + "\0", None)] \
        == [64, 64, 1, 1, 64]
    assert_idle(engine)


def test_odd_request_id(start_scheduler):
    engine = start_scheduler()
    for name in "nul\0nul", "half \ud800", "\u00e9" * 20, "\x1b[2J":
        engine.add(prompt(20), 5, request_id=name)
        engine.step()
    assert {entry["tag"] for entry in report(engine)[1]} == {"nul?nul", "half ?", "\u00e9" * 8, "?[2J"}
    engine.run()
    assert_idle(engine)


def test_ordinary_salts_are_those_of_other_engines():
    """paged.transformers and paged-llama make theirs with prefix_salt(), and share with vLLM."""
    with paged.embedded(POOL, threads=1, run="own") as client:
        pool = client.pool("test")
        for tenant in "", "tenant", "\u00e9\u4e2d\U0001f600":
            request = types.SimpleNamespace(lora_request=None, cache_salt=tenant or None)
            assert Identity(pool, "weights")._salt(request) == prefix_salt(pool, "weights", tenant=tenant)


# Adapters


def adapter(name, path, number=1):
    return LoRARequest(name, number, str(path))


def test_adapters_do_not_share(start_scheduler, tmp_path):
    """Two adapters and the model without one; a name stands for another adapter if its path is another."""
    engine, other = start_scheduler(), start_scheduler()
    adapters = [None, adapter("a", "/adapters/a", 1), adapter("b", "/adapters/b", 2), adapter("a", "/elsewhere/a", 3)]
    assert [run(engine, prompt(64), lora=lora) for lora in adapters] == [64] * 4
    assert [run(engine, prompt(64), lora=lora) for lora in adapters] == [1] * 4
    # Another engine, which numbers its adapters in another order.
    adapters = [None, adapter("a", "/adapters/a", 7), adapter("b", "/adapters/b", 1), adapter("a", "/elsewhere/a", 2)]
    assert [run(other, prompt(64), lora=lora) for lora in adapters] == [1] * 4
    assert run(other, prompt(64), lora=adapters[1], cache_salt="tenant") == 64
    assert_idle(engine)


def test_adapters_at_once(start_scheduler):
    """A request does not wait for one with another adapter."""
    engine = start_scheduler(max_num_batched_tokens=512)
    for lora in None, adapter("a", "/adapters/a", 1), adapter("b", "/adapters/b", 2):
        engine.add(prompt(150), 5, lora=lora)
    assert engine.step() == 3 * 150
    engine.run()
    assert_idle(engine)
