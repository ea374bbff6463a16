# SPDX-License-Identifier: Apache-2.0
"""Sequences pass from an engine that computes prompts to one that continues them, and no byte of K or V moves.

With vLLM's scheduler and a runner that checks each K and V (scheduling.py): the runner of the engine that continues
reads what the other one has written.  Whole engines are in test_disaggregation.py.
"""
from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time

import pytest

pytest.importorskip("vllm")

from scheduling import (
    PAGE,
    Engine,
    answer,
    assert_idle,
    engine_config,
    image,
    pool_configuration,
    prompt,
    report,
    write_model,
)

from paged.vllm.handover import Ticket

# What vLLM's proxies send to the engine that computes the prompt.
REMOTE_DECODE = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
                 "remote_block_ids": None, "remote_host": None, "remote_port": None}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
# What a consumer writes into vLLM's log, before the reason.
UNUSABLE = "its prompt is computed here; the sequence that was handed over cannot be used"
WAIT_S = 300


@pytest.fixture
def pair(start_scheduler):
    """A producer and a consumer of one pool."""
    return start_scheduler(role="producer"), start_scheduler(role="consumer")


def prefill(engine, tokens, n_tokens=1, **keywords):
    """Compute a prompt as a proxy asks for it; return the kv_transfer_params of the output."""
    name = engine.add(tokens, n_tokens, transfer=REMOTE_DECODE, **keywords)
    engine.run()
    return engine.transfers[name]


def tickets(engine):
    with engine.daemon.connect() as client:
        return client.tickets()


def wait_until_idle(engine):
    """Wait until no sequence is left, although no engine runs a step."""
    deadline = time.monotonic() + WAIT_S
    while report(engine)[1]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert tickets(engine) == []
    assert_idle(engine)


@pytest.mark.parametrize("more", ["", "publish = no"])
@pytest.mark.parametrize("n", [1, 5, 40, 64, 150])
def test_prompt_is_continued(start_scheduler, n, more):
    """The consumer computes the last token only, on the same pages."""
    producer = start_scheduler(role="producer", more=more, max_num_batched_tokens=64, max_num_seqs=8)
    consumer = start_scheduler(role="consumer")
    params = prefill(producer, prompt(n))
    assert params["do_remote_prefill"] is True and params["do_remote_decode"] is False
    assert params["remote_num_tokens"] == n and len(params["remote_block_ids"]) == -(-n // PAGE)
    assert params["remote_engine_id"] == producer.config.kv_transfer_config.engine_id
    given, = report(producer)[1]
    assert len(tickets(producer)) == 1 and given["seq"] == params["paged_sequence"]
    name = consumer.add(prompt(n), 30, transfer=params)
    assert consumer.step() == 1
    adopted, = report(consumer)[1]
    assert adopted["seq"] == given["seq"] and adopted["session"] != given["session"]
    assert consumer.pool.page_table(adopted["seq"])[:-(-n // PAGE)] == params["remote_block_ids"]
    consumer.run()
    assert consumer.answers[name] == answer(prompt(n), 30)
    assert consumer.n_computed == 30
    assert tickets(producer) == []
    assert_idle(consumer)
    if not more:
        # What both have written is found by others.
        assert report(consumer)[0].n_cached == (n + 30 - 1) // PAGE


def test_answer_that_the_producer_began(pair):
    """A proxy may append the first token to the prompt; and a producer that was asked for more gives the prompt."""
    producer, consumer = pair
    for n, more in (40, answer(prompt(40), 1)), (48, answer(prompt(48), 3)):
        params = prefill(producer, prompt(n), n_tokens=3)
        assert params["remote_num_tokens"] == n
        before = consumer.n_computed
        name = consumer.add(prompt(n) + more, 20, transfer=params)
        consumer.run()
        assert consumer.answers[name] == answer(prompt(n) + more, 20)
        assert consumer.n_computed - before == len(more) + 20 - 1
    # The prompt's last page is not published with tokens of the producer's answer.
    params = prefill(producer, prompt(30, seed=1), n_tokens=20)
    name = consumer.add(prompt(30, seed=1), 20, transfer=params)
    before = consumer.n_computed
    consumer.run()
    assert consumer.answers[name] == answer(prompt(30, seed=1), 20)
    assert consumer.n_computed - before == 20
    assert_idle(consumer)


def test_both_roles_in_one_engine(start_scheduler):
    engine = start_scheduler()
    for n in 40, 64:
        params = prefill(engine, prompt(n))
        before = engine.n_computed
        name = engine.add(prompt(n), 40, transfer=params)
        engine.step()
        assert [entry["seq"] for entry in report(engine)[1]] == [params["paged_sequence"]]
        # The engine gave the sequence itself: when the ticket would have expired, it does not look for it.
        assert not engine.part._handover._due
        engine.run()
        assert engine.answers[name] == answer(prompt(n), 40)
        assert engine.n_computed - before == 40
    assert_idle(engine)


def test_roles(pair, vllm_log):
    """A consumer gives nothing away, and a producer adopts nothing; the requests are computed all the same."""
    producer, consumer = pair
    assert prefill(consumer, prompt(40)) is None
    params = prefill(producer, prompt(64, seed=1))
    name = producer.add(prompt(64, seed=1), 5, transfer=params)
    producer.run()
    assert producer.answers[name] == answer(prompt(64, seed=1), 5)
    assert vllm_log == [f"request {name}: {UNUSABLE}: this engine is a producer (kv_role)"]
    assert len(tickets(producer)) == 1
    consumer.add(prompt(64, seed=1), 5, transfer=params)
    consumer.run()
    assert_idle(consumer)


def test_other_requests(pair):
    """Without kv_transfer_params both roles are engines as others."""
    for engine in pair:
        name = engine.add(prompt(40), 20)
        engine.run()
        assert engine.answers[name] == answer(prompt(40), 20) and engine.transfers[name] is None
    assert_idle(engine)


# Tickets that cannot be used


def test_ticket_is_used_twice(start_scheduler):
    """A proxy repeats a request at another consumer: it starts on what is published."""
    producer = start_scheduler(role="producer")
    first, second = start_scheduler(role="consumer"), start_scheduler(role="consumer")
    params = prefill(producer, prompt(70))
    names = [engine.add(prompt(70), 20, transfer=params) for engine in (first, second)]
    for engine, name, n in zip((first, second), names, (1, 70 - 64)):
        assert engine.step() == n
        engine.run()
        assert engine.answers[name] == answer(prompt(70), 20)
    assert_idle(first)


def test_ticket_expires(start_scheduler):
    """No consumer came: the pages are free although the producer is idle; a consumer that comes later computes."""
    producer = start_scheduler(role="producer", ticket_timeout=0.1)
    consumer = start_scheduler(role="consumer")
    params = [prefill(producer, prompt(70, seed)) for seed in range(3)]
    wait_until_idle(producer)
    for seed in range(3):
        name = consumer.add(prompt(70, seed), 20, transfer=params[seed])
        assert consumer.step() == 70 - 64
        consumer.run()
        assert consumer.answers[name] == answer(prompt(70, seed), 20)
    assert_idle(consumer)


def test_producer_ends(start_scheduler):
    """The ticket outlives it; without a consumer the sequence ends with the ticket."""
    producer = start_scheduler(role="producer")
    impatient = start_scheduler(role="producer", ticket_timeout=0.1)
    consumer = start_scheduler(role="consumer")
    params = prefill(producer, prompt(70))
    prefill(impatient, prompt(70, seed=1))
    producer.close()
    impatient.close()
    name = consumer.add(prompt(70), 20, transfer=params)
    assert consumer.step() == 1
    consumer.run()
    assert consumer.answers[name] == answer(prompt(70), 20)
    wait_until_idle(consumer)


@pytest.mark.parametrize("change, reason", [
    ({"paged_ticket": "00" * 16}, "the ticket is unknown, used or expired"),
    ({"paged_ticket": "00" * 15}, "paged_ticket is '0000"),
    ({"paged_ticket": "no hexadecimal"}, "paged_ticket is 'no hex"), ({"paged_ticket": 7}, "paged_ticket is 7"),
    ({"paged_ticket": None}, "paged_ticket is None"), ({"paged_pool": "other"}, "it is in pool other"),
    ({"paged_pool": []}, "paged_pool is []"), ({"paged_sequence": 1 << 40}, "the ticket is of another sequence"),
    ({"paged_sequence": -1}, "paged_sequence is -1"), ({"paged_sequence": "1"}, "paged_sequence is '1'"),
    ({"paged_sequence": True}, "paged_sequence is True"),
    ({"remote_num_tokens": 41}, "the ticket is of another sequence"),
    ({"remote_num_tokens": 16}, "the ticket is of another sequence"),
    ({"remote_num_tokens": 0}, "remote_num_tokens is 0"),
    ({"remote_num_tokens": 1 << 40}, "remote_num_tokens is 1099511627776"),
    ({"paged_content": "0" * 64}, "its tokens are not those of the request"),
    ({"paged_content": None}, "paged_content is None"), ({"remote_block_ids": None}, None),
    ({"remote_engine_id": 5}, None)])
def test_params_that_are_wrong(pair, vllm_log, change, reason):
    """The request is computed where it came, whatever a proxy sends, and vLLM's log says why."""
    producer, consumer = pair
    params = prefill(producer, prompt(40))
    name = consumer.add(prompt(40), 20, transfer={**params, **change})
    consumer.run()
    assert consumer.answers[name] == answer(prompt(40), 20)
    # A ticket that was tried is used up, and its sequence is not left.
    assert [entry["seq"] for entry in report(consumer)[1]] == [params["paged_sequence"]] * len(tickets(producer))
    assert len(vllm_log) == (reason is not None)
    assert all(line.startswith(f"request {name}: {UNUSABLE}: {reason}") for line in vllm_log)


def test_params_that_are_missing(pair, vllm_log):
    _, consumer = pair
    name = consumer.add(prompt(40), 20, transfer={"do_remote_prefill": True})
    consumer.run()
    assert consumer.answers[name] == answer(prompt(40), 20)
    assert vllm_log == [f"request {name}: {UNUSABLE}: there is no paged_ticket"]
    assert_idle(consumer)


def test_other_requests_of_the_ticket(pair):
    """The ticket of another prompt, another tenant or another image is not used."""
    producer, consumer = pair
    for tokens, keywords in ((prompt(64, seed=1), {"images": [image(1, 20, 30)]}), (prompt(64), {}),
                             (prompt(64), {"images": [image(2, 20, 30)]}),
                             (prompt(64), {"images": [image(1, 20, 30)], "cache_salt": "tenant"})):
        params = prefill(producer, prompt(64), images=[image(1, 20, 30)])
        consumer.add(tokens, 1, transfer=params, **keywords)
        # What it does not use is freed at once.
        assert tickets(producer) == [] and report(consumer)[1] == []
        assert consumer.step() > 1
        consumer.run()
    consumer.add(prompt(64), 1, transfer=prefill(producer, prompt(64), images=[image(1, 20, 30)]),
                 images=[image(1, 20, 30)])
    assert consumer.step() == 1
    consumer.run()
    # Nothing says that images without a hash are the same.
    assert prefill(producer, prompt(64, seed=2), images=[image(1, 20, 30, "my picture")]) is None
    assert_idle(consumer)


def test_new_weights(pair):
    """A sequence of the old weights is not continued with the new ones, nor the other way round."""
    producer, consumer = pair
    params = prefill(producer, prompt(70))
    assert consumer.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    consumer.add(prompt(70), 1, transfer=params)
    assert consumer.step() == 70
    consumer.run()
    assert_idle(consumer)


def test_whole_prompt_is_to_be_computed(pair):
    """The consumer computes the prompt for its logprobs, and frees what was handed over at once."""
    producer, consumer = pair
    name = consumer.add(prompt(70), 5, transfer=prefill(producer, prompt(70)), prompt_logprobs=1)
    assert consumer.step() == 70
    assert tickets(producer) == [] and len(report(consumer)[1]) == 1
    consumer.run()
    assert consumer.answers[name] == answer(prompt(70), 5)
    assert_idle(consumer)


# Requests that are aborted, and engines that are killed


def test_abort(pair):
    """Before the consumer has scheduled the request, and after; and in the producer."""
    producer, consumer = pair
    names = [consumer.add(prompt(70, seed), 20, transfer=prefill(producer, prompt(70, seed))) for seed in range(2)]
    assert tickets(producer) == []      # adopted on arrival
    consumer.abort(names[0])
    assert len(report(consumer)[1]) == 1
    consumer.step()
    consumer.abort(names[1])
    consumer.step()
    assert_idle(consumer)
    name = producer.add(prompt(300), 1, transfer=REMOTE_DECODE)
    producer.abort(name)
    name = producer.add(prompt(300), 50, transfer=REMOTE_DECODE)
    producer.step()
    producer.abort(name)
    producer.step()
    assert tickets(producer) == []
    assert_idle(producer)


def test_request_that_the_consumer_rejects(pair):
    """vLLM's front end refuses a request, and tells the connector by one that is aborted at once."""
    producer, consumer = pair
    params = prefill(producer, prompt(70))
    name = consumer.add([0], 1, transfer=params)
    consumer.abort(name)
    assert tickets(producer) == []
    assert_idle(consumer)


def engine_in_a_process(model, runtime_dir, role, pipe):
    """In a process of its own: obeys (tokens, n_tokens, kv_transfer_params, n_steps) until it is killed."""
    engine = Engine(engine_config(model, runtime_dir, role=role))
    pipe.send("ready")
    while True:
        tokens, n_tokens, transfer, n_steps = pipe.recv()
        name = engine.add(tokens, n_tokens, transfer=transfer)
        for _ in range(n_steps):
            engine.step()
        pipe.send(engine.transfers.get(name))


@pytest.fixture
def start_process(tmp_path, start_daemon):
    """A function that starts an engine in a process; returns the process and a pipe to it.  start.daemon: pagedd."""
    processes = []
    context = multiprocessing.get_context("spawn")

    def start(role):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=engine_in_a_process,
                                         args=(start.model, start.daemon.runtime_dir, role, theirs)))
        processes[-1].start()
        assert ours.poll(WAIT_S * 2) and ours.recv() == "ready"
        return processes[-1], ours

    start.daemon = start_daemon(pool_configuration())
    start.model = write_model(tmp_path / "model")
    yield start
    for process in processes:
        process.kill()
        process.join()


def ask(pipe, *message):
    pipe.send(message)
    assert pipe.poll(WAIT_S)
    return pipe.recv()


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_producer_is_killed(start_process):
    """After it gave the sequence: the ticket works.  While it computes: the consumer has no ticket, and computes."""
    process, pipe = start_process("producer")
    consumer = Engine(engine_config(start_process.model, start_process.daemon.runtime_dir, role="consumer"),
                      start_process.daemon)
    params = ask(pipe, prompt(70), 1, REMOTE_DECODE, 2)
    ask(pipe, prompt(150, seed=1), 50, REMOTE_DECODE, 3)
    kill(process)
    name = consumer.add(prompt(70), 30, transfer=params)
    assert consumer.step() == 1
    other = consumer.add(prompt(150, seed=1), 30, transfer=REMOTE_DECODE)
    consumer.run()
    assert consumer.answers == {name: answer(prompt(70), 30), other: answer(prompt(150, seed=1), 30)}
    wait_until_idle(consumer)
    consumer.close()


@pytest.mark.parametrize("n_steps", [0, 1, 10])
def test_consumer_is_killed(start_process, n_steps):
    """The proxy repeats the request at another consumer, with the same parameters."""
    producer = Engine(engine_config(start_process.model, start_process.daemon.runtime_dir, role="producer"),
                      start_process.daemon)
    consumer = Engine(engine_config(start_process.model, start_process.daemon.runtime_dir, role="consumer"),
                      start_process.daemon)
    process, pipe = start_process("consumer")
    params = prefill(producer, prompt(70))
    ask(pipe, prompt(70), 30, params, n_steps)
    assert tickets(producer) == []
    kill(process)
    name = consumer.add(prompt(70), 30, transfer=params)
    consumer.run()
    assert consumer.answers[name] == answer(prompt(70), 30)
    assert consumer.n_computed <= 70 - 64 + 29
    wait_until_idle(consumer)
    producer.close()
    consumer.close()


# Pools that are full, drafts, and many requests


def test_full_pool(start_scheduler):
    """Adopting needs no page: what was handed over runs where new requests have to wait."""
    producer = start_scheduler(role="producer", pages=16, max_model_len=128)
    consumer = start_scheduler(role="consumer", max_model_len=128)
    params = [prefill(producer, prompt(60, seed)) for seed in range(2)]
    waits = [consumer.add(prompt(100, seed), 20) for seed in range(2, 5)]
    consumer.step()
    names = [consumer.add(prompt(60, seed), 60, transfer=params[seed]) for seed in range(2)]
    consumer.run()
    for seed, name in enumerate([*names, *waits]):
        assert consumer.answers[name] == (answer(prompt(60, seed), 60) if seed < 2 else answer(prompt(100, seed), 20))
    assert_idle(consumer)


@pytest.mark.parametrize("n", [30, 64])
@pytest.mark.parametrize("n_right", [0, 2, 3])
def test_drafts(start_scheduler, n, n_right):
    """vLLM schedules drafts with the last token of the prompt, of which a row writes all or none."""
    producer = start_scheduler(role="producer")
    consumer = start_scheduler(role="consumer", speculative_config=NGRAM)

    def drafts(name):
        tokens = consumer.scheduler.requests[name]._all_token_ids if name in consumer.scheduler.requests else [0]
        right = answer(tokens, 3)
        return right[:n_right] + [(token + 1) % 100 for token in right[n_right:]]

    name = consumer.add(prompt(n), 40, transfer=prefill(producer, prompt(n)))
    # The first step has the last token and drafts, or the last page, which is published.
    assert consumer.step(drafts) == (1 + 3 if n % PAGE else PAGE)
    consumer.run(drafts)
    assert consumer.answers[name] == answer(prompt(n), 40)
    assert_idle(consumer)


@pytest.mark.parametrize("seed", range(4))
def test_proxy(start_scheduler, seed):
    """Requests of all lengths through one producer and, in turn, two consumers, in a pool that is too small for all."""
    generator = random.Random(seed)
    producer = start_scheduler(role="producer", pages=30, max_model_len=200, max_num_batched_tokens=64, max_num_seqs=8,
                               ticket_timeout=generator.choice([0.1, 60]))
    consumers = [start_scheduler(role="consumer", max_model_len=200, max_num_seqs=8) for _ in range(2)]
    questions = {producer.add(prompt(generator.randrange(1, 120), generator.randrange(4)), 1, transfer=REMOTE_DECODE):
                 None for _ in range(24)}
    for name in questions:
        questions[name] = list(producer.scheduler.requests[name].prompt_token_ids)
    passed, expected = 0, [{}, {}]
    for _ in range(4000):
        for name, params in list(producer.transfers.items()):
            del producer.transfers[name]
            i, n = passed % 2, generator.randrange(1, 60)
            passed += 1
            assert params is not None
            added = consumers[i].add(questions[name], n, transfer=params)
            expected[i][added] = answer(questions[name], n)
            if generator.random() < 0.15:
                consumers[i].abort(added)
                del expected[i][added]
        if passed == len(questions) and not any(engine.scheduler.has_unfinished_requests() for engine in consumers):
            break
        generator.choice([producer, *consumers]).step()
    assert [engine.answers for engine in consumers] == expected
    for engine in [producer, *consumers]:
        engine.step()
    wait_until_idle(producer)


def test_ticket_of_params():
    ticket = Ticket(bytes(range(16)), "pool", 5, 70, "content")
    params = ticket.params("engine", "request", [3, 4])
    assert Ticket.of_params(params) == ticket
    assert params["remote_block_ids"] == [3, 4] and params["remote_request_id"] == "request"
    with pytest.raises(ValueError, match="there is no paged_ticket"):
        Ticket.of_params({})
