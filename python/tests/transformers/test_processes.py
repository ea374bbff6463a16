# SPDX-License-Identifier: Apache-2.0
"""Processes that run an unmodified program on one pool, and one that is killed in the middle of an answer."""
import os
import subprocess
import sys

import pytest

pytest.importorskip("transformers")

from golden_cases import MODEL, N_NEW, POOL, golden

import paged
from paged._engines import prefix_salt

# Knows nothing of paged.  For each line of tokens it prints those of the answer as they come, and an empty line.
PROGRAM = """
import sys
import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

class Lines(BaseStreamer):
    def put(self, value):
        if value.ndim == 1:
            print(*value.tolist(), flush=True)

    def end(self):
        print(flush=True)

torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
for line in sys.stdin:
    tokens = torch.tensor([[int(token) for token in line.split()]])
    model.generate(tokens, do_sample=False, max_new_tokens=int(sys.argv[2]), streamer=Lines())
"""


class Program:
    """A process of PROGRAM, which answers some of the prompts."""

    def __init__(self, directory, daemon, numbers):
        self.numbers = numbers
        prompts = directory / f"{os.urandom(4).hex()}.tokens"
        prompts.write_text("".join(" ".join(map(str, golden(number)[0])) + "\n" for number in numbers))
        with open(prompts) as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "paged.transformers", directory / "program.py", MODEL, str(N_NEW)], stdin=file,
                stdout=subprocess.PIPE, text=True, env={**os.environ, "PAGED_RUNTIME_DIR": str(daemon.runtime_dir)})

    def tokens(self, n_tokens):
        return [int(self.process.stdout.readline()) for _ in range(n_tokens)]

    def finish(self):
        """All its answers are right."""
        answers = self.process.communicate()[0].split("\n\n")
        assert self.process.returncode == 0
        assert [list(map(int, answer.split())) for answer in answers[:-1]] == [
            golden(number)[1] for number in self.numbers]


@pytest.fixture
def start(tmp_path, start_daemon):
    (tmp_path / "program.py").write_text(PROGRAM)
    daemon = start_daemon(POOL)
    programs = []

    def start(*numbers):
        programs.append(Program(tmp_path, daemon, numbers))
        return programs[-1]

    start.daemon = daemon
    yield start
    for program in programs:
        program.process.kill()
        program.process.wait()
        program.process.stdout.close()


def test_three_processes_and_one_that_is_killed(start):
    with start.daemon.connect() as client:
        pool = client.pool("llama")
        first, second, killed = start(0, 3), start(4, 0), start(2)
        assert killed.tokens(20) == golden(2)[1][:20]
        killed.process.kill()
        killed.process.wait()
        first.finish()
        second.finish()
        assert pool.counts().n_referenced == 0
        assert client.check("llama").holds
        # What it had published before its end is there for the others.
        prompt, answer = golden(2)
        prefix = paged.Prefix(prompt + answer, salt=prefix_salt(pool, ""))
        n_tokens = len(prompt) + 20
        assert n_tokens - 2 * pool.page_size < pool.match(prefix)
        (before,) = client.pools()
        start(2).finish()
        (after,) = client.pools()
        assert after["n_tokens_found"] - before["n_tokens_found"] == len(prompt) // 16 * 16
        assert pool.counts().n_referenced == 0
        assert client.check("llama").holds
