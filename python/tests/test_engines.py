# SPDX-License-Identifier: Apache-2.0
"""What the engines have in common: the pool that a model uses, and the salt of its prefixes."""
import pytest

import paged
from paged._engines import Geometry, choose_pool, prefix_salt, refusal

LLAMA = Geometry(n_layers=2, n_kv_heads=1, k_dim=8, v_dim=8)
OTHER = Geometry(n_layers=3, n_kv_heads=1, k_dim=8, v_dim=8)


def geometry_pool(name, geometry):
    return dict(name=name, dtype="f32", n_pages=4, **geometry._asdict())


@pytest.fixture
def client(monkeypatch):
    monkeypatch.delenv("PAGED_POOL", raising=False)
    with paged.embedded([geometry_pool("a", LLAMA), geometry_pool("b", LLAMA), geometry_pool("c", OTHER)]) as client:
        yield client


def test_the_only_pool_that_fits(client):
    assert choose_pool(client, OTHER, "m").name == "c"


def test_a_named_pool(client, monkeypatch):
    assert choose_pool(client, LLAMA, "m", "b").name == "b"
    monkeypatch.setenv("PAGED_POOL", "a")
    assert choose_pool(client, LLAMA, "m").name == "a"
    assert choose_pool(client, LLAMA, "m", "b").name == "b"


def test_no_choice(client):
    with pytest.raises(LookupError, match=r"pools a, b have n_layers = 2, .*: name one, for example in \$PAGED_POOL"):
        choose_pool(client, LLAMA, "m")
    with pytest.raises(LookupError, match="no pool has n_layers = 4, .*; there are a, b, c: add one to pagedd.conf"):
        choose_pool(client, LLAMA._replace(n_layers=4), "m")


def test_a_named_pool_that_does_not_fit(client):
    with pytest.raises(ValueError, match="^pool c has n_layers = 3, the model needs 2$"):
        choose_pool(client, LLAMA, "m", "c")
    with pytest.raises(paged.NotFoundError):
        choose_pool(client, LLAMA, "m", "missing")


def test_salt(client):
    pool = client.pool("a")
    salts = {prefix_salt(pool, "m"), prefix_salt(pool, "n"), prefix_salt(pool, "m", adapter="x"),
             prefix_salt(pool, "m", tenant="x")}
    assert len(salts) == 4
    assert prefix_salt(pool, "m") == paged.salt("m", "", "") == prefix_salt(client.pool("b"), "m")


@pytest.mark.parametrize("setting, model, expected", [
    ("", "anything", True), ("Tiny@1", "tiny", True), ("Tiny", "org/Tiny", True), ("Tiny", "/models/Tiny.gguf", True),
    ("Tiny", "Tiny-Instruct", False), ("Tiny", "Big-Tiny", False), ("Tiny", "", False), ("org/Tiny", "Tiny", False)])
def test_model_allowed(setting, model, expected):
    assert paged.model_allowed(setting, model) is expected
    assert paged.model_allowed(setting=setting, name=model) is expected


def test_names_of_a_directory(tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    (tmp_path / "Tiny").symlink_to("weights")
    for path in ("Tiny", "weights"):
        assert refusal("p", path, str(tmp_path / "Tiny")) is None
    assert "pool p is for the model Tiny, not for" in refusal("p", "Tiny", str(tmp_path / "weights"))
    monkeypatch.chdir(tmp_path / "Tiny")
    assert refusal("p", "weights", ".") is None
    snapshot = tmp_path / "hub" / "models--org--Tiny" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    assert refusal("p", "org/Tiny@v1", str(snapshot)) is None
    assert refusal("p", "Tiny", str(snapshot)) is None
    assert refusal("p", "org/Other", str(snapshot)) is not None


@pytest.fixture
def named_pools(start_daemon, monkeypatch):
    """Pools of one geometry, of which two name their model."""
    monkeypatch.delenv("PAGED_POOL", raising=False)
    settings = "layers = 2 kv-heads = 1 head-dim = 8 dtype = f32 pages = 4"
    daemon = start_daemon(f'pool base {{ {settings} model = "Tiny@1" }} pool chat {{ {settings} model = "Tiny-Chat" }} '
                          f'pool any {{ {settings} }}')
    with daemon.connect() as client:
        yield client


def test_the_pool_that_names_the_model(named_pools):
    assert choose_pool(named_pools, LLAMA, "org/tiny").name == "base"
    assert choose_pool(named_pools, LLAMA, "/models/Tiny-Chat.gguf").name == "chat"
    assert choose_pool(named_pools, LLAMA, "other").name == "any"


def test_a_pool_of_another_model_is_refused(named_pools, monkeypatch):
    with pytest.raises(ValueError, match="^pool chat is for the model Tiny-Chat, not for org/tiny: use another pool"):
        choose_pool(named_pools, LLAMA, "org/tiny", "chat")
    monkeypatch.setenv("PAGED_POOL", "base")
    with pytest.raises(ValueError, match="^pool base is for the model Tiny@1, not for other"):
        choose_pool(named_pools, LLAMA, "other")
    assert choose_pool(named_pools, LLAMA, None, "base").name == "base"


def test_only_pools_of_other_models(start_daemon, monkeypatch):
    monkeypatch.delenv("PAGED_POOL", raising=False)
    daemon = start_daemon('pool base { layers = 2 kv-heads = 1 head-dim = 8 dtype = f32 pages = 4 model = "Tiny" }')
    with daemon.connect() as client, pytest.raises(LookupError, match="^pool base is for the model Tiny, not for oth"):
        choose_pool(client, LLAMA, "other")
