# SPDX-License-Identifier: Apache-2.0
"""Engines that end, and engines that take over: the cache is the daemon's, so it stays.

Scenarios of Dynamo's GPU Memory Service (GMS) and of vLLM's issue 58240, which asks for one cache of all replicas of a
machine.  Most run with vLLM's scheduler and a runner without a model (scheduling.py); the last one with whole engines.
"""
from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from scheduling import PAGE, Engine, answer, engine_config, pool_configuration, write_model

from conftest import model_directory
from paged.vllm.arguments import arguments

LONG = 6000


def prompt(n, seed=0):
    generator = random.Random(seed)
    return [generator.randrange(3, 100) for _ in range(n)]


def run_until_killed(model: Path, runtime_dir: Path, pipe) -> None:
    """In a process of its own: an engine that runs requests, one step for each message; the parent kills it."""
    engine = Engine(engine_config(model, runtime_dir, max_num_batched_tokens=64, max_num_seqs=8))
    for seed in range(6):
        engine.add(prompt(60 + 20 * seed, seed % 3), 60)
    while engine.scheduler.has_unfinished_requests():
        engine.step()
        pipe.send(engine.n_computed)


@pytest.mark.parametrize("n_steps", [1, 2, 7, 30, 45])
def test_engine_is_killed(tmp_path, start_daemon, n_steps):
    """GMS: the primary is killed at any moment; a standby that was there before answers from the cache."""
    daemon = start_daemon(pool_configuration(pages=80))
    model = write_model(tmp_path / "model")
    standby = Engine(engine_config(model, daemon.runtime_dir))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    primary = context.Process(target=run_until_killed, args=(model, daemon.runtime_dir, theirs))
    primary.start()
    for _ in range(n_steps):
        assert ours.poll(300)
        n_computed = ours.recv()
    with daemon.connect() as client:
        os.kill(primary.pid, signal.SIGKILL)
        primary.join()
        pool = client.pool("test")
        # The daemon learns of the death from the kernel, before it serves later requests.
        while client.sequences("test"):
            client.ping()
        check = pool.check()
        assert check.holds and check.n_referenced == 0, check.text
        assert n_computed > 0 and check.n_cached >= (1 if n_steps > 2 else 0)
    names = {standby.add(prompt(60 + 20 * seed, seed % 3), 60): seed for seed in range(6)}
    standby.run()
    for name, seed in names.items():
        assert standby.answers[name] == answer(prompt(60 + 20 * seed, seed % 3), 60)
    standby.close()


def test_other_engine_goes_on(tmp_path, start_daemon):
    """An engine that shares the dead one's pages in the middle of a request keeps them."""
    daemon = start_daemon(pool_configuration(pages=80))
    model = write_model(tmp_path / "model")
    dead, alive = (Engine(engine_config(model, daemon.runtime_dir)) for _ in range(2))
    dead.add(prompt(100), 60)
    for _ in range(20):
        dead.step()
    name = alive.add(prompt(100), 60)
    alive.step()
    with daemon.connect() as client:
        session = next(entry["session"] for entry in client.sequences("test"))
        client.kick(session)
        alive.run()
        assert alive.answers[name] == answer(prompt(100), 60)
        assert client.check("test").holds
    assert alive.n_computed <= 100 % PAGE + PAGE + 60
    alive.close()


def test_drained_engine(tmp_path, start_daemon):
    """It finishes what runs, also where that grows, and starts nothing more; another engine takes over."""
    daemon = start_daemon(pool_configuration(pages=80))
    model = write_model(tmp_path / "model")
    drained, other = (Engine(engine_config(model, daemon.runtime_dir, max_num_seqs=2)) for _ in range(2))
    names = [drained.add(prompt(60, seed), 100) for seed in range(3)]
    drained.step()
    with daemon.connect() as client:
        session, = {entry["session"] for entry in client.sequences("test")}
        client.drain(session)
        drained.add(prompt(60, seed=3), 100)
        for _ in range(120):
            drained.step()
        assert [drained.answers[name] for name in names] == [answer(prompt(60, 0), 100), answer(prompt(60, 1), 100), []]
        assert drained.scheduler.get_num_unfinished_requests() == 2 and client.sequences("test") == []
        name = other.add(prompt(60, seed=2), 100)
        other.run()
        assert other.answers[name] == answer(prompt(60, seed=2), 100)
        drained.close()
        assert client.check("test").holds
    other.close()


def test_stale_generation(tmp_path, start_daemon):
    """GMS: an engine of an earlier life of the daemon is refused, and never sees pages of the new one."""
    daemon = start_daemon(pool_configuration())
    engine = Engine(engine_config(write_model(tmp_path / "model"), daemon.runtime_dir))
    engine.add(prompt(100), 60)
    engine.step()
    daemon.kill()
    daemon.start()
    with pytest.raises(ConnectionError, match="pool test: pagedd has ended, and with it the KV cache of this engine"):
        engine.run()
    with daemon.connect() as client:
        check = client.check("test")
        assert check.holds and check.n_free == check.n_pages
    engine.close()


def test_replicas_and_failover(tmp_path, start_daemon, start_engine):
    """Round-robin replicas with a prefix of 6000 tokens; then one is killed, and then the daemon."""
    daemon = start_daemon("""
        pool long {
            layers = 2
            kv-heads = 2
            head-dim = 64
            dtype = f32
            page-size = 32
            pages = 512
            max-length = 8192
        }
    """)
    keywords = {"model": str(weights(tmp_path / "long", max_position_embeddings=8192)), "max_model_len": 7000,
                "max_num_batched_tokens": 2048, **arguments("long", runtime_dir=str(daemon.runtime_dir))}
    engines = [start_engine(wait=False, **keywords) for _ in range(2)]
    assert [engine.receive() for engine in engines] == ["ready", "ready"]
    document = prompt(LONG)
    results = []
    for i in range(4):
        engines[i % 2].start([document + prompt(20, seed=i)], 12)
        results.append(engines[i % 2].result())
    found = [result["cached"][0] for result in results]
    assert found[0] == 0 and min(found[1:]) >= LONG // 32 * 32
    with daemon.connect() as client:
        # What the first engine has published by now is what counts: it dies in the middle of an answer.
        engines[0].start([document + prompt(500, seed=9)], 400)
        while not any(entry["capacity"] > LONG + 540 for entry in client.sequences("long")):
            assert engines[0].process.poll() is None, engines[0].log.read_text()[-6000:]
        engines[0].kill()
        while client.sequences("long"):
            client.ping()
        check = client.check("long")
        assert check.holds and check.n_referenced == 0, check.text
        engines[1].start([document + prompt(500, seed=9)], 12)
        assert engines[1].result()["cached"][0] >= 0.9 * (LONG + 500)
        # The same question twice, to a live engine: the same answer.
        engines[1].start([document + prompt(20, seed=3)], 12)
        assert engines[1].result()["tokens"] == results[3]["tokens"]
    daemon.kill()
    engines[1].start([document + prompt(20, seed=3)], 12)
    with pytest.raises(RuntimeError, match="the engine has ended"):
        engines[1].result()
    assert "pool long: pagedd has ended" in engines[1].log.read_text()


def weights(path: Path, **config) -> Path:
    """A small Llama with random weights."""
    import torch
    import transformers
    directory = model_directory(path, **config)
    torch.manual_seed(1)
    loaded = transformers.AutoConfig.from_pretrained(directory)
    transformers.AutoModelForCausalLM.from_config(loaded).save_pretrained(directory)
    return directory


@pytest.mark.parametrize("process", ["EngineCore", "EngineCore_DP1", "MainProcess"])
def test_idle_engine_ends_with_the_daemon(start_scheduler, vllm_log, monkeypatch, process):
    """No call for a request would notice it, and vLLM's /health asks only whether the engine's process lives.

    vLLM ends the process of an engine in order at SIGTERM.  Another program with an engine inside goes on.
    """
    terminated = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    monkeypatch.setattr(multiprocessing.current_process(), "name", process)
    try:
        engine = start_scheduler()
        name = engine.add(prompt(100), 5)
        engine.run()
        assert engine.answers[name] == answer(prompt(100), 5)
        busy = engine.add(prompt(100), 5)
        engine.daemon.kill()
        # An engine that has requests ends with an error of the next step, which says as much.
        time.sleep(3)
        assert not vllm_log and not terminated.is_set()
        engine.abort(busy)
        engine.scheduler._end_watch._thread.join()
        assert vllm_log[0].startswith("pool test: pagedd has ended, and with it the KV cache of this engine; start ")
        assert terminated.is_set() == (process != "MainProcess")
    finally:
        signal.signal(signal.SIGTERM, before)
