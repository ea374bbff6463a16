# SPDX-License-Identifier: Apache-2.0
"""The scheduler's part of paged.vllm under vLLM's own scheduler: all ways in which requests start, grow and end."""
from __future__ import annotations

import random

import pytest

pytest.importorskip("vllm")

from scheduling import PAGE, answer, assert_idle, prompt, report

from paged.vllm.request_sequences import COMING_PAGES


def test_request_is_a_sequence(start_scheduler):
    engine = start_scheduler()
    engine.add(prompt(40), 30, request_id="first")
    engine.step()
    sequences = report(engine)[1]
    assert [sequence["tag"] for sequence in sequences] == ["first"]
    engine.run()
    assert engine.answers["first"] == answer(prompt(40), 30)
    assert_idle(engine)
    # The last token's K and V were never needed.
    assert report(engine)[0].n_cached == (40 + 30 - 1) // PAGE


def test_prefix_is_found(start_scheduler):
    engine = start_scheduler()
    engine.add(prompt(70), 10)
    engine.run()
    n = engine.n_computed
    name = engine.add(prompt(70) + [1, 2, 3], 10)
    engine.run()
    assert engine.n_computed - n == 70 + 3 - 64 + 10 - 1
    assert engine.answers[name] == answer(prompt(70) + [1, 2, 3], 10)


def test_prefix_of_another_engine(start_scheduler):
    first, second = start_scheduler(), start_scheduler()
    first.add(prompt(64), 20)
    first.run()
    name = second.add(prompt(64) + first.answers["r1"][:12], 8)
    second.run()
    # A prompt of 76 tokens, of which 64 are full pages of the other engine.
    assert second.n_computed == 76 - 64 + 8 - 1
    assert second.answers[name] == answer(prompt(64), 20)[12:]


def test_whole_prompt_is_found(start_scheduler):
    engine = start_scheduler()
    engine.add(prompt(64), 5)
    engine.run()
    n = engine.n_computed
    name = engine.add(prompt(64), 5)
    engine.run()
    assert engine.n_computed - n == 5
    assert engine.answers[name] == answer(prompt(64), 5)


def test_equal_prompts_at_once(start_scheduler):
    """Several answers to a prompt: the first request computes it, in chunks, for all."""
    engine = start_scheduler(max_num_batched_tokens=64, max_num_seqs=8)
    names = [engine.add(prompt(150), 10) for _ in range(4)]
    other = engine.add(prompt(150, seed=1), 10, cache_salt="another tenant")
    tenant = engine.add(prompt(150), 10, cache_salt="another tenant")
    engine.run()
    assert {tuple(engine.answers[name]) for name in [*names, tenant]} == {tuple(answer(prompt(150), 10))}
    assert engine.answers[other] == answer(prompt(150, seed=1), 10)
    # Three prompts are computed; of the others only the end, for which nothing waits.
    assert engine.n_computed <= 3 * 150 + 3 * (COMING_PAGES * PAGE + 150 % PAGE) + 6 * 9
    assert_idle(engine)


def test_pool_that_publishes_nothing(start_scheduler):
    """Nothing is found, and nothing waits for what is not to come."""
    engine = start_scheduler(more="publish = no")
    names = [engine.add(prompt(150), 10) for _ in range(2)]
    engine.step()
    assert engine.n_computed == 2 * 150
    engine.run()
    assert [engine.answers[name] for name in names] == [answer(prompt(150), 10)] * 2
    assert_idle(engine)


def test_the_first_of_equal_prompts_is_aborted(start_scheduler):
    engine = start_scheduler(max_num_batched_tokens=64, max_num_seqs=8)
    first, second = (engine.add(prompt(150), 10) for _ in range(2))
    engine.step()
    engine.abort(first)
    engine.run()
    assert engine.answers[second] == answer(prompt(150), 10)
    assert engine.n_computed == 64 + 150 - 64 + 9
    assert_idle(engine)


def test_prompt_logprobs_compute_the_prompt(start_scheduler):
    engine = start_scheduler()
    engine.add(prompt(64), 5)
    engine.run()
    n = engine.n_computed
    name = engine.add(prompt(64), 5, prompt_logprobs=1)
    engine.run()
    assert engine.n_computed - n == 64 + 4
    assert engine.answers[name] == answer(prompt(64), 5)
    assert_idle(engine)


def test_pool_without_room_for_a_request(start_scheduler):
    """A request that needs more than the whole pool would wait for ever, and those behind it."""
    with pytest.raises(ValueError, match="pool test has pages for 128 tokens, vLLM allows requests of 512: start vLLM "
                                         "with --max-model-len 128"):
        start_scheduler(pages=8)


def test_prompt_logprobs_wait_for_pages(start_scheduler):
    """vLLM does not look whether the connector said "later" about such a request."""
    engine = start_scheduler(pages=8, max_model_len=128)
    first = engine.add(prompt(100), 8)
    engine.step()
    second = engine.add(prompt(64, seed=1), 5, prompt_logprobs=1)
    engine.run()
    assert engine.answers == {first: answer(prompt(100), 8), second: answer(prompt(64, seed=1), 5)}
    assert_idle(engine)


def test_wait_for_places(start_scheduler):
    """The pool has pages, but other sessions have all but one of its sequences, and then all."""
    engine = start_scheduler()
    engine.step()
    with engine.daemon.connect() as client, client.pool("test") as pool:
        others = pool.create(pool.n_slots - 1)
        names = [engine.add(prompt(40, seed), 20) for seed in range(3)]
        engine.step()
        assert engine.n_computed == 40
        engine.run()
        others += pool.create(1)
        names += [engine.add(prompt(40, seed), 20) for seed in range(3, 6)]
        for _ in range(3):
            assert engine.step() == 0
        pool.erase(others)
        engine.run()
    for seed, name in enumerate(names):
        assert engine.answers[name] == answer(prompt(40, seed), 20)
    assert_idle(engine)


def test_tenants_do_not_share(start_scheduler):
    engine = start_scheduler()
    for salt in ("a", "b", None):
        n = engine.n_computed
        engine.add(prompt(64), 1, cache_salt=salt)
        engine.run()
        assert engine.n_computed - n == 64
    engine.add(prompt(64), 1, cache_salt="b")
    engine.run()
    assert engine.n_computed == 3 * 64 + 1


def test_chunked_prefill_publishes_chunks(start_scheduler):
    first = start_scheduler(max_num_batched_tokens=64, max_num_seqs=4)
    second = start_scheduler()
    first.add(prompt(300), 5)
    for _ in range(3):
        first.step()
    # Publishing does not wait for the daemon; a request after it does.
    first.part._pool.client.ping()
    name = second.add(prompt(300), 5)
    second.run()
    # The third step's chunk may still be computed when it is scheduled, so two are published.
    assert second.n_computed == 300 - 128 + 4
    first.run()
    assert first.answers["r1"] == second.answers[name] == answer(prompt(300), 5)
    assert_idle(first)


def test_abort(start_scheduler):
    """A request that waits, one that runs, one between its steps, and one that the full pool keeps waiting."""
    engine = start_scheduler(pages=16, max_model_len=128)
    waiting = engine.add(prompt(20))
    engine.abort(waiting)
    engine.step()
    running = engine.add(prompt(100), 20)
    full = engine.add(prompt(100, seed=1), 20)
    other = engine.add(prompt(100, seed=2), 20)
    engine.step()
    engine.step()
    assert len(report(engine)[1]) == 2
    engine.abort(other)
    engine.abort(running)
    engine.step()
    engine.abort(full)
    engine.step()
    assert_idle(engine)


def test_preemption(start_scheduler):
    """vLLM preempts when the pool is full; the request continues on what it published."""
    engine = start_scheduler(pages=16, max_model_len=128)
    prompts = [prompt(40, seed) for seed in range(4)]
    names = [engine.add(tokens, 60) for tokens in prompts]
    engine.run()
    for name, tokens in zip(names, prompts):
        assert engine.answers[name] == answer(tokens, 60)
    assert engine.n_preempted > 0
    assert_idle(engine)


def test_priority(start_scheduler):
    engine = start_scheduler(pages=16, max_model_len=128, scheduling_policy="priority")
    names = [engine.add(prompt(40, seed), 60, priority=-seed) for seed in range(4)]
    engine.run()
    for seed, name in enumerate(names):
        assert engine.answers[name] == answer(prompt(40, seed), 60)
    assert_idle(engine)


def test_rejected_drafts_are_not_shared(start_scheduler):
    """Speculative decoding: drafts that are rejected were written, and must never be published."""
    ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    engine = start_scheduler(speculative_config=ngram)
    generator = random.Random(1)

    def drafts(name):
        tokens = engine.scheduler.requests[name]._all_token_ids if name in engine.scheduler.requests else [0]
        right = answer(tokens, 3)
        n = generator.randrange(4)
        return right[:n] + [(token + 1) % 100 for token in right[n:]]

    names = [engine.add(prompt(30, seed), 90) for seed in range(3)]
    engine.run(drafts)
    names += [engine.add(prompt(30, seed) + answer(prompt(30, seed), 50), 40) for seed in range(3)]
    engine.run(drafts)
    for seed in range(3):
        assert engine.answers[names[seed]] == answer(prompt(30, seed), 90)
        assert engine.answers[names[3 + seed]] == answer(prompt(30, seed), 90)[50:]
    assert_idle(engine)


@pytest.mark.parametrize("n_right", range(4))
def test_drafts_after_a_cached_prompt(start_scheduler, n_right):
    """n_right of three drafts are accepted, also those that come with the first step of a prompt of whole pages."""
    ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    engine = start_scheduler(speculative_config=ngram)

    def drafts(name):
        tokens = engine.scheduler.requests[name]._all_token_ids if name in engine.scheduler.requests else [0]
        right = answer(tokens, 3)
        return right[:n_right] + [(token + 1) % 100 for token in right[n_right:]]

    for n in 64, 64, 16, 16, 128:
        name = engine.add(prompt(n), 40)
        engine.run(drafts)
        assert engine.answers[name] == answer(prompt(n), 40)
    # The last page of the prompt is computed again, with the drafts.
    engine.add(prompt(64), 1)
    n_computed = engine.n_computed
    engine.run(drafts)
    assert engine.n_computed - n_computed == PAGE
    assert_idle(engine)


@pytest.mark.parametrize("keywords", [{}, {"reset_connector": True}])
def test_reset_prefix_cache(start_scheduler, keywords):
    """vLLM resets its prefix cache when weights change: nothing that was computed before is found afterwards.

    Without reset_connector, too: the pool is the engine's only prefix cache.
    """
    engine = start_scheduler()
    engine.add(prompt(64), 5)
    engine.run()
    running = engine.add(prompt(64, seed=1), 40)
    for _ in range(5):
        engine.step()
    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True, **keywords)
    engine.run()
    assert engine.answers[running] == answer(prompt(64, seed=1), 40)
    n = engine.n_computed
    engine.add(prompt(64), 5)
    engine.run()
    assert engine.n_computed - n == 64 + 4
    n = engine.n_computed
    engine.add(prompt(64), 5)
    engine.run()
    assert engine.n_computed - n == 5
    assert_idle(engine)


def test_reset_while_requests_wait(start_scheduler):
    """Requests that wait for another one's chunks, and for pages, compute what they would have found."""
    engine = start_scheduler(pages=20, max_model_len=256, max_num_batched_tokens=64, max_num_seqs=8)
    engine.add(prompt(64, seed=1), 1)
    engine.run()
    first, waits = (engine.add(prompt(150), 20) for _ in range(2))
    full = engine.add(prompt(200, seed=2), 20)
    found = engine.add(prompt(64, seed=1), 20)
    engine.step()
    engine.step()
    assert len(engine.scheduler.running) == 1
    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    n_computed = engine.n_computed
    engine.run()
    for name, tokens in {first: prompt(150), waits: prompt(150), full: prompt(200, seed=2),
                         found: prompt(64, seed=1)}.items():
        assert engine.answers[name] == answer(tokens, 20)
    # What was published before is found by none.
    assert engine.n_computed - n_computed >= 150 + 200 + 64 + 4 * 19
    assert_idle(engine)


def test_reset_of_the_connector_only(start_scheduler):
    """vLLM keeps a running request; what it has computed with the old weights is not published any more."""
    engine = start_scheduler()
    running = engine.add(prompt(64), 40)
    for _ in range(5):
        engine.step()
    n_cached = report(engine)[0].n_cached
    # False: vLLM's own blocks are in use.
    assert not engine.scheduler.reset_prefix_cache(reset_connector=True)
    engine.run()
    assert engine.answers[running] == answer(prompt(64), 40)
    assert n_cached == 0 and report(engine)[0].n_cached == 64 // PAGE
    n_computed = engine.n_computed
    engine.add(prompt(64), 1)
    engine.run()
    assert engine.n_computed - n_computed == 64
    assert_idle(engine)


def test_reset_of_one_engine(start_scheduler):
    """An engine with new weights shares with itself only, also when the other engine publishes afterwards."""
    engine, other = start_scheduler(), start_scheduler()
    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    for some in other, engine:
        some.add(prompt(64), 1)
        some.run()
        assert some.n_computed == 64
        some.add(prompt(64), 1)
        some.run()
        assert some.n_computed == 64 + 1


# Sessions: requests whose input comes in several turns (vLLM's streaming input)


def turn(engine, name, tokens, n_tokens=10, **keywords):
    """Add a turn of a session."""
    return engine.add(tokens, n_tokens, request_id=name, resumable=True, **keywords)


def end(engine, name):
    """End the session, as vLLM does after its last turn: with a request that is not resumable."""
    engine.add([0], 1, request_id=name)


def wait_for_turn(engine, name, n_answers, limit=200):
    for _ in range(limit):
        if len(engine.answers[name]) >= n_answers:
            return
        engine.step()
    raise AssertionError(f"{len(engine.answers[name])} of {n_answers} tokens")


def test_session(start_scheduler):
    """The turns are one sequence; after the end its pages are free or cached, and found by a request."""
    engine = start_scheduler()
    turn(engine, "session", prompt(40))
    tokens = prompt(40)
    for seed in range(1, 4):
        wait_for_turn(engine, "session", 10 * seed)
        right = answer(tokens, 10)
        assert engine.answers["session"][-10:] == right
        assert [entry["tag"] for entry in report(engine)[1]] == ["session"]
        # vLLM forgets the last token of a turn, whose K and V were not computed.
        tokens += right[:-1] + prompt(30, seed)
        n_computed = engine.n_computed
        turn(engine, "session", prompt(30, seed))
    wait_for_turn(engine, "session", 40)
    assert engine.answers["session"][-10:] == answer(tokens, 10)
    assert engine.n_computed - n_computed == 30 + 10 - 1
    end(engine, "session")
    engine.step()
    assert_idle(engine)
    n_computed = engine.n_computed
    engine.add(tokens, 1)
    engine.run()
    assert engine.n_computed - n_computed == len(tokens) % PAGE


@pytest.mark.parametrize("moment", ["before its first step", "in a turn", "between turns", "with turns that wait"])
def test_session_is_aborted(start_scheduler, moment):
    engine = start_scheduler()
    turn(engine, "session", prompt(40))
    if moment != "before its first step":
        engine.step()
        engine.step()
    if moment == "between turns":
        wait_for_turn(engine, "session", 10)
        assert len(report(engine)[1]) == 1
    if moment == "with turns that wait":
        turn(engine, "session", prompt(30, seed=1))
        turn(engine, "session", prompt(30, seed=2))
    engine.abort("session")
    engine.step()
    assert_idle(engine)


def test_turns_that_wait(start_scheduler):
    """Turns, and the end, that arrive while the first turn is computed."""
    engine = start_scheduler()
    turn(engine, "session", prompt(40))
    engine.step()
    turn(engine, "session", prompt(30, seed=1))
    turn(engine, "session", prompt(30, seed=2))
    end(engine, "session")
    engine.run()
    first = prompt(40) + answer(prompt(40), 9) + prompt(30, seed=1)
    second = first + answer(first, 9) + prompt(30, seed=2)
    assert engine.answers["session"] == answer(prompt(40), 10) + answer(first, 10) + answer(second, 10)
    assert_idle(engine)


def test_sessions_in_a_full_pool(start_scheduler):
    """Sessions are preempted in the middle of a turn, and go on from what they published."""
    engine = start_scheduler(pages=20, max_model_len=256)
    names = [turn(engine, f"session {seed}", prompt(40, seed), 60) for seed in range(3)]
    expected = {name: prompt(40, seed) for seed, name in enumerate(names)}
    for seed, name in enumerate(names):
        turn(engine, name, prompt(20, seed + 10), 40)
        end(engine, name)
    engine.run()
    for seed, name in enumerate(names):
        first = expected[name] + answer(expected[name], 59) + prompt(20, seed + 10)
        assert engine.answers[name] == answer(expected[name], 60) + answer(first, 40)
    assert engine.n_preempted > 0
    assert_idle(engine)


@pytest.mark.parametrize("seed", range(8))
def test_engines_compete(start_scheduler, seed):
    """Two engines, a pool that is too small for both, and requests that come, share, are aborted, and end."""
    generator = random.Random(seed)
    engines = [start_scheduler(pages=20, max_model_len=160, max_num_batched_tokens=generator.choice([64, 200]),
                            max_num_seqs=8, n_blocks=generator.choice([20, 60])) for _ in range(2)]
    prompts = [prompt(generator.randrange(1, 90), seed=generator.randrange(3)) for _ in range(24)]
    expected = [{}, {}]
    for tokens in prompts:
        i = generator.randrange(2)
        n = generator.randrange(1, 60)
        name = engines[i].add(tokens, n)
        expected[i][name] = answer(tokens, n)
        for _ in range(generator.randrange(4)):
            engines[generator.randrange(2)].step()
        if generator.random() < 0.1:
            name = generator.choice(list(expected[i]))
            engines[i].abort(name)
            del expected[i][name]
    for _ in range(4000):
        if not any(engine.scheduler.has_unfinished_requests() for engine in engines):
            break
        generator.choice(engines).step()
    for engine, right in zip(engines, expected):
        assert {name: engine.answers[name] for name in right} == right
        engine.step()
    assert_idle(engines[0])
