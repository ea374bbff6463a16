# SPDX-License-Identifier: Apache-2.0
"""generate() and the daemon: found at the first call, lost in the middle of one, there again."""
import os

import pytest

pytest.importorskip("transformers")

import torch
from generation_cases import Computed, enabled, generate
from model_cases import pool_settings, random_tokens
from transformers.generation.streamers import BaseStreamer

import paged
from paged._engines import Geometry
from paged.transformers.connection import Connection, Unavailable
from paged.transformers.geometry import pool_section

GEOMETRY = Geometry(n_layers=4, n_kv_heads=2, k_dim=16, v_dim=16)
CPU, F32 = torch.device("cpu"), torch.float32


@pytest.fixture
def configuration(model):
    return pool_section({**pool_settings(model), "v_dim": 16}, "LlamaForCausalLM@1")


@pytest.fixture
def daemon(start_daemon, configuration, monkeypatch):
    daemon = start_daemon(configuration)
    monkeypatch.setenv("PAGED_RUNTIME_DIR", str(daemon.runtime_dir))
    return daemon


@pytest.fixture
def connection(daemon):
    connection = Connection()
    yield connection
    connection.close()


def test_one_connection(daemon, connection):
    pools = [connection.pool(GEOMETRY, CPU, F32) for _ in range(3)]
    assert pools[0] is pools[1] is pools[2]
    with daemon.connect() as client:
        assert [session["name"] for session in client.sessions()].count("transformers") == 1


def test_connects_again(daemon, connection):
    first = connection.pool(GEOMETRY, CPU, F32)
    daemon.kill()
    with pytest.raises(Unavailable, match=f"no daemon at {daemon.runtime_dir}"):
        connection.pool(GEOMETRY, CPU, F32)
    daemon.start()
    again = connection.pool(GEOMETRY, CPU, F32)
    assert again is not first and again.create()


def test_forked_child(connection):
    """It has a connection of its own, and leaves the parent's alone."""
    parents = connection.pool(GEOMETRY, CPU, F32)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if connection.pool(GEOMETRY, CPU, F32).create() else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert connection.pool(GEOMETRY, CPU, F32) is parents and parents.create()


def test_pools_that_do_not_fit(connection, daemon):
    with pytest.raises(Unavailable, match=r"no pool has n_layers = 5, .* \(daemon at .*\)"):
        connection.pool(GEOMETRY._replace(n_layers=5), CPU, F32)
    with pytest.raises(Unavailable, match="the pages of pool test are on cpu, the model is on cuda:0"):
        connection.pool(GEOMETRY, torch.device("cuda:0"), F32)
    with pytest.raises(Unavailable, match=r"the model's weights are torch.float64; pools take"):
        connection.pool(GEOMETRY, CPU, torch.float64)
    with pytest.raises(Unavailable, match="no pool .*other"):
        Connection("other").pool(GEOMETRY, CPU, F32)


def test_a_pool_of_another_model(start_daemon, model, tmp_path):
    """Its pages have the model's shape, and would give wrong answers."""
    model.save_pretrained(tmp_path / "tiny")
    loaded = type(model).from_pretrained(tmp_path / "tiny").eval()
    daemon = start_daemon(pool_section({**pool_settings(model), "v_dim": 16}, "tiny-instruct@1"))
    tokens = random_tokens(1, 40)
    expected = generate(model, tokens)
    with daemon.connect() as client:
        pool = client.pool("test")
        for given, settings in (None, {"runtime_dir": daemon.runtime_dir}), (pool, {}):
            with enabled(given, **settings), pytest.warns(RuntimeWarning) as caught:
                assert torch.equal(generate(loaded, tokens), expected)
            assert [str(warning.message).split(": use another")[0] for warning in caught] == [
                "LlamaForCausalLM: transformers' own cache is used: pool test is for the model tiny-instruct@1, not "
                f"for {tmp_path / 'tiny'}"]
        assert pool.counts().n_cached == 0
        # With a salt, the program says what its weights are.
        with enabled(pool, salt=paged.salt("mine")):
            assert torch.equal(generate(loaded, tokens), expected)
        client.ping()
        assert pool.counts().n_cached > 0


def test_no_daemon(model, tmp_path):
    tokens = random_tokens(1, 20)
    answers = generate(model, tokens)
    with enabled(runtime_dir=str(tmp_path)), pytest.warns(RuntimeWarning) as caught:
        for _ in range(2):
            assert torch.equal(generate(model, tokens), answers)
    assert [str(warning.message) for warning in caught] == [
        f"LlamaForCausalLM: transformers' own cache is used: no daemon at {tmp_path}: is pagedd running? Start it "
        f"with: pagedd --config FILE --runtime-dir {tmp_path}"]


GIVEN_UNUSABLE = (r"LlamaForCausalLM: transformers' own cache is used: "
                  r"the pool that enable\(\) was given cannot be used: ")


def test_given_pool_whose_client_was_closed(model):
    tokens = random_tokens(1, 20)
    answers = generate(model, tokens)
    client = paged.embedded(pool_settings(model), threads=1, run="own")
    with enabled(client.pool("test")):
        assert torch.equal(generate(model, tokens), answers)
        client.close()
        with pytest.warns(RuntimeWarning, match=GIVEN_UNUSABLE + "the client is closed"):
            assert torch.equal(generate(model, tokens), answers)


def test_given_pool_in_a_forked_child(model):
    """The child uses transformers' own cache; the parent goes on."""
    tokens = random_tokens(1, 20)
    answers = generate(model, tokens)
    with paged.embedded(pool_settings(model), threads=1, run="own") as client:
        pool = client.pool("test")
        with enabled(pool):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    with pytest.warns(RuntimeWarning, match=GIVEN_UNUSABLE + ".*fork"):
                        status = 0 if torch.equal(generate(model, tokens), answers) else 2
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            for _ in range(2):
                assert torch.equal(generate(model, tokens), answers)
        assert pool.counts().n_cached and pool.check().holds


class Kill(BaseStreamer):
    """Kills the daemon when the tenth token comes."""

    def __init__(self, daemon):
        self.daemon, self.n_tokens = daemon, 0

    def put(self, value):
        self.n_tokens += 1
        if self.n_tokens == 10:
            self.daemon.kill()

    def end(self):
        pass


def test_daemon_ends_in_the_middle(model, daemon):
    tokens = random_tokens(1, 20)
    answers = generate(model, tokens)
    with enabled(reserve_ahead=0):
        assert torch.equal(generate(model, tokens), answers)
        with pytest.raises(paged.GoneError) as caught:
            generate(model, tokens, streamer=Kill(daemon), max_new_tokens=200)
        assert caught.value.__notes__ == [
            "The K and V of this generate() in pool test are lost. The next generate() connects again; while there is "
            "no daemon, transformers' own cache is used."]
        assert model.config._attn_implementation == "eager"
        with pytest.warns(RuntimeWarning, match=f"no daemon at {daemon.runtime_dir}"):
            assert torch.equal(generate(model, tokens), answers)
        daemon.start()
        with Computed(model) as computed:
            assert torch.equal(generate(model, tokens), answers)
            assert torch.equal(generate(model, tokens), answers)
        # The new daemon has nothing of the first.  Then two pages of 8 tokens are shared.
        assert computed.columns[0] == 20 and 4 in computed.columns
        with daemon.connect() as client:
            assert client.check("test").holds
            assert client.pool("test").counts().n_referenced == 0
