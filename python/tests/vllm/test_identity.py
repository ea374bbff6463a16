# SPDX-License-Identifier: Apache-2.0
"""Which requests share pages: the salt of a request, its adapter, and its images."""
from __future__ import annotations

import json
import os
import types
from pathlib import Path

import pytest

pytest.importorskip("vllm")

import torch
from scheduling import answer, assert_idle, contents, image, prompt, report, write_model
from vllm.config import set_current_vllm_config
from vllm.config.multimodal import MultiModalConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers import rotary_embedding

import paged
from paged._engines import prefix_salt
from paged.vllm.identity import Identity, changes_to_model, media_settings, model_name
from paged.vllm.loaded import Loaded, loaded

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
    names = [name_of(model), name_of(model, dtype="float32"), name_of(model, revision="main")]
    assert len(set(names)) == len(names)


def test_overwritten_checkpoint(tmp_path):
    """Other weights under an old path are another model; the same ones, found by another path, are not."""
    model = write_model(tmp_path / "model")
    (model / "model.bin").write_bytes(b"weights")
    names = [name_of(model)]
    assert names == [name_of(model)]
    (model / "model.bin").write_bytes(b"more weights")
    names.append(name_of(model))
    # A file of the same size.
    (model / "model.bin").write_bytes(b"more WEIGHTS")
    os.utime(model / "model.bin", ns=(1, 1))
    names.append(name_of(model))
    (model / "added.bin").write_bytes(b"")
    names.append(name_of(model))
    assert len(set(names)) == 4


def changes_of(path: Path, pool_dtype: str = "f32", **arguments) -> str:
    arguments = EngineArgs(**{"model": str(path), "skip_tokenizer_init": True, "dtype": "float32", **arguments})
    return changes_to_model(types.SimpleNamespace(model_config=arguments.create_model_config(),
                                                  load_config=arguments.create_load_config()), pool_dtype)


def write_config(path: Path, **changes) -> Path:
    write_model(path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **changes}))
    return path


@pytest.mark.parametrize("arguments", [
    {}, {"served_model_name": "another"}, {"seed": 7}, {"enforce_eager": True}, {"max_model_len": 77},
    {"load_format": "safetensors"},
    {"hf_overrides": {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}},
    {"hf_overrides": lambda config: config}, {"dtype": "bfloat16", "pool_dtype": "bf16"},
    {"pool_dtype": "i8", "dtype": "auto"},
], ids=str)
def test_options_that_change_nothing(tmp_path, arguments):
    """Engines with these share with those of other makes, also where an option says what the checkpoint says."""
    assert changes_of(write_model(tmp_path / "model"), **arguments) == ""


def test_options_that_change_k_and_v(tmp_path):
    """Each is something else for all others."""
    model = write_config(tmp_path / "model", sliding_window=64)
    other = write_config(tmp_path / "other", sliding_window=64, rope_theta=123.0)

    def changed(config):
        config.rms_norm_eps = 0.5
        return config

    changes = [changes_of(model, **arguments) for arguments in (
        {}, {"load_format": "dummy"}, {"load_format": "sharded_state"}, {"hf_overrides": {"rms_norm_eps": 1e-3}},
        {"hf_overrides": changed}, {"hf_config_path": str(other)}, {"disable_sliding_window": True},
        {"dtype": "bfloat16"},
        {"model_loader_extra_config": {"x": 1}}, {"ignore_patterns": ["model-0*"]},
        {"hf_overrides": {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}},
        {"hf_overrides": {"sliding_window": 32}})]
    assert changes[0] == "" and len(set(changes)) == len(changes)
    # The same change in another way.
    assert changes_of(model, hf_overrides={"rope_parameters": {"rope_theta": 123.0, "rope_type": "default"}}) \
        == changes_of(model, hf_config_path=str(other))
    # Weights are named elsewhere: here it is how the model is computed.
    assert changes_of(other) == ""


def identity(setting, changes="", **loaded):
    """The salt of an engine's requests. loaded: what its worker has loaded."""
    one = Identity(types.SimpleNamespace(model=setting), "weights", changes, "", False)
    if loaded:
        one.add(Loaded(**{"weights": "w", "rotary": "r", "is_plain": True, **loaded}))
    return one._salt(types.SimpleNamespace(lora_request=None, cache_salt=None))


@pytest.mark.parametrize("setting", ["", "weights"])
def test_changes_are_salts(setting):
    """Also where the pool's setting stands for the name of the model."""
    pool = types.SimpleNamespace(model=setting)
    plain = identity(setting)
    assert plain == prefix_salt(pool, "weights")
    salts = [identity(setting, changes, **loaded) for changes, loaded in (
        ("", {}), ("{1}", {}), ("{2}", {}), ("{1}", {"weights": "v"}), ("{1}", {"weights": "w"}),
        ("", {"is_plain": False}), ("", {"is_plain": False, "rotary": "s"}))]
    assert len(set(salts)) == len(salts)
    assert identity(setting, "{1}", weights="v") == salts[3]


def test_what_is_loaded():
    """The pool's setting stands for weights and rotary tables, if these follow from the model's configuration."""
    assert identity("model", weights="w") == identity("model", weights="v") == prefix_salt(
        types.SimpleNamespace(model="model"), "weights")
    assert len({identity(""), identity("", weights="w"), identity("", weights="v"), identity("", rotary="s")}) == 4


# What the worker's process has loaded


def longrope(config, max_model_len, original=128):
    """A model with one of Phi-3's rotary embeddings."""
    config.model_config.max_model_len = max_model_len
    parameters = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 32, "long_factor": [2.0] * 32,
                  "original_max_position_embeddings": original}
    rotary_embedding._ROPE_DICT.clear()
    with set_current_vllm_config(config):
        rope = rotary_embedding.get_rope(64, max_position=4096, is_neox_style=True, rope_parameters=parameters,
                                         dtype=torch.float32)
    return torch.nn.ModuleDict({"rotary": rope})


def test_longrope(vllm_config):
    """vLLM takes the long factors for all sequences if one may be long."""
    config = vllm_config(False, dtype="float32")
    short, also_short, long, also_long = (loaded(longrope(config, n)) for n in (100, 128, 129, 4096))
    assert short == also_short and short.is_plain
    assert long == also_long and not long.is_plain and long.rotary != short.rotary


def test_rotary_tables(vllm_config):
    """As they are computed, whatever the configuration says; a kind that is not known stands for itself only."""
    config = vllm_config(False, dtype="float32")

    def rope(theta):
        with set_current_vllm_config(config):
            return torch.nn.ModuleDict({"rotary": rotary_embedding.get_rope(
                64, max_position=4096, is_neox_style=True, dtype=torch.float32,
                rope_parameters={"rope_type": "default", "rope_theta": theta})})

    first, same, other = loaded(rope(1e4)), loaded(rope(1e4)), loaded(rope(2e4))
    assert first == same and first.is_plain and first.rotary != other.rotary
    model = rope(1e4)
    model["rotary"].cos_sin_cache = model["rotary"].cos_sin_cache * 2
    assert loaded(model).rotary != first.rotary

    class Unknown(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("inv_freq", torch.arange(4.0))

    assert not loaded(Unknown()).is_plain


def test_weights():
    """The digest covers samples of all parameters, their names and types."""
    def model(change=None):
        torch.manual_seed(1)
        layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
        with torch.no_grad():
            if change is not None:
                change(layers)
        return loaded(layers).weights

    digests = [model(change) for change in (
        None, lambda m: m[2].weight.mul_(1.001), lambda m: m[0].bias.zero_(), lambda m: m.half(), lambda m: m.pop(2))]
    assert len(set(digests)) == 5 and model() == digests[0]


# The tenant's salt


@pytest.mark.parametrize("salt", ["a\0b", "\0", "half \ud800 of a pair", "\u0301\u200d\U0001f600", "x" * 100000,
                                  "\n\x1b[2J"])
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
    assert {entry["tag"] for entry in report(engine)[1]} == {"nul?nul", "half ?", "?" * 16, "?[2J"}
    engine.run()
    assert_idle(engine)


def test_ordinary_salts_are_those_of_other_engines():
    """paged.transformers and paged-llama make theirs with prefix_salt(), and share with vLLM."""
    with paged.embedded(POOL, threads=1, run="own") as client:
        pool = client.pool("test")
        for tenant in "", "tenant", "\u00e9\u4e2d\U0001f600":
            request = types.SimpleNamespace(lora_request=None, cache_salt=tenant or None)
            salt = Identity(pool, "weights", "", "", False)._salt(request)
            assert salt == prefix_salt(pool, "weights", tenant=tenant)


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


def write_files(path, content):
    path.mkdir(exist_ok=True)
    (path / "adapter_model.bin").write_bytes(content)
    return path


def test_adapter_that_was_replaced(start_scheduler, tmp_path):
    """Other files under the path of an old adapter are another one for an engine that loads them."""
    old, new = start_scheduler(), start_scheduler()
    path = write_files(tmp_path / "adapter", b"old")
    assert [run(old, prompt(64), lora=adapter("a", path)) for _ in range(2)] == [64, 1]
    write_files(path, b"newer")
    assert [run(new, prompt(64), lora=adapter("a", path)) for _ in range(2)] == [64, 1]
    # The first engine has loaded the old one, under this number.
    assert run(old, prompt(64), lora=adapter("a", path)) == 1
    assert run(old, prompt(64, seed=1), lora=adapter("a", path)) == 64
    assert run(new, prompt(64, seed=1), lora=adapter("a", path)) == 64
    # It loads it again under another number, or where the request says so.
    assert run(old, prompt(64, seed=1), lora=adapter("a", path, 2)) == 1
    write_files(path, b"newest")
    assert [run(old, prompt(64), lora=LoRARequest("a", 2, str(path), load_inplace=True)) for _ in range(2)] == [64, 1]
    assert run(old, prompt(64), lora=adapter("a", path, 2)) == 1
    assert_idle(old)


def test_adapters_at_once(start_scheduler):
    """A request does not wait for one with another adapter."""
    engine = start_scheduler(max_num_batched_tokens=512)
    for lora in None, adapter("a", "/adapters/a", 1), adapter("b", "/adapters/b", 2):
        engine.add(prompt(150), 5, lora=lora)
    assert engine.step() == 3 * 150
    engine.run()
    assert_idle(engine)


def test_requests_without_an_adapter_next_to_adapters(start_scheduler):
    """vLLM computes them with an adapter of the same batch, so an engine with adapters does not share them."""
    engine, other = start_scheduler(enable_lora=True), start_scheduler()
    for _ in range(2):
        assert run(engine, prompt(64)) == 64
    assert report(engine)[0].n_cached == 0
    assert [run(engine, prompt(64), lora=adapter("a", "/adapters/a")) for _ in range(2)] == [64, 1]
    assert [run(other, prompt(64)) for _ in range(2)] == [64, 1]
    assert_idle(engine)


# Images


def test_images_share(start_scheduler):
    """An identical image at the same position shares; another one ends the common prefix at its first page."""
    first, second = start_scheduler(), start_scheduler()
    tokens = prompt(100)
    assert run(first, tokens, images=[image(1, 20, 50)]) == 100
    assert run(second, tokens, images=[image(1, 20, 50)]) == 100 - 96
    assert run(second, tokens, images=[image(2, 20, 50)]) == 100 - 16
    assert run(second, tokens) == 100 - 16
    # The same image, one token further.
    assert run(second, tokens, images=[image(1, 21, 50)]) == 100 - 16
    assert run(second, tokens, images=[image(1, 20, 50)], cache_salt="tenant") == 100
    assert_idle(first)


def test_several_images(start_scheduler):
    engine = start_scheduler()
    tokens = prompt(120)
    assert run(engine, tokens, images=[image(1, 8, 30), image(2, 60, 30)]) == 120
    assert run(engine, tokens, images=[image(1, 8, 30), image(2, 60, 30)]) == 120 - 112
    assert run(engine, tokens, images=[image(1, 8, 30), image(3, 60, 30)]) == 120 - 48
    assert run(engine, tokens, images=[image(2, 8, 30), image(1, 60, 30)]) == 120


def test_images_in_chunks(start_scheduler):
    """Pages are published while an image is computed in part."""
    first = start_scheduler(max_num_batched_tokens=64, max_num_seqs=4)
    second = start_scheduler()
    first.add(prompt(200), 4, images=[image(1, 10, 180)])
    for _ in range(3):
        first.step()
    first.part._pool.client.ping()
    assert run(second, prompt(200), images=[image(1, 10, 180)]) == 200 - 128
    assert run(second, prompt(200), images=[image(2, 10, 180)]) == 200
    first.run()
    assert_idle(first)


def test_overlapping_images_do_not_share(start_scheduler):
    """Audio in the middle of a video: a prefix describes each token by one content."""
    engine = start_scheduler()
    for _ in range(2):
        assert run(engine, prompt(64), images=[image(1, 10, 30), image(2, 20, 5)]) == 64
    assert report(engine)[0].n_cached == 0


@pytest.mark.parametrize("identifier", ["renderer0-mm-1-image-0", "my picture", "A" * 64, "\ud800", "a" * 63])
def test_images_without_a_hash_do_not_share(start_scheduler, identifier):
    """Another engine may have the same name for another picture."""
    first, second = start_scheduler(), start_scheduler()
    assert run(first, prompt(64), images=[image(1, 20, 30, identifier)]) == 64
    assert run(second, prompt(64), images=[image(2, 20, 30, identifier)]) == 64
    assert report(first)[0].n_cached == 0


def model_config(**arguments):
    return types.SimpleNamespace(multimodal_config=MultiModalConfig(**arguments))


def test_media_settings():
    """What an engine does with images is part of their identity, if vLLM's hash of them does not have it."""
    assert media_settings(types.SimpleNamespace(multimodal_config=None)) == ""
    settings = [media_settings(model_config(**arguments)) for arguments in (
        {}, {"mm_processor_kwargs": {"num_crops": 4}}, {"mm_processor_kwargs": {"num_crops": 16}},
        {"media_io_kwargs": {"video": {"num_frames": 4}}}, {"video_pruning_rate": 0.5})]
    assert len(set(settings)) == len(settings)
    assert media_settings(model_config(mm_processor_cache_gb=1)) == settings[0]


def test_engines_with_other_media_settings(start_scheduler):
    first, second = start_scheduler(), start_scheduler()
    first.part.identity._media = media_settings(model_config(mm_processor_kwargs={"num_crops": 4}))
    second.part.identity._media = media_settings(model_config(mm_processor_kwargs={"num_crops": 16}))
    assert run(first, prompt(64), images=[image(1, 20, 30)]) == 64
    assert run(second, prompt(64), images=[image(1, 20, 30)]) == 64 - 16
    # Without its cache vLLM numbers images, and with options of the request it hashes the number.
    first.part.identity._media = media_settings(model_config(mm_processor_cache_gb=0))
    for _ in range(2):
        assert run(first, prompt(64, seed=1), images=[image(1, 0, 30)]) == 64
