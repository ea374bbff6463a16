# SPDX-License-Identifier: Apache-2.0
"""Models whose layers all have a sliding window: requests give back the pages that it has left behind.

The pool has room for the window and a step, the requests for many times as many tokens.
"""
from __future__ import annotations

import random

import pytest

pytest.importorskip("vllm")

from scheduling import PAGE, answer, assert_idle, prompt, report

from conftest import model_directory

WINDOW = 40
STEP = 32
# The window, which may begin inside of a page, and a step.
PAGES = (WINDOW - 1 + STEP + PAGE - 1) // PAGE + 1
LENGTH = 1000
SMALL = {"pages": PAGES, "window": WINDOW, "max_model_len": LENGTH, "max_num_batched_tokens": STEP, "max_num_seqs": 8,
         "enable_chunked_prefill": True}


def trimmed(engine):
    """For each sequence the pages that it has given back."""
    return [engine.pool.read(sequence["seq"]).n_trimmed for sequence in report(engine)[1]]


@pytest.mark.parametrize("more", ["", "publish = no"])
@pytest.mark.parametrize("n", [20, 500, 990])
def test_pool_of_the_window_size(start_scheduler, n, more):
    """Long prompts and long answers; positions go on, and nothing starts again."""
    engine = start_scheduler(**SMALL, more=more)
    assert LENGTH > 10 * PAGES * PAGE / 2
    name = engine.add(prompt(n), LENGTH - n)
    before = 0
    while engine.scheduler.has_unfinished_requests():
        engine.step()
        now, = trimmed(engine) or [before]
        assert now >= before
        before = now
    assert before >= (LENGTH - WINDOW) // PAGE - PAGES
    engine.step()
    assert engine.answers[name] == answer(prompt(n), LENGTH - n)
    assert engine.n_computed == LENGTH - 1 and engine.n_preempted == 0
    assert_idle(engine)


def test_requests_take_turns(start_scheduler):
    """Several requests in a pool for one and a half: each is preempted or waits, and ends."""
    engine = start_scheduler(**{**SMALL, "pages": PAGES * 3 // 2})
    names = [engine.add(prompt(n, seed), 200) for seed, n in enumerate((20, 300, 100, 33))]
    engine.run(limit=20000)
    for seed, (name, n) in enumerate(zip(names, (20, 300, 100, 33))):
        assert engine.answers[name] == answer(prompt(n, seed), 200)
    assert_idle(engine)


def test_published_pages_are_found(start_scheduler):
    """What was given back stays in the cache, and a request that starts on it gives it back as well."""
    engine = start_scheduler(**{**SMALL, "pages": 60})
    engine.add(prompt(600), 100)
    engine.run()
    before = engine.n_computed
    name = engine.add(prompt(600) + answer(prompt(600), 50), 300)
    engine.step()
    assert engine.n_computed - before == 650 % PAGE
    engine.run()
    assert engine.answers[name] == answer(prompt(600), 350)[50:]
    assert_idle(engine)


def test_hand_over(start_scheduler):
    """A sequence that was trimmed is handed over with the pages that are left."""
    producer = start_scheduler(**SMALL, role="producer")
    consumer = start_scheduler(**SMALL, role="consumer")
    for n in 500, 512:
        name = producer.add(prompt(n), 1, transfer={"do_remote_decode": True})
        producer.run()
        params = producer.transfers[name]
        assert params["remote_num_tokens"] == n and len(params["remote_block_ids"]) <= PAGES
        before = consumer.n_computed
        name = consumer.add(prompt(n), 300, transfer=params)
        consumer.run()
        assert consumer.answers[name] == answer(prompt(n), 300)
        assert consumer.n_computed - before == 300
    assert_idle(consumer)


def test_hand_over_after_an_answer(start_scheduler):
    """The window of the producer's own answer has left the prompt behind: the consumer computes it."""
    producer = start_scheduler(**SMALL, role="producer")
    consumer = start_scheduler(**SMALL, role="consumer")
    name = producer.add(prompt(100), 200, transfer={"do_remote_decode": True})
    producer.run()
    name = consumer.add(prompt(100), 50, transfer=producer.transfers[name])
    consumer.run()
    assert consumer.answers[name] == answer(prompt(100), 50)
    assert_idle(consumer)


@pytest.mark.parametrize("n_right", [0, 3])
def test_drafts(start_scheduler, n_right):
    """Rejected drafts do not take the window with them."""
    ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    engine = start_scheduler(**{**SMALL, "pages": PAGES + 1}, speculative_config=ngram)

    def drafts(name):
        tokens = engine.scheduler.requests[name]._all_token_ids if name in engine.scheduler.requests else [0]
        right = answer(tokens, 3)
        return right[:n_right] + [(token + 1) % 100 for token in right[n_right:]]

    name = engine.add(prompt(100), 500)
    engine.run(drafts)
    assert engine.answers[name] == answer(prompt(100), 500)
    assert_idle(engine)


def test_pool_that_is_too_small(start_scheduler):
    with pytest.raises(ValueError, match=f"pool test has {PAGES - 1} pages; a request needs {PAGES} at a time, for the "
                                         f"window and for a step of {STEP} tokens"):
        start_scheduler(**{**SMALL, "pages": PAGES - 1})


def test_engine(tmp_path, start_daemon, start_engine):
    """A whole engine with a Mistral whose window is a fraction of the prompt, next to one with memory of its own."""
    import torch
    import transformers

    directory = model_directory(tmp_path / "mistral", architectures=["MistralForCausalLM"], model_type="mistral",
                                sliding_window=96, head_dim=64, initializer_range=0.1)
    torch.manual_seed(1)
    config = transformers.AutoConfig.from_pretrained(directory)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    # The window, a step of 64 tokens, and a page more: 192 tokens.
    daemon = start_daemon("""
        pool small {
            layers = 2
            kv-heads = 2
            head-dim = 64
            dtype = f32
            page-size = 32
            pages = 6
            max-length = 4096
        }
    """)
    keywords = {"model": str(directory), "max_model_len": 2048, "max_num_batched_tokens": 64, "max_num_seqs": 2,
                "enable_chunked_prefill": True}
    own = start_engine(**{**keywords, "num_gpu_blocks_override": 129}, wait=False)
    pooled = start_engine({"runtime_dir": str(daemon.runtime_dir)}, **keywords, wait=False)
    assert own.receive() == pooled.receive() == "ready"
    generator = random.Random(5)
    for n, n_tokens in (30, 1000), (1500, 300):
        tokens = [generator.randrange(3, 128) for _ in range(n)]
        right = own.generate([tokens], n_tokens)
        assert pooled.generate([tokens], n_tokens) == right
        assert len(set(right[0])) > 50      # an answer that repeats itself would be the same without a window
    with daemon.connect() as client:
        check = client.check("small")
        assert check.holds and check.n_referenced == 0, check.text
