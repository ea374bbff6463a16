#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""try_models.py [--write] [--jobs N] [CLASS]...: what becomes of each decoder class of transformers on a pool.

Builds each class small, with random weights, and compares tokens and logits of generate() on a pool, cold and from the
cache, with those of transformers' own cache.  Prints a line of TAP for each; "not ok" if a class fails, or if its
result is worse than in table.txt.  --write makes table.txt of the results.
"""
from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parent / "table.txt"
# Longer than any class takes, on a machine that does much else.
_SECONDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("classes", nargs="*")
    options = parser.parse_args()
    if options.worker:
        return _work()
    from small_models import all_classes
    names = options.classes or list(all_classes())
    results = {}
    print(f"1..{len(names)}", flush=True)
    before = read_table()
    n_failed = 0
    for number, (name, (result, reason)) in enumerate(_ask_all(names, options.jobs), 1):
        results[name] = result, reason
        expected = before.get(name, (result, ""))[0]
        is_worse = result == "FAILED" or _rank(result) > _rank(expected)
        n_failed += is_worse
        text = f"{result}: {reason}" if reason else result
        print(f"{'not ok' if is_worse else 'ok'} {number} - {name}: {text}"
              + (f" (in table.txt: {expected})" if is_worse else ""), flush=True)
    if options.write:
        write_table({**(before if options.classes else {}), **results})
    return 1 if n_failed else 0


def _ask_all(names: list[str], n_workers: int) -> Iterator[tuple[str, tuple[str, str]]]:
    """Return name, result and reason of each class, as they come."""
    waiting: queue.Queue[str | None] = queue.Queue()
    answers: queue.Queue[tuple[str, tuple[str, str]]] = queue.Queue()
    for name in (*names, *[None] * n_workers):
        waiting.put(name)

    def work() -> None:
        worker = _Worker()
        while (name := waiting.get()) is not None:
            answers.put((name, worker.ask(name)))
        worker.end()

    for _ in range(n_workers):
        threading.Thread(target=work, daemon=True).start()
    return (answers.get() for _ in names)


def _rank(result: str) -> int:
    from comparison import ORDER
    return ORDER.index(result)


class _Worker:
    """A process that tries classes, one after the other; a class that hangs or kills it costs only itself."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def ask(self, name: str) -> tuple[str, str]:
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        print(name, file=self._process.stdin, flush=True)
        try:
            line = self._lines.get(timeout=_SECONDS)
        except queue.Empty:
            self.end()
            return "FAILED", f"no result after {_SECONDS} s"
        if not line:
            status = self._process.wait()
            self._process = None
            return "FAILED", f"the process ended with status {status}"
        result, reason = json.loads(line)
        return result, reason

    def _start(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__, "--worker"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                         start_new_session=True)
        self._lines = queue.Queue()
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        # Its imports may take minutes on a machine that does much else.
        self._lines.get()

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _work() -> int:
    """Try the classes of standard input."""
    # What classes print must not come between the results.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    from comparison import NOT_RUN, compare, sentence
    from small_models import WHY_NOT_RUN, all_classes, make_small
    torch.set_num_threads(1)
    types = all_classes()
    print("ready", file=results, flush=True)
    for line in sys.stdin:
        name = line.strip()
        try:
            model = make_small(name, types[name])
        except Exception as error:
            result, reason = NOT_RUN, f"cannot be built small: {sentence(error)}"
        else:
            _, result, reason = compare(name, model)
        if result == NOT_RUN:
            reason = WHY_NOT_RUN.get(name, reason)
        print(json.dumps((result, reason)), file=results, flush=True)
    return 0


def read_table() -> dict[str, tuple[str, str]]:
    """Return result and reason of each class in table.txt."""
    if not TABLE.exists():
        return {}
    lines = [line.split("  ") for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {row[0]: (row[1], row[2] if len(row) > 2 else "") for row in rows}


def write_table(results: dict[str, tuple[str, str]]) -> None:
    import transformers
    counts: dict[str, int] = {}
    for result, _ in results.values():
        counts[result] = counts.get(result, 0) + 1
    total = ", ".join(f"{n} {result}" for result, n in sorted(counts.items(), key=lambda item: _rank(item[0])))
    width = max(map(len, results))
    lines = ["# SPDX-License-Identifier: Apache-2.0",
             f"# try_models.py --write wrote this with transformers {transformers.__version__}: {total}."]
    lines += [f"{name:{width}}  {result:23}  {' '.join(reason.split())}".rstrip()
              for name, (result, reason) in sorted(results.items())]
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
