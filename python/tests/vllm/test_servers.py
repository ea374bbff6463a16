# SPDX-License-Identifier: Apache-2.0
"""Real servers of vLLM on a pool in operation: several ranks, kills, full pools, sleep, new weights, the daemon's end.

The answers are those of an engine without a pool.  PAGED_TEST_KILLS is how many servers are killed.
"""
from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

import pytest

pytest.importorskip("vllm")

from engine import Engine
from server import Server

from conftest import engine_keywords, pool_configuration, small_weights
from paged.vllm.arguments import arguments

N_KILLS = int(os.environ.get("PAGED_TEST_KILLS", 3))
N_TOKENS = 150
# Repetitions, so that ngram has something to propose.
PROMPTS = [random.Random(seed).choices(range(3, 128), k=20) * 5 for seed in range(8)]
NGRAM = '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":3,"prompt_lookup_min":1}'
DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1"}


@pytest.fixture(scope="module")
def right(tmp_path_factory, small_model) -> list[list[int]]:
    """The answers of an engine without a pool."""
    engine = Engine(tmp_path_factory.mktemp("own"), engine_keywords(small_model))
    try:
        assert engine.receive() == "ready"
        return engine.generate(PROMPTS, N_TOKENS)
    finally:
        engine.close()


@pytest.fixture
def start_server(tmp_path, start_daemon, small_model) -> Iterator:
    """A function that starts a server on the test's pool.  start_server.daemon: pagedd, of the first call's pool."""
    servers: list[Server] = []

    def start(*options, pages=64, model=None, **environment):
        if not servers:
            start.daemon = start_daemon(pool_configuration(pages=pages))
        keywords = arguments("small", runtime_dir=str(start.daemon.runtime_dir))
        servers.append(Server(tmp_path / f"server{len(servers)}", model or small_model, keywords,
                              "--enable-prompt-tokens-details", *options, **environment))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def ask_all(server, prompts=PROMPTS, **more):
    """The answers to prompts that arrive together; None where the server ended meanwhile."""
    def ask(prompt):
        try:
            return server.tokens(prompt, N_TOKENS, **more)
        except (OSError, HTTPException):
            return None

    with ThreadPoolExecutor(len(prompts)) as threads:
        return list(threads.map(ask, prompts))


def n_cached(answer):
    """How many tokens of its prompt were not computed."""
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def assert_idle(daemon):
    with daemon.connect() as client:
        while client.sequences("small"):
            client.ping()
        check = client.check("small")
        assert check.holds and check.n_referenced == 0, check.text


@pytest.mark.parametrize("options", [[], ["--speculative-config", NGRAM]])
def test_preemption(start_server, right, options):
    """Eight requests need twice the pool: vLLM preempts, and its metrics say so."""
    server = start_server(*options, pages=34)
    server.wait()
    for _ in range(2):
        assert ask_all(server) == right
    assert server.metric("vllm:num_preemptions_total") > 0
    assert server.metric("vllm:external_prefix_cache_hits_total") > 0
    assert server.metric("vllm:prefix_cache_hits_total") == 0
    if options:
        assert server.metric("vllm:spec_decode_num_accepted_tokens_total") > 0
    assert_idle(start_server.daemon)


def test_data_parallel(start_server, right):
    """Two ranks are two engines on the pool, and each finds what the other one has published."""
    server = start_server("--data-parallel-size", "2")
    server.wait()
    for _ in range(3):
        assert ask_all(server) == right
    with start_server.daemon.connect() as client:
        # Their schedulers, and their workers.
        sessions = [entry["session"] for entry in client.sessions() if entry["name"].startswith("vllm")]
        assert len(sessions) == 4 and len(set(sessions)) == 2
    answers = [server.complete(prompt, 1) for prompt in PROMPTS]
    assert min(n_cached(answer) for answer in answers) >= len(PROMPTS[0]) - 32
    assert_idle(start_server.daemon)


def test_kills(start_server, right):
    """One of two servers is killed with requests in it, again and again; the other one goes on, the next one starts."""
    stays = start_server()
    server = start_server()
    stays.wait()
    for _ in range(N_KILLS):
        server.wait()
        with ThreadPoolExecutor(2) as threads:
            killed = threads.submit(ask_all, server)
            others = threads.submit(ask_all, stays)
            with start_server.daemon.connect() as client:
                server.wait_for(lambda killed=killed: killed.done() or len(client.sequences("small")) > 8)
            server.kill()
            assert all(answer in (None, expected) for answer, expected in zip(killed.result(), right))
            assert others.result() == right
        server = start_server()
    server.wait()
    assert ask_all(server) == ask_all(stays) == right
    assert_idle(start_server.daemon)


def test_operation(tmp_path, start_server):
    """A server is reset, sleeps, gets new weights, and ends with the daemon."""
    server = start_server(**DEVELOPMENT)
    server.wait()
    whole = len(PROMPTS[0]) // 32 * 32

    def ask(**more):
        answer = server.complete(PROMPTS[0], N_TOKENS, **more)
        return answer["choices"][0]["token_ids"], n_cached(answer)

    old, found = ask()
    assert found == 0 and ask() == (old, whole)
    # vLLM's own cache is switched off; what users mean by the prefix cache is the pool.
    assert server.post("/reset_prefix_cache") == {"success": True}
    assert [ask(), ask()] == [(old, 0), (old, whole)]
    assert "this engine finds nothing that was published before" in server.log.read_text()

    server.post("/sleep?level=1")
    server.post("/wake_up")
    assert [ask(), ask()] == [(old, 0), (old, whole)]

    other = small_weights(tmp_path / "other", seed=2)
    server.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(other)}})
    assert server.post("/reset_prefix_cache") == {"success": True}
    new, found = ask(cache_salt="a prompt that none has asked")
    assert new != old and found == 0
    assert [ask(), ask()] == [(new, 0), (new, whole)]

    start_server.daemon.kill()
    server.wait_for_end()
    assert "pool small: pagedd has ended, and with it the KV cache of this engine" in server.log.read_text()
