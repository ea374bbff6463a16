#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bars of `paged-bench run SUITE --json`, as SVG.

  plots.py FILE... >plot.svg

One bar for each figure that has a ratio to another one, from 0 on, with the
10th to 90th percentile as a line and the target as a red mark (a bar that misses
it is amber), and a chart for each
sense of ratios that there is: the share of what can be reached (more is
better), times as long (less is better), times as fast (more is better).
Needs nothing
but Python's standard library.
"""
import json
import re
import sys
from xml.sax.saxutils import escape

WIDTH, LABEL, NUMBER, BAR, GAP, HEAD, FOOT = 900, 330, 60, 16, 8, 34, 26
SENSES = {
    "share": "of what this machine reads, copies or computes at best: more is better",
    "times": "times as long as its counterpart: less is better",
    "faster": "times as fast as its counterpart: more is better",
}
INK, PALE, FILL, MISSED, MARK = "#24292f", "#d0d7de", "#2f6f9f", "#c08a2e", "#b3261e"


def target_of(ratio):
    """The number in ">= 0.85" or "<= 1.15 (AMX 1.7)"; None: there is none."""
    found = re.match(r"([<>]=) ([0-9.]+)", ratio.get("target", ""))
    return (found.group(1), float(found.group(2))) if found else None


def bars(run):
    """{sense: [(label, median, low, high, target)]} of a document."""
    found = {}
    for figure in run["figures"]:
        for ratio in figure.get("ratios", []):
            to = ratio["to"].replace(figure["name"], "").lstrip(",: ")
            label = f"{figure['name']} / {to}"
            found.setdefault(ratio["sense"], []).append(
                (label, ratio["median"], ratio["p10"], ratio["p90"], target_of(ratio)))
    return found


def missed(value, target):
    return target is not None and (value < target[1] if target[0] == ">=" else value > target[1])


def ticks(most):
    """Round numbers from 0 to at least `most`, about five of them."""
    step = 10.0 ** -3
    while most / step > 6:
        step *= 2.5 if f"{step:e}"[0] == "2" else 2
    count = int(-(-most // step))
    return [step * i for i in range(count + 1)]


def text(x, y, what, anchor="start", size=12, colour=INK):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(what)}</text>'


def line(x1, y1, x2, y2, colour, width=1):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def chart(top, sense, rows):
    """The parts of one chart, and where it ends."""
    marks = ticks(max([high for _, _, _, high, _ in rows] + [target[1] for *_, target in rows if target]))
    width = WIDTH - LABEL - NUMBER
    bottom = top + HEAD + len(rows) * (BAR + GAP)

    def at(value):
        return LABEL + width * value / marks[-1]

    parts = [text(8, top + 18, SENSES[sense], size=13)]
    for mark in marks:
        parts += [line(at(mark), top + HEAD - 6, at(mark), bottom, PALE),
                  text(at(mark), bottom + 14, f"{mark:g}", "middle", 11)]
    for i, (label, value, low, high, target) in enumerate(rows):
        y = top + HEAD + i * (BAR + GAP)
        parts += [text(LABEL - 8, y + 12, label, "end", 11),
                  f'<rect x="{LABEL}" y="{y}" width="{at(value) - LABEL:.1f}" height="{BAR}" '
                  f'fill="{MISSED if missed(value, target) else FILL}"/>',
                  line(at(low), y + BAR / 2, at(high), y + BAR / 2, INK, 1.5),
                  text(WIDTH - NUMBER + 10, y + 12, f"{value:.2f}", size=11)]
        if target:
            parts.append(line(at(target[1]), y - 3, at(target[1]), y + BAR + 3, MARK, 2))
    return parts, bottom + FOOT


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    parts, y = [], 10
    for path in sys.argv[1:]:
        with open(path) as file:
            run = json.load(file)
        found = bars(run)
        if not found:
            print(f"{path}: no figure has a ratio", file=sys.stderr)
            return 1
        parts += [text(8, y + 16, f"paged-bench run {run['suite']} --against {run['against']}", size=15),
                  text(8, y + 34, f"{run['cpu']}, {run['cores']} cores, {run['caches']}, Linux {run['kernel']}; "
                       "red: the target, amber: missed", size=11)]
        y += 42
        for sense, rows in found.items():
            more, y = chart(y, sense, rows)
            parts += more
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
          'font-family="DejaVu Sans, Helvetica, sans-serif">')
    print(f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>')
    print("\n".join(parts))
    print("</svg>")
    return 0


if __name__ == "__main__":
    sys.exit(main())
