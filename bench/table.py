#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of docs/PERFORMANCE.md from the output of `paged-bench run SUITE... --json`: no targets of GPUs.

The targets are in suite_*.c; NOTES-gpu.md has those of a GPU.

  table.py FILE... >table.md
  table.py --into docs/PERFORMANCE.md FILE...

A row is omitted if no file has its case.  In docs/PERFORMANCE.md the table is between two
comments, <!-- figures --> and <!-- end of figures -->.
"""
import re
import sys

from plots import runs_of, short

READ, COPIED, BLOCK = "of reading its pages", "of copying as many bytes", "× causal, per visited block"
# Label, case, its reference (None: no ratio, the median itself), and text after the ratio.
ROWS = [
    ("decode of 4k tokens, in cache", "decode 1 x 4k", "pages read", READ),
    ("decode of 128k tokens, from memory", "decode 1 x 128k", "pages read", READ),
    ("decode of 128k and 63 × 1k", "decode 1 x 128k, 63 x 1k", "decode 64 x 3056", "× 64 equal rows of as many bytes"),
    ("pages of 16, permuted", "decode 1 x 128k", "pages in order", "× in order"),
    ("pages of 1, permuted", "decode 1 x 128k, pages of 1", "pages in order", "× in order"),
    ("reading pages of 1, permuted", "decode 1 x 128k, pages of 1: pages read",
     "decode 1 x 128k, pages of 1: read in order", "× in order"),
    ("decode of fp8 e4m3, from memory", "decode 1 x 128k e4m3", "decode 1 x 128k bf16", "× as fast as bf16"),
    ("decode with ALiBi", "decode 16 x 8k alibi", "decode 16 x 8k", BLOCK),
    ("decode with soft cap", "decode 16 x 8k soft cap", "decode 16 x 8k", BLOCK),
    ("decode in a window", "decode 16 x 8k window", "decode 16 x 8k", BLOCK),
    ("decode in a document", "decode 16 x 8k document", "decode 16 x 8k", BLOCK),
    ("decode of 4k, compared with PyTorch", "decode 1 x 4k", "torch", "× as fast"),
    ("decode of 8k, compared with PyTorch", "decode 1 x 8k", "torch", "× as fast"),
    ("decode of 128k, compared with PyTorch", "decode 1 x 128k", "torch", "× as fast"),
    ("reading alone, 128k, compared with PyTorch", "decode 1 x 128k: pages read", "decode 1 x 128k: torch",
     "× as fast"),
    ("prefill of 512 at 4k", "prefill 512 of 4k", "peak", "of the peak of the best matrix unit"),
    ("prefill with ALiBi", "prefill 2k of 2k alibi", "prefill 2k of 2k causal", BLOCK),
    ("prefill with soft cap", "prefill 2k of 2k soft cap", "prefill 2k of 2k causal", BLOCK),
    ("prefill in a window", "prefill 2k of 2k window", "prefill 2k of 2k causal", BLOCK),
    ("prefill in documents", "prefill 2k of 2k document", "prefill 2k of 2k causal", BLOCK),
    ("prefill of 512 at 4k, compared with PyTorch", "prefill 512 of 4k", "torch", "× as fast"),
    ("decode of 4k, compared with vLLM", "decode 1 x 4k", "vllm", "× as fast"),
    ("decode of 128k, compared with vLLM", "decode 1 x 128k", "vllm", "× as fast"),
    ("decode of 16 × 2k, compared with vLLM", "decode 16 x 2k", "vllm", "× as fast"),
    ("prefill of 512 at 4k, compared with vLLM", "prefill 512 of 4k", "vllm", "× as fast"),
    ("prefill of 2k, compared with vLLM", "prefill 2k of 2k", "vllm", "× as fast"),
    ("append of 5000 tokens, compared with vLLM", "append 5000", "vllm", "× as fast"),
    ("append of 5000 tokens", "append 5000", "copied", COPIED),
    ("tokens gathered from pages, 5000", "gather 5000", "copied", COPIED),
    ("pages copied, 313", "313 pages", "copied", COPIED),
    ("one more page for 256 sequences, one request", "reserve 256 x 1 page", "zmq round trip", "× a bare round trip"),
    ("plan of a decode step, per sequence", "plan, per sequence", None, "no request"),
    ("32k tokens found among 1 million pages", "match 32k, 1m", None, "no request"),
    ("the same, compared", "match 32k, 1m", "lines read", "× reading two lines a page"),
    ("32k tokens found among 10 million pages", "match 32k, 10m", None, "no request"),
    ("the same, compared", "match 32k, 10m", "lines read", "× reading two lines a page"),
    ("start on 32k cached tokens, in the core", "start 32k, 1m", None, "1 million pages"),
    ("start on 32k cached tokens, a request", "paged_seq_start of 32k", "ping", "× an empty request"),
    ("fork of 32k tokens, in the core", "fork 32k, 1m", None, "1 million pages"),
    ("64 forks of 32k tokens, in the core", "64 forks of 32k, 1m", None, "1 million pages"),
    ("publish of a prompt, per page of 16 tokens", "publish a prompt, 1m", None, "1 million pages"),
    ("publish of 64 sequences, per page", "publish 64 sequences, 1m", None, "1 million pages"),
    ("reserve of pages evicted ahead, per page", "reserve evicted pages, 1m", "reserve free pages, 1m",
     "× reserve of free pages"),
    ("reserve that evicts, per page", "reserve and evict, 1m", None, "1 million pages"),
    ("trim, per private page", "trim private pages, 1m", None, "1 million pages"),
    ("trim, per published page", "trim published pages, 1m", None, "1 million pages"),
    ("decode over the end of trimmed rows", "decode 16 x 8k of 64k, trimmed", "decode 16 x 8k, not trimmed",
     "× rows of as many keys"),
    ("hand-over of 32k tokens, give and adopt", "give and adopt of 32k", "ping of a giver", "× an empty request"),
    ("decode step of 16 rows that publishes", "decode step of 16 rows that publishes", "decode step of 16 rows",
     "× a step that does not"),
]
MARKS = ("<!-- figures -->", "<!-- end of figures -->")


def cases_of(runs):
    """{(name, short name of its reference): (case, ratio as a dict)}"""
    found = {}
    for run in runs:
        for case in run["cases"]:
            found[case["name"], None] = (case, case)
            if "limit" in case:
                found[case["name"], case["limit"]] = (case, dict(case, median=case["ratio"]))
            for ratio in case.get("ratios", []):
                found[case["name"], short(case["name"], ratio["reference"])] = (case, ratio)
    return found


def time_of(case):
    """The median, in the largest unit in which it is at least 1."""
    units = ["ns", "us", "ms"]
    value, unit = case["median"], units.index(case["unit"])
    while value >= 1000 and unit < 2:
        value, unit = value / 1000, unit + 1
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {units[unit].replace('us', 'µs')}"


def number(ratio):
    """Two decimals; three if the ratio is so near its target that two could not tell them apart."""
    goal = re.match(r"[<>]= ([0-9.]+)", ratio.get("target", ""))
    near = goal and abs(ratio["median"] - float(goal.group(1))) < 0.005
    return f"{ratio['median']:.{3 if near else 2}f}"


def row(label, after, case, ratio):
    target = ratio.get("target", "").replace(">=", "≥").replace("<=", "≤")
    verdict = {True: "met", False: "missed", None: ""}[ratio.get("met")]
    reference = after if ratio is case else f"{number(ratio)} {after}"
    return f"| {label} | {time_of(case)} | {reference} | {target} | {verdict} |"


def table(runs):
    found = cases_of(runs)
    rows = [row(label, after, *found[name, reference]) for label, name, reference, after in ROWS
            if (name, reference) in found and "median" in found[name, reference][0]]
    host = next((run for run in runs if run.get("machine")), runs[0])
    machine = f"{host['cpu']}, {host['cores']} cores, {host['caches']}, Linux {host['kernel']}"
    kernels = re.search(r"kernels by (\w+)", host.get("machine", ""))
    # Without the runs with peers, whose processes are not counted as our own while they run.
    load = max((run["other_load"] for run in runs if run.get("machine") and run["reference"] not in ("torch", "vllm")),
               default=0)
    machine += f"; kernels by {kernels.group(1)}" if kernels else ""
    return "\n".join([f"{machine}; other processes used at most {100 * load:.0f} % of the cores.", "",
                      "| | median | reference | target | |", "|---|---|---|---|---|"] + rows)


def main():
    paths = sys.argv[1:]
    into = paths[1] if paths[:1] == ["--into"] and len(paths) > 2 else None
    if into:
        paths = paths[2:]
    if not paths or paths[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    made = table(list(runs_of(paths)))
    if not into:
        print(made)
        return 0
    with open(into) as file:
        parts = re.split("|".join(MARKS), file.read())
    if len(parts) != 3:
        print(f"{into}: {MARKS[0]} and {MARKS[1]} must be there once each", file=sys.stderr)
        return 1
    with open(into, "w") as file:
        file.write(f"{parts[0]}{MARKS[0]}\n\n{made}\n\n{MARKS[1]}{parts[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
