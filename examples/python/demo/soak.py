# SPDX-License-Identifier: Apache-2.0
"""The soak: two engines at a time, of random kinds, answer questions until each is killed at a random moment."""
import os
import random
import threading
import time
from collections import Counter
from typing import NamedTuple

from document import Size
from engines import Ended, Engine, Failure, Setup
from observer import Observer
from references import References

# One engine in four is killed while it loads, within so many seconds; the others while they answer.
LOADING_S = {"paged-llama": 0.3, "transformers": 8.0, "vLLM": 30.0}
ANSWERING_S = 20.0
RSS_LIMIT_KB = 4096
REPORT_S = 60.0


class Traces(NamedTuple):
    """What pagedd has, and what must not grow."""

    n_descriptors: int
    n_shared_mappings: int
    anonymous_kb: int

    @classmethod
    def read(cls, pid: int) -> "Traces":
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            status = dict(line.split(":", 1) for line in file)
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            n_shared_mappings = sum(line.split()[1].endswith("s") for line in file)
        return cls(len(os.listdir(f"/proc/{pid}/fd")), n_shared_mappings, int(status["RssAnon"].split()[0]))


class Soak:
    def __init__(self, setup: Setup, size: Size, end_s: float, seed: int) -> None:
        self._setup = setup
        self._seed = seed
        self._names = [name for name in LOADING_S if name != "vLLM" or setup.vllm_python]
        self._references = References(setup, size)
        self._end_s = end_s + time.monotonic()
        self._lock = threading.Lock()
        self.observer = Observer(setup)
        self.pid: int = self.observer.client.status()["pid"]
        self.killed: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.n_tokens = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        slots = [threading.Thread(target=self._slot, args=(number,)) for number in range(2)]
        for slot in slots:
            slot.start()
        for slot in slots:
            while slot.is_alive():
                slot.join(REPORT_S)
                print(f"  {self}", flush=True)
        if self.failure is not None:
            raise self.failure

    def __str__(self) -> str:
        return (f"{sum(self.answered.values())} answers, {self.n_tokens} tokens, "
                f"killed: {', '.join(f'{n} {name}' for name, n in self.killed.items())}; {Traces.read(self.pid)}")

    def _slot(self, number: int) -> None:
        choose = random.Random(1000 * self._seed + number)
        try:
            while time.monotonic() < self._end_s and self.failure is None:
                self._live(choose)
        except Exception as error:      # run() raises it in the main thread
            self.failure = error

    def _live(self, choose: random.Random) -> None:
        """One engine, from its start to its death, and what is left then."""
        name = choose.choice(self._names)
        loading = choose.random() < 0.25
        engine = Engine(self._setup, name)
        timer = threading.Timer(choose.uniform(0, LOADING_S[name] if loading else ANSWERING_S), engine.strike)
        try:
            if loading:
                timer.start()
            engine.wait_ready()
            if not loading:
                timer.start()
            while True:
                question = choose.choice(self._references.questions)
                answer = engine.answer(question.prompt, self._references.size.n_tokens)
                self._references.verify(name, question, answer.tokens)
                with self._lock:
                    self.answered[name] += 1
                    self.n_tokens += len(answer.tokens)
        except Ended:
            if not engine.struck:
                raise
        finally:
            timer.cancel()
            with self._lock:
                self.observer.kill(engine)
                self.observer.check()
                self.killed[name] += 1


def soak(setup: Setup, size: Size, minutes: float, seed: int) -> None:
    """Run for so many minutes; raise Failure on a wrong answer, accounting that does not hold, or traces that grow."""
    run = Soak(setup, size, 60 * minutes, seed)
    before = Traces.read(run.pid)
    print(f"{minutes:g} minutes, seed {seed}; before: {before}", flush=True)
    run.run()
    after = Traces.read(run.pid)
    found = run.observer.found()
    print(f"after: {after}; of {found.n_asked} tokens of prompts {found.n_found} were found\n{run.observer.check()}")
    if after.n_descriptors > before.n_descriptors or after.n_shared_mappings > before.n_shared_mappings:
        raise Failure(f"before the soak {before}, after it {after}")
    if after.anonymous_kb > before.anonymous_kb + RSS_LIMIT_KB:
        raise Failure(f"pagedd's memory grew from {before.anonymous_kb} kB to {after.anonymous_kb} kB")
