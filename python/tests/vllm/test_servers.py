# SPDX-License-Identifier: Apache-2.0
"""A real server of vLLM on a pool in operation: reset, sleep, new weights, the daemon's end."""
from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("vllm")

from server import Server

from conftest import pool_configuration, small_weights
from paged.vllm.arguments import arguments

N_TOKENS = 150
PROMPTS = [random.Random(seed).choices(range(3, 128), k=20) * 5 for seed in range(8)]
DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1"}


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


def n_cached(answer):
    """How many tokens of its prompt were not computed."""
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


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
