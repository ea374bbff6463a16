# SPDX-License-Identifier: Apache-2.0
"""What requests wait for, and which ones never could have it: these are refused at the start, or end with an error."""
from __future__ import annotations

import os
import time

import pytest

pytest.importorskip("vllm")

from scheduling import Engine, answer, assert_idle, engine_config, pool_configuration, prompt, write_model

from paged.vllm import connector

WAIT_S = 300
TENANT = f"tenant team {{ allow-user = {os.getuid()} limit test = %s }}\n"


@pytest.fixture
def start_limited(tmp_path, start_daemon):
    """A function that starts an engine whose tenant may have some pages of the pool's 64."""
    engines = []

    def start(limit, window=None, **keywords):
        daemon = start_daemon(pool_configuration() + TENANT % limit)
        config = engine_config(write_model(tmp_path / "model"), daemon.runtime_dir, **keywords)
        engines.append(Engine(config, daemon, window))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def test_tenant_without_room_for_a_request(start_limited):
    with pytest.raises(ValueError, match="tenant team, pool test: the tenant has pages for 128 tokens, vLLM allows "
                                         "requests of 512: start vLLM with --max-model-len 128, or raise its limit of "
                                         "test in pagedd.conf"):
        start_limited(8)
    with pytest.raises(ValueError, match="tenant team, pool test: the tenant has 8 pages; a request needs 11 at a "
                                         "time, for the window and for a step of 64 tokens: start vLLM with fewer "
                                         "--max-num-batched-tokens, or raise its limit of test"):
        start_limited(8, window=90, max_num_batched_tokens=64, max_num_seqs=8)


def test_tenant_with_room_for_one_request(start_limited):
    """Requests of the longest length run one after the other; their common pages are charged once."""
    engine = start_limited(8, max_model_len=128)
    names = {engine.add(prompt(100, seed), 28): seed for seed in (0, 1, 1)}
    engine.run()
    for name, seed in names.items():
        assert engine.answers[name] == answer(prompt(100, seed), 28)
    assert_idle(engine)


@pytest.mark.parametrize("sampling", [{}, {"prompt_logprobs": 1}])
def test_request_that_can_never_start(start_limited, vllm_log, monkeypatch, sampling):
    """Where the check at the start does not see it: a request of 10 pages ends with an error, those behind it run."""
    monkeypatch.setattr(connector, "check_pages", lambda *arguments: None)
    engine = start_limited(8)
    lost, other = engine.add(prompt(150), 5, **sampling), engine.add(prompt(100, seed=1), 5)
    engine.run()
    assert engine.finished[lost] == "error" and engine.answers == {lost: [], other: answer(prompt(100, seed=1), 5)}
    line, = vllm_log
    assert line.startswith(f"request {lost} ends with an error: no sequence has pages, and yet it cannot have its own: "
                           "tenant team, pool test: 10 pages requested, 0 charged, limit 8: ")
    # Pages beyond its tokens are no reason.
    fits, grows = engine.add(prompt(128, seed=2), 1), engine.add(prompt(127, seed=3), 5)
    engine.run()
    assert (engine.finished[fits], engine.answers[fits]) == ("length", answer(prompt(128, seed=2), 1))
    assert (engine.finished[grows], engine.answers[grows]) == ("error", answer(prompt(127, seed=3), 2))
    assert_idle(engine)


def test_what_is_waited_for(start_scheduler, vllm_log):
    """Another session has the pages: the engine says so once, and the request runs when it gives them back."""
    engine = start_scheduler(pages=40)
    with engine.daemon.connect() as client:
        pool = client.pool("test")
        for turn in range(2):
            seq, = pool.create(1, 38 * 16)
            name = engine.add(prompt(100, seed=turn), 5)
            deadline = time.monotonic() + WAIT_S
            while len(vllm_log) == turn:
                engine.step()
                assert time.monotonic() < deadline
            for _ in range(150):    # longer than the time after which it says so
                engine.step()
            assert len(vllm_log) == turn + 1
            assert f"no request runs in this engine; request {name} waits, and asks again: " in vllm_log[turn]
            pool.erase(seq)
            engine.run()
            assert engine.answers[name] == answer(prompt(100, seed=turn), 5)
        pool.close()
    assert_idle(engine)
