# SPDX-License-Identifier: Apache-2.0
"""Engines on one pagedd, with a real model: the tokens are those that the golden files have, the pages the same.

The golden tokens are transformers' own, greedy and in float32.  PAGED_HF_MODEL names the model's directory.
"""
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from paged.vllm.arguments import arguments

MODEL = os.environ.get("PAGED_HF_MODEL")
pytestmark = pytest.mark.skipif(not MODEL, reason="PAGED_HF_MODEL is not set")
GOLDEN = Path(os.environ.get("PAGED_SRCDIR", Path(__file__).parents[3])) / "tests" / "golden" / "llama"
PAGE = 16
POOL = f"""
pool smol {{
    layers = 30
    kv-heads = 3
    head-dim = 64
    dtype = f32
    page-size = 16
    pages = 400
    max-length = 2048
    model = "{Path(MODEL or "").name}"
}}
"""
WAIT_S = 300


def golden():
    """Prompts and their greedy tokens."""
    cases = []
    for path in sorted(GOLDEN.glob("*.tokens")):
        lines = dict(line.split(" : ") for line in path.read_text().splitlines())
        cases.append(tuple([int(word) for word in lines[name].split()] for name in ("prompt", "greedy")))
    return cases


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(POOL)


@pytest.fixture
def start_smol(daemon, start_engine):
    """A function that starts an engine of the model on the pool."""
    def start(**keywords):
        pool = arguments("smol", runtime_dir=str(daemon.runtime_dir))
        return start_engine(model=MODEL, max_model_len=2048, **{**pool, **keywords})
    return start


def assert_golden(cases, tokens):
    for (_, right), got in zip(cases, tokens):
        assert got[:len(right)] == right


def wait_for(engine, condition):
    """Wait for something that the engine does in other processes."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert engine.process.poll() is None, engine.log.read_text()[-6000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sequences(client, session):
    """The ids of a session's sequences."""
    return [entry["seq"] for entry in client.sequences("smol") if entry["session"] == session]


def test_engines_use_the_same_pages(daemon, start_smol):
    """LMCache: several engines of one machine share one cache; here in place, so the page tables name equal pages."""
    cases = golden()
    prompt, right = max(cases, key=lambda case: len(case[0]))
    n_pages = (len(prompt) - 1) // PAGE
    first, second = start_smol(wait=False), start_smol(wait=False)
    assert first.receive() == second.receive() == "ready"
    with daemon.connect() as client:
        pool = client.pool("smol")
        one, two = sorted(session["session"] for session in client.sessions() if session["name"] == "vllm")
        first.start([prompt], 80)
        wait_for(first, lambda: sequences(client, one) + sequences(client, two))
        one, two = (one, two) if sequences(client, one) else (two, one)
        seq, = sequences(client, one)
        wait_for(first, lambda: pool.read(seq).published >= n_pages * PAGE)
        referenced = pool.counts().n_referenced
        second.start([prompt], 80)
        wait_for(second, lambda: sequences(client, two))
        other, = sequences(client, two)
        assert pool.page_table(seq)[:n_pages] == pool.page_table(other)[:n_pages]
        # The second one's own pages are at most those past the prompt, and what both reserve ahead meanwhile.
        assert pool.counts().n_referenced - referenced < n_pages
        a, b = first.result(), second.result()
        assert a["cached"] == [0] and b["cached"][0] >= n_pages * PAGE
        assert a["tokens"][0][0][:len(right)] == b["tokens"][0][0][:len(right)] == right
        # The other prompts, by both at once.
        cases = [case for case in cases if case[0] != prompt]
        first.start([case[0] for case in cases], 64)
        second.start([case[0] for case in reversed(cases)], 64)
        assert_golden(cases, [outputs[0] for outputs in first.result()["tokens"]])
        assert_golden(cases[::-1], [outputs[0] for outputs in second.result()["tokens"]])
        more_kinds_of_requests(first, cases)
        check = client.check("smol")
        assert check.holds and check.n_referenced == 0, check.text


def more_kinds_of_requests(engine, cases):
    """Several answers to a prompt, logprobs of the prompt, a stop token, and a sampled answer by seed."""
    prompt, right = cases[0]
    engine.start([prompt], 8, n=3, temperature=0.9, seed=5)
    outputs = engine.result()["tokens"][0]
    assert len(outputs) == 3
    engine.start([prompt], 8, n=3, temperature=0.9, seed=5)
    assert engine.result()["tokens"][0] == outputs
    engine.start([prompt], 8, prompt_logprobs=1)
    result = engine.result()
    assert result["cached"] == [0] and result["tokens"][0][0] == right[:8]
    assert engine.generate([prompt], 8, stop_token_ids=[right[3]]) == [right[:right.index(right[3]) + 1]]


def transformers_answer(pool, prompt, n_tokens):
    """Return what transformers generates on the pool, and how many tokens of the prompt it found there."""
    import torch
    from transformers import AutoModelForCausalLM

    from paged._engines import prefix_salt
    from paged.transformers import PagedCache

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model.set_attn_implementation("paged")
    cache = PagedCache(pool, salt=prefix_salt(pool, "its own name"))
    ids = torch.tensor([prompt])
    found = cache.start(ids)
    out = model.generate(ids, past_key_values=cache, max_new_tokens=n_tokens, min_new_tokens=n_tokens, do_sample=False)
    cache.publish(out)
    cache.close()
    return out[0, len(prompt):].tolist(), found


def test_vllm_and_transformers_share(daemon, start_smol):
    """Each finds the pages that the other one computed: the pool's configuration names the model."""
    pytest.importorskip("paged.transformers")
    (prompt, right), (other, right_other) = sorted(golden(), key=lambda case: len(case[0]))[-2:]
    with daemon.connect(name="transformers") as client:
        pool = client.pool("smol")
        answer, found = transformers_answer(pool, prompt, len(right))
        assert answer == right and found == 0
        engine = start_smol()
        engine.start([prompt], len(right))
        result = engine.result()
        assert result["tokens"][0][0] == right
        assert result["cached"][0] >= len(prompt) // PAGE * PAGE - 1
        assert engine.generate([other], len(right_other)) == [right_other]
        answer, found = transformers_answer(pool, other, len(right_other))
        assert answer == right_other and found >= len(other) // PAGE * PAGE - 1
        check = client.check("smol")
        assert check.holds, check.text
