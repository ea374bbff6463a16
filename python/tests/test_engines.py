# SPDX-License-Identifier: Apache-2.0
"""What the engines have in common: the pool that a model uses, and the salt of its prefixes."""
import pytest

import paged
from paged._engines import Geometry, choose_pool, prefix_salt

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
    assert choose_pool(client, OTHER).name == "c"


def test_a_named_pool(client, monkeypatch):
    assert choose_pool(client, LLAMA, "b").name == "b"
    monkeypatch.setenv("PAGED_POOL", "a")
    assert choose_pool(client, LLAMA).name == "a"
    assert choose_pool(client, LLAMA, "b").name == "b"


def test_no_choice(client):
    with pytest.raises(LookupError, match=r"pools a, b have n_layers = 2, .*: name one, for example in \$PAGED_POOL"):
        choose_pool(client, LLAMA)
    with pytest.raises(LookupError, match="no pool has n_layers = 4, .*; there are a, b, c: add one to pagedd.conf"):
        choose_pool(client, LLAMA._replace(n_layers=4))


def test_a_named_pool_that_does_not_fit(client):
    with pytest.raises(ValueError, match="^pool c has n_layers = 3, the model needs 2$"):
        choose_pool(client, LLAMA, "c")
    with pytest.raises(paged.NotFoundError):
        choose_pool(client, LLAMA, "missing")


def test_salt(client):
    pool = client.pool("a")
    salts = {prefix_salt(pool, "m"), prefix_salt(pool, "n"), prefix_salt(pool, "m", adapter="x"),
             prefix_salt(pool, "m", tenant="x")}
    assert len(salts) == 4
    assert prefix_salt(pool, "m") == paged.salt("m", "", "") == prefix_salt(client.pool("b"), "m")
