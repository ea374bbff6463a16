# SPDX-License-Identifier: Apache-2.0
"""The salt of a model's prefixes follows its weights."""
import copy

import pytest

pytest.importorskip("transformers")

import torch
from model_cases import make_model
from transformers import AutoModelForCausalLM
from transformers.models.llama import modeling_llama

import paged
from paged.transformers.identity import model_salt, note_loaded


@pytest.fixture
def named_pool(start_daemon):
    """A pool with the setting "model"."""
    daemon = start_daemon('pool test {\n layers = 4\n kv-heads = 2\n head-dim = 16\n dtype = f32\n pages = 16\n'
                          ' model = "tiny@1"\n}\n')
    with daemon.connect() as client:
        yield client.pool("test")


@pytest.fixture
def directory(tmp_path):
    make_model("llama").save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def load(directory):
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    note_loaded(model)
    return model


def test_equal_weights_have_one_salt(pool, directory, monkeypatch):
    salt = model_salt(pool, load(directory))
    assert salt is not None
    monkeypatch.chdir(directory.parent)
    assert model_salt(pool, load("tiny")) == salt
    other = load(directory)
    step(other)
    other.save_pretrained(directory)
    assert model_salt(pool, load("tiny")) not in (None, salt)


def step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model(torch.tensor([[1, 2, 3]])).logits.sum().backward()
    optimizer.step()


def write_data(model):
    weight = model.model.layers[2].self_attn.k_proj.weight
    weight.data += 1e-3 * torch.ones_like(weight)


def assign(model):
    layer = model.model.layers[0].mlp.up_proj
    layer.weight = torch.nn.Parameter(2 * layer.weight.detach())


def train_one_token(model):
    """As for a new token: most samples of the digest do not change."""
    with torch.no_grad():
        model.get_input_embeddings().weight[95] += 1


@pytest.mark.parametrize("change", [step, write_data, assign, train_one_token])
def test_changed_weights_have_another_salt(pool, directory, change):
    model = load(directory)
    before = model_salt(pool, model)
    change(model)
    after = model_salt(pool, model)
    assert after not in (None, before)
    assert model_salt(pool, model) == after


@pytest.mark.parametrize("change", [step, write_data, assign, train_one_token])
def test_the_model_of_the_pool_is_that_of_unchanged_weights(named_pool, directory, change):
    model = load(directory)
    assert model_salt(named_pool, model) == paged.salt("tiny@1", "", "")
    change(model)
    assert model_salt(named_pool, model) != paged.salt("tiny@1", "", "")


def test_weights_of_unknown_origin_are_not_the_pools_model(named_pool, directory):
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    assert model_salt(named_pool, model) not in (None, paged.salt("tiny@1", "", ""))


def test_a_model_that_the_pool_does_not_name(named_pool, tmp_path):
    make_model("llama").save_pretrained(tmp_path / "other")
    salt = model_salt(named_pool, load(tmp_path / "other"))
    assert salt not in (None, paged.salt("tiny@1", "", ""))
    assert model_salt(named_pool, load(tmp_path / "other")) == salt


def write_row(model):
    model.get_input_embeddings().weight.data[95] *= 2


def change_layer(model):
    model.model.layers[1].self_attn.scaling *= 2


def change_configuration(model):
    model.config.rms_norm_eps *= 2


def change_rotary_table(model):
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq * 0.5


@pytest.mark.parametrize("change", [write_row, change_layer, change_configuration, change_rotary_table])
def test_changes_after_the_load(pool, named_pool, directory, change):
    model, changed = load(directory), load(directory)
    change(changed)
    for place in (pool, named_pool):
        salts = [model_salt(place, model), model_salt(place, changed)]
        assert len({*salts}) == 2 and None not in salts
    assert model_salt(named_pool, model) == paged.salt("tiny@1", "", "")


@pytest.mark.parametrize("override", [{"rms_norm_eps": 1e-3}, {"dtype": torch.bfloat16}, {
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}], ids=lambda override: next(iter(override)))
def test_overrides_at_the_load(pool, named_pool, directory, override):
    salts = []
    for settings in ({}, override, override):
        model = AutoModelForCausalLM.from_pretrained(directory, **settings).eval()
        note_loaded(model)
        salts.append([model_salt(place, model) for place in (pool, named_pool)])
    assert salts[0][1] == paged.salt("tiny@1", "", "")
    # Engines with the same override share.
    assert salts[1] == salts[2] and None not in salts[1]
    assert salts[0][0] != salts[1][0] and salts[0][1] != salts[1][1]


def test_changed_code(pool, directory, monkeypatch):
    """The K and V of a few tokens are other ones."""
    before = model_salt(pool, load(directory))
    rotate = modeling_llama.apply_rotary_pos_emb
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, cos, sin: rotate(q, k, sin, cos))
    assert model_salt(pool, load(directory)) not in (None, before)


def test_processes_with_other_numbers_of_threads(pool, directory, worker):
    source = """
        import sys, torch, paged
        from transformers import AutoModelForCausalLM
        from paged.transformers import model_salt
        torch.set_num_threads(int(sys.argv[2]))
        model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
        parameters = {"name": "test", "n_layers": 4, "n_kv_heads": 2, "k_dim": 16, "dtype": "f32", "n_pages": 4}
        with paged.embedded(parameters) as client:
            print(model_salt(client.pool("test"), model).hex())
    """
    found = [worker(source, str(directory), n_threads).line() for n_threads in "12"]
    assert found == [model_salt(pool, load(directory)).hex()] * 2


def test_no_salt(pool):
    assert model_salt(pool, make_model("llama").train()) is None
    for settings in ({"rope_type": "dynamic", "factor": 2.0}, {
            "rope_type": "longrope", "factor": 2.0, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
            "original_max_position_embeddings": 64}):
        assert model_salt(pool, make_model("llama", rope_parameters={"rope_theta": 1e4, **settings})) is None
    assert model_salt(pool, make_model("llama", use_bidirectional_attention=True)) is None
    with torch.device("meta"):
        assert model_salt(pool, make_model("llama")) is None


def test_rotary_embedding(pool):
    other = make_model("llama", rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert model_salt(pool, other) != model_salt(pool, make_model("llama"))


def adapted(model, *names):
    peft = pytest.importorskip("peft")
    for seed, name in enumerate(names):
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=2, init_lora_weights=False, target_modules=["k_proj", "up_proj"])
        if seed:
            model.add_adapter(name, config)
        else:
            model = peft.get_peft_model(model, config, adapter_name=name)
    return model


def test_adapters(named_pool, directory):
    model = load(directory)
    wrapped = adapted(model, "one", "two")
    salts = {"base": paged.salt("tiny@1", "", "")}
    for name in ("one", "two"):
        wrapped.set_adapter(name)
        salts[name] = model_salt(named_pool, model)
    assert len({*salts.values()}) == 3
    with wrapped.disable_adapter():
        assert model_salt(named_pool, model) == salts["base"]
    # In another process the same adapter has the same salt.
    again = copy.deepcopy(wrapped)
    note_loaded(again.base_model.model)
    again.set_adapter("one")
    with torch.no_grad():
        assert model_salt(named_pool, again.base_model.model) == salts["one"]
        next(value for name, value in again.named_parameters() if "lora_A.one" in name).mul_(2)
    assert model_salt(named_pool, again.base_model.model) not in salts.values()


def test_merged_adapters(named_pool, directory):
    model = load(directory)
    wrapped = adapted(model, "one")
    salts = {paged.salt("tiny@1", "", ""), model_salt(named_pool, model)}
    wrapped.merge_adapter()
    salts.add(model_salt(named_pool, model))
    wrapped.unmerge_adapter()
    merged = wrapped.merge_and_unload()
    salts.add(model_salt(named_pool, merged))
    assert len(salts) == 4 and None not in salts
