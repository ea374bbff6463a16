#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/PERFORMANCE.md, of `paged-bench run SUITE... --json`: what the project asks of a CPU.

  table.py FILE... >table.md
  table.py --into docs/PERFORMANCE.md FILE...

Rows whose figures no file has are left out.  The table stands between two
comments, <!-- figures --> and <!-- end of figures -->.
"""
import json
import re
import sys

from plots import runs_of, short

READ, COPIED, BLOCK = "of reading its pages", "of copying as much", "a visited block, of causal's"
# Label, figure's name, reference (None: the figure itself), and text after the ratio.
ROWS = [
    ("decode of 4k tokens, in cache", "decode 1 x 4k", "pages read", READ),
    ("decode of 128k tokens, from memory", "decode 1 x 128k", "pages read", READ),
    ("decode of 128k and 63 × 1k", "decode 1 x 128k, 63 x 1k", "decode 64 x 3056", "× 64 rows alike, as many bytes"),
    ("pages of 16, permuted", "decode 1 x 128k", "pages in order", "× in order"),
    ("pages of 1, permuted", "decode 1 x 128k, pages of 1", "pages in order", "× in order"),
    ("reading pages of 1, permuted", "decode 1 x 128k, pages of 1: pages read",
     "decode 1 x 128k, pages of 1: read in order", "× in order"),
    ("decode of fp8 e4m3, from memory", "decode 1 x 128k e4m3", "decode 1 x 128k bf16", "× as fast as bf16"),
    ("decode with ALiBi", "decode 16 x 8k alibi", "decode 16 x 8k", BLOCK),
    ("decode with soft cap", "decode 16 x 8k soft cap", "decode 16 x 8k", BLOCK),
    ("decode in a window", "decode 16 x 8k window", "decode 16 x 8k", BLOCK),
    ("decode in a document", "decode 16 x 8k document", "decode 16 x 8k", BLOCK),
    ("decode of 4k, beside PyTorch", "decode 1 x 4k", "torch", "× as fast"),
    ("decode of 8k, beside PyTorch", "decode 1 x 8k", "torch", "× as fast"),
    ("decode of 128k, beside PyTorch", "decode 1 x 128k", "torch", "× as fast"),
    ("reading alone, 128k, beside PyTorch", "decode 1 x 128k: pages read", "decode 1 x 128k: torch", "× as fast"),
    ("prefill of 512 at 4k", "prefill 512 of 4k", "peak", "of the peak of the best matrix unit"),
    ("prefill with ALiBi", "prefill 2k of 2k alibi", "prefill 2k of 2k causal", BLOCK),
    ("prefill with soft cap", "prefill 2k of 2k soft cap", "prefill 2k of 2k causal", BLOCK),
    ("prefill in a window", "prefill 2k of 2k window", "prefill 2k of 2k causal", BLOCK),
    ("prefill in documents", "prefill 2k of 2k document", "prefill 2k of 2k causal", BLOCK),
    ("prefill of 512 at 4k, beside PyTorch", "prefill 512 of 4k", "torch", "× as fast"),
    ("append of 5000 tokens", "append 5000", "copied", COPIED),
    ("tokens gathered from pages, 5000", "gather 5000", "copied", COPIED),
    ("pages copied, 313", "313 pages", "copied", COPIED),
    ("one more page for 256 sequences, one request", "reserve 256 x 1 page", "zmq round trip", "× a bare round trip"),
    ("plan of a decode step, a sequence", "plan, a sequence", None, "no request"),
]
MARKS = ("<!-- figures -->", "<!-- end of figures -->")


def figures_of(runs):
    """{(name, what it stands beside): (figure, ratio as a dict)}"""
    found = {}
    for run in runs:
        for figure in run["figures"]:
            found[figure["name"], None] = (figure, figure)
            if "limit" in figure:
                found[figure["name"], figure["limit"]] = (figure, dict(figure, median=figure["ratio"]))
            for ratio in figure.get("ratios", []):
                found[figure["name"], short(figure["name"], ratio["to"])] = (figure, ratio)
    return found


def time_of(figure):
    """A median in the unit that makes it a short number."""
    units = ["ns", "us", "ms"]
    value, unit = figure["median"], units.index(figure["unit"])
    while value >= 1000 and unit < 2:
        value, unit = value / 1000, unit + 1
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {units[unit].replace('us', 'µs')}"


def number(ratio):
    """Two digits, or as many as say on which side of its target it is."""
    goal = re.match(r"[<>]= ([0-9.]+)", ratio.get("target", ""))
    near = goal and abs(ratio["median"] - float(goal.group(1))) < 0.005
    return f"{ratio['median']:.{3 if near else 2}f}"


def row(what, told, figure, ratio):
    target = ratio.get("target", "").replace(">=", "≥").replace("<=", "≤")
    verdict = {True: "met", False: "missed", None: ""}[ratio.get("met")]
    beside = told if ratio is figure else f"{number(ratio)} {told}"
    return f"| {what} | {time_of(figure)} | {beside} | {target} | {verdict} |"


def table(runs):
    found = figures_of(runs)
    rows = [row(what, told, *found[name, to]) for what, name, to, told in ROWS
            if (name, to) in found and "median" in found[name, to][0]]
    host = next((run for run in runs if run.get("machine")), runs[0])
    machine = f"{host['cpu']}, {host['cores']} cores, {host['caches']}, Linux {host['kernel']}"
    kernels = re.search(r"kernels by (\w+)", host.get("machine", ""))
    # Of kernels; PyTorch's compilers are not seen to be its own.
    others = max((run["others"] for run in runs if run.get("machine") and run["against"] != "torch"), default=0)
    machine += f"; kernels by {kernels.group(1)}" if kernels else ""
    return "\n".join([f"{machine}; others had at most {100 * others:.0f} % of the cores.", "",
                      "| | median | beside | target | |", "|---|---|---|---|---|"] + rows)


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
        print(f"{into}: {MARKS[0]} and {MARKS[1]} are not there once each", file=sys.stderr)
        return 1
    with open(into, "w") as file:
        file.write(f"{parts[0]}{MARKS[0]}\n\n{made}\n\n{MARKS[1]}{parts[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
