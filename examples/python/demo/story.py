# SPDX-License-Identifier: Apache-2.0
"""The demonstration: pairs of engines use each other's pages; each is killed, and continues."""
import itertools
import time
from collections.abc import Iterator

from document import Size
from engines import Answer, Engine, Failure, Setup
from observer import Found, Observer
from references import Question, References

PAIRS = [("transformers", "paged-llama"), ("paged-llama", "vLLM"), ("vLLM", "transformers")]
KILL_AFTER = 10                 # tokens of an answer


class Story:
    def __init__(self, setup: Setup, size: Size) -> None:
        self._setup = setup
        self._pairs = PAIRS if setup.vllm_python else PAIRS[:1]
        self._observer = Observer(setup)
        self._engines: dict[str, Engine] = {}
        # Seconds to the first token, by the engine that answers and the one that has computed the document; "": none.
        self._times: dict[tuple[str, str], list[float]] = {}
        self._n_verified = 0
        start = time.monotonic()
        self._references = References(setup, size)
        self._questions: Iterator[Question] = itertools.cycle(self._references.questions)
        self._uncut: Iterator[Question] = itertools.cycle(self._references.uncut)
        questions = self._references.questions
        print(f"{len(questions)} questions about one document, prompts of {len(questions[0].prompt)} tokens.  "
              f"transformers, alone and\nwith its own cache, has answered them in {time.monotonic() - start:.0f} s.  "
              "All answers below are\ncompared with these, token by token.")

    def tell(self) -> None:
        try:
            for first, second in self._pairs:
                self._tell_of(first, second)
        finally:
            for engine in self._engines.values():
                engine.kill()
        self._print_times()
        print(f"\n{self._n_verified} tokens of answers were verified, all equal.")

    def _tell_of(self, first: str, second: str) -> None:
        """One pair: each computes the document for the other, then each is killed and continues."""
        print(f"\n{first} and {second}")
        for name in set(self._engines) - {first, second}:
            self._engines.pop(name).kill()
        # One after the other: two that load at a time are slower than that.
        for name in (first, second):
            if name not in self._engines:
                self._start(name)
        for computer, user in ((first, second), (second, first)):
            self._observer.evict()
            self._ask(computer, "")
            self._ask(user, computer)
            self._ask(computer, computer)
        for victim, other in ((first, second), (second, first)):
            self._interrupt(victim, other)
        print(f"  {self._observer.check()}")

    def _start(self, name: str) -> float:
        self._engines[name] = Engine(self._setup, name)
        seconds = self._engines[name].wait_ready()
        print(f"  {name:<12} is there after {seconds:.1f} s", flush=True)
        return seconds

    def _observed(self, name: str, prompt: list[int], max_tokens: int) -> tuple[Answer, Found]:
        before = self._observer.found()
        answer = self._engines[name].answer(prompt, max_tokens)
        after = self._observer.found()
        return answer, Found(after.n_asked - before.n_asked, after.n_found - before.n_found)

    def _ask(self, user: str, computer: str) -> None:
        question = next(self._questions)
        answer, found = self._observed(user, question.prompt, self._references.size.n_tokens)
        self._verify(user, question, answer.tokens)
        self._expect(user, found, self._references.n_common if computer else 0)
        self._times.setdefault((user, computer), []).append(answer.first_s)
        origin = f"finds {found.n_found} tokens of {computer}" if computer else "computes the document"
        print(f"  {user:<12} {origin:<37} first token after {answer.first_s:7.3f} s", flush=True)

    def _interrupt(self, victim: str, other: str) -> None:
        """Both answer at a time; one is killed, and later continues its answer."""
        question, others_question = next(self._uncut), next(self._uncut)
        n_tokens = self._references.size.n_tokens
        self._engines[victim].ask(question.prompt, n_tokens)
        self._engines[other].ask(others_question.prompt, n_tokens)
        begun = list(itertools.islice(self._engines[victim].tokens(), KILL_AFTER))
        freed_s = self._observer.kill(self._engines.pop(victim))
        self._verify(other, others_question, list(self._engines[other].tokens()))
        killed = f"kill -9; {other} goes on"
        print(f"  {victim:<12} {killed:<37} pages freed after {freed_s:7.3f} s")
        self._start(victim)
        rest, found = self._observed(victim, question.prompt + begun, n_tokens - KILL_AFTER)
        self._verify(victim, question, begun + rest.tokens)
        self._expect(victim, found, len(question.prompt))
        origin = f"goes on, finds {found.n_found} tokens"
        print(f"  {victim:<12} {origin:<37} first token after {rest.first_s:7.3f} s", flush=True)

    def _verify(self, name: str, question: Question, tokens: list[int]) -> None:
        self._references.verify(name, question, tokens)
        self._n_verified += len(tokens)

    def _expect(self, name: str, found: Found, n_tokens: int) -> None:
        """Raise Failure unless the whole pages of so many tokens were found; of a new document, none."""
        n_pages = n_tokens // self._observer.page_size
        if found.n_found // self._observer.page_size < n_pages or (n_tokens == 0 and found.n_found > 0):
            raise Failure(f"{name} found {found.n_found} tokens of its prompt; {n_tokens} were computed before")

    def _print_times(self) -> None:
        names = list(dict.fromkeys(itertools.chain(*self._pairs)))
        print("\nSeconds to the first token (the fastest of each kind), the document computed by")
        print(f"{'':<14}{'itself now':>14}" + "".join(f"{name:>14}" for name in names))
        for user in names:
            cells = [min(self._times[user, computer]) for computer in ("", *names)]
            print(f"{user:<14}" + "".join(f"{cell:>14.3f}" for cell in cells))
