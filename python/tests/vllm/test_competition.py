# SPDX-License-Identifier: Apache-2.0
"""Two engines on a pool that is too small for both: vLLM preempts and resumes, and every answer is right.

test_scheduler.py has many random runs of this kind without a model; here whole engines run at the same time.
"""
from __future__ import annotations

import random

import pytest

pytest.importorskip("vllm")

from conftest import pool_configuration
from paged.vllm.arguments import arguments


def prompts(n, seed):
    generator = random.Random(seed)
    return [[generator.randrange(3, 128) for _ in range(generator.randrange(60, 200))] for _ in range(n)]


def test_engines_finish(start_daemon, start_engine):
    daemon = start_daemon(pool_configuration(pages=20))
    keywords = {"max_model_len": 512, "disable_log_stats": False,
                **arguments("small", runtime_dir=str(daemon.runtime_dir))}
    engines = [start_engine(wait=False, **keywords) for _ in range(2)]
    assert [engine.receive() for engine in engines] == ["ready", "ready"]
    questions = [prompts(5, seed) for seed in range(2)]
    # One request at a time: nothing is preempted.
    right = [[engine.generate([question], 100)[0] for question in some] for engine, some in zip(engines, questions)]
    with daemon.connect() as client:
        client.evict("small")
        for engine, some in zip(engines, questions):
            engine.start(some, 100)
        results = [engine.result() for engine in engines]
        assert [[outputs[0] for outputs in result["tokens"]] for result in results] == right
        assert sum(result["preemptions"] for result in results) > 0
        check = client.check("small")
        assert check.holds and check.n_referenced == 0, check.text
    for engine in engines:
        assert "PAGED_ERR" not in engine.log.read_text()
