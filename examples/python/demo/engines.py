# SPDX-License-Identifier: Apache-2.0
"""Engines as processes at the other ends of pipes; token_lines.py has the protocol."""
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
# No prompt begins with these tokens.
WARM_UP = range(100, 132)


class Failure(Exception):
    """The demonstration cannot go on, or has shown something wrong."""


class Ended(Failure):
    """An engine's process has ended."""


class Answer(NamedTuple):
    tokens: list[int]
    first_s: float              # from the question to the first token
    leads: list[float]          # of the reference: of each token over the next best


class Setup(NamedTuple):
    """Where the parts of the demonstration are."""

    runtime_dir: Path
    pool: str
    gguf: Path
    model: Path                 # the same in the format of transformers
    llama: Path                 # the program paged-llama
    python: str                 # with transformers
    vllm_python: str | None     # with vLLM
    n_threads: int
    logs: Path

    def command(self, name: str) -> list[str]:
        if name == "paged-llama":
            return [str(self.llama), "--token-lines", "--model", str(self.gguf), "--pool", self.pool, "--threads",
                    str(self.n_threads)]
        if name == "vLLM":
            return [self.vllm_python or "", str(HERE / "answer_vllm.py"), str(self.model)]
        program = "answer_transformers.py" if name == "transformers" else "answer_privately.py"
        return [self.python, str(HERE / program), str(self.model)]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PAGED_RUNTIME_DIR": str(self.runtime_dir), "PAGED_POOL": self.pool,
                # Threads that wait leave their CPU to the other engine.
                "OMP_NUM_THREADS": str(self.n_threads), "OMP_WAIT_POLICY": "passive",
                "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
                # vLLM would bind its threads to CPUs that another engine needs, too.
                "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}


class Engine:
    """A process, and the processes that it starts: all of them are killed together."""

    def __init__(self, setup: Setup, name: str) -> None:
        self.name = name
        self._log = setup.logs / name
        self.struck = False
        self._left: set[Path] = set()
        self.started_s = time.monotonic()
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(setup.command(name), env=setup.environment(), stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._questions, self._replies = self._process.stdin, self._process.stdout

    def _ended(self) -> Ended:
        return Ended(f"{self.name} has ended; its messages are in {self._log}")

    def _reply(self) -> dict[str, Any]:
        line = self._replies.readline()
        if not line.endswith("\n"):
            raise self._ended()
        reply: dict[str, Any] = json.loads(line)
        return reply

    def wait_ready(self) -> float:
        """Wait until the model is loaded and code, weights and buffers were used once; return the seconds."""
        self._reply()
        self.answer(WARM_UP, 2)
        return time.monotonic() - self.started_s

    def ask(self, prompt: Sequence[int], max_tokens: int) -> None:
        try:
            print(max_tokens, *prompt, file=self._questions, flush=True)
        except BrokenPipeError as error:
            raise self._ended() from error

    def replies(self) -> Iterator[dict[str, Any]]:
        """The replies to a question, each with a token, as they come."""
        while "token" in (reply := self._reply()):
            yield reply

    def tokens(self) -> Iterator[int]:
        return (reply["token"] for reply in self.replies())

    def answer(self, prompt: Sequence[int], max_tokens: int) -> Answer:
        start = time.monotonic()
        self.ask(prompt, max_tokens)
        tokens: list[int] = []
        leads: list[float] = []
        first_s = 0.0
        for reply in self.replies():
            first_s = first_s or time.monotonic() - start
            tokens.append(reply["token"])
            leads.append(reply.get("lead", 0.0))
        return Answer(tokens, first_s, leads)

    def owns(self, pid: int) -> bool:
        """Return whether that is a living process of this engine."""
        try:
            return os.getpgid(pid) == self._process.pid
        except ProcessLookupError:
            return False

    def _shared_memory(self) -> set[Path]:
        """Shared memory with a name that its processes use; vLLM leaves it behind when it is killed."""
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.owns(int(process.name)):
                    found |= set(re.findall(r" (/dev/shm/\S+)$", (process / "maps").read_text(), re.MULTILINE))
            except OSError:
                pass    # it has ended meanwhile
        return set(map(Path, found))

    def strike(self) -> None:
        """SIGKILL to all its processes, at any moment and from any thread."""
        self.struck = True
        self._left |= self._shared_memory()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.strike()
        self._process.wait()
        self._questions.close()
        self._replies.close()
        for path in self._left:
            path.unlink(missing_ok=True)
