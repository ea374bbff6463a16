# SPDX-License-Identifier: Apache-2.0
"""A daemon that stops answering for longer than a call waits, and one that is killed in the middle of a step."""
from __future__ import annotations

import random
import signal
import threading
import time

import pytest

pytest.importorskip("vllm")

from scheduling import answer, assert_idle, prompt, report

import paged
from conftest import pool_configuration

# How long a call waits for an answer; tests without a model set the second.
TIMEOUT_S = 5.0
SHORT_S = 0.3


class Stopped:
    """The daemon does not run for some seconds, or until the end of the context."""

    def __init__(self, daemon, seconds=3600):
        self._process = daemon.process
        self._timer = threading.Timer(seconds, self._process.send_signal, [signal.SIGCONT])

    def __enter__(self):
        self._process.send_signal(signal.SIGSTOP)
        self._timer.start()

    def __exit__(self, *error):
        self._timer.cancel()
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def impatient(monkeypatch):
    """Calls of the schedulers wait for a short time only."""
    connect = paged.connect

    def impatient_connect(*arguments, **keywords):
        if keywords.get("name") == "vllm":
            keywords["timeout"] = SHORT_S
        return connect(*arguments, **keywords)

    monkeypatch.setattr(paged, "connect", impatient_connect)


@pytest.mark.parametrize("n_stopped", [1, 2, 7])
def test_steps_while_the_daemon_stands(impatient, start_scheduler, n_stopped):
    """Requests that start, grow, are preempted and aborted meanwhile."""
    engine = start_scheduler(pages=24, max_model_len=256)
    names = {engine.add(prompt(40, seed), 50): seed for seed in range(3)}
    engine.step()
    for i in range(3):
        with Stopped(engine.daemon):
            names[engine.add(prompt(30, 10 + i), 20)] = 10 + i
            engine.abort(engine.add(prompt(30, 20 + i), 20))
            for _ in range(n_stopped):
                engine.step()
            running = next(iter(engine.scheduler.running), None)
            if i == 1 and running is not None:
                engine.abort(running.request_id)
                del names[running.request_id]
        for _ in range(4):
            engine.step()
    engine.run()
    for name, seed in names.items():
        n, n_tokens = (40, 50) if seed < 3 else (30, 20)
        assert engine.answers[name] == answer(prompt(n, seed), n_tokens)
    assert_idle(engine)


@pytest.mark.parametrize("seed", range(4))
def test_daemon_that_stops_now_and_then(impatient, start_scheduler, seed):
    generator = random.Random(seed)
    engines = [start_scheduler(pages=24, max_model_len=160, max_num_seqs=8) for _ in range(2)]
    expected = [{}, {}]
    for _ in range(16):
        i = generator.randrange(2)
        tokens, n = prompt(generator.randrange(1, 90), generator.randrange(3)), generator.randrange(1, 50)
        expected[i][engines[i].add(tokens, n)] = answer(tokens, n)
    # The runner connects in its first step.
    for engine in engines:
        engine.step()
    for _ in range(8):
        with Stopped(engines[0].daemon, generator.random() * 3 * SHORT_S):
            for _ in range(generator.randrange(1, 4)):
                generator.choice(engines).step()
        for _ in range(generator.randrange(8)):
            generator.choice(engines).step()
    for _ in range(2000):
        if not any(engine.scheduler.has_unfinished_requests() for engine in engines):
            break
        generator.choice(engines).step()
    for engine, right in zip(engines, expected):
        assert engine.answers == right
        engine.step()
    assert_idle(engines[0])


REMOTE_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}


def test_giving_while_the_daemon_stands(impatient, start_scheduler, monkeypatch):
    """The producer does not know whether its request was served; in any case the pages come back."""
    monkeypatch.setattr("paged.vllm.handover.LATE_S", 3 * SHORT_S)
    producer = start_scheduler(role="producer", ticket_timeout=0.1)
    consumer = start_scheduler(role="consumer")
    name = producer.add(prompt(40), 2, transfer=REMOTE_DECODE)
    producer.step()
    with Stopped(producer.daemon):
        producer.step()
        assert producer.finished[name] and producer.transfers[name] is None
    while report(producer)[1]:
        time.sleep(0.01)
    assert_idle(producer)
    name = consumer.add(prompt(40), 20, transfer=producer.transfers[name])
    consumer.run()
    assert consumer.answers[name] == answer(prompt(40), 20)


@pytest.mark.parametrize("then", ["goes on", "is aborted", "has lost its ticket"])
def test_adopting_while_the_daemon_stands(impatient, start_scheduler, then):
    """The consumer asks again, and gets the sequence that the request without an answer adopted."""
    producer, consumer = (start_scheduler(role=role) for role in ("producer", "consumer"))
    consumer.step()     # the runner connects
    name = producer.add(prompt(40), 1, transfer=REMOTE_DECODE)
    producer.run()
    params = producer.transfers[name]
    if then == "has lost its ticket":
        params = {**params, "paged_ticket": "00" * 16}
    with Stopped(consumer.daemon):
        name = consumer.add(prompt(40), 20, transfer=params)
        consumer.step()
        assert consumer.n_computed == 0
    consumer.part._pool.client.ping()
    if then == "is aborted":
        consumer.abort(name)
        assert_idle(consumer)
        return
    assert consumer.step() == (1 if then == "goes on" else 40 - 32)
    consumer.run()
    assert consumer.answers[name] == answer(prompt(40), 20)
    if then == "goes on":
        assert_idle(consumer)


def running_sequence(client, engine):
    """Wait until the engine computes its only request."""
    while not client.sequences("small"):
        assert engine.process.poll() is None, engine.log.read_text()[-6000:]
        time.sleep(0.01)


def test_engine(start_daemon, start_engine, monkeypatch):
    """A whole engine goes on after a daemon that stood for longer than a call waits, and ends with one that ended."""
    monkeypatch.setenv("PAGED_TIMEOUT_MS", str(round(TIMEOUT_S * 1000)))
    daemon = start_daemon(pool_configuration())
    engine = start_engine({"runtime_dir": str(daemon.runtime_dir)})
    tokens = [3 + token for token in prompt(200)]
    right = engine.generate([tokens], 500)
    with daemon.connect() as client:
        client.evict("small")
        engine.start([tokens], 500)
        running_sequence(client, engine)
        with Stopped(daemon):
            time.sleep(1.4 * TIMEOUT_S)
        result = engine.result()
        assert [outputs[0] for outputs in result["tokens"]] == right
        # A call has waited in vain.
        assert result["seconds"] > TIMEOUT_S
        check = client.check("small")
        assert check.holds and check.n_referenced == 0, check.text
        engine.start([tokens[1:]], 500)
        running_sequence(client, engine)
    daemon.kill()
    with pytest.raises(RuntimeError, match="the engine has ended"):
        engine.result()
    assert "pool small: pagedd has ended, and with it the KV cache of this engine" in engine.log.read_text()
    assert engine.process.wait(300) != 0
