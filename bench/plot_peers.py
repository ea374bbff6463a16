#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plots of our speed as a multiple of a peer's, as SVG: of README and of docs/PERFORMANCE.md.

  plot_peers.py bench/torch_ratios.json >docs/torch.svg
  plot_peers.py bench/vllm_ratios.json >docs/vllm.svg

The file has ratios that were recorded in NOTES.md: `ratio` is the median of a
run, `low` and `high` are the medians of all runs recorded for that figure, and
`reading` is the same ratio for a program that only reads the keys and values.
A bar for each figure, from 0 on; a line at 1 is the peer.  Needs nothing but
Python's standard library.
"""
import json
import sys

from plots import STYLE, box, line, text, ticks

WIDTH, LABEL, NUMBERS, BAR, GAP, HEAD = 820, 180, 190, 16, 8, 26


def chart(top, machine, most):
    """The parts of one machine's bars, and where they end."""
    rows = machine["figures"]
    bottom = top + HEAD + len(rows) * (BAR + GAP)

    def at(value):
        return LABEL + (WIDTH - LABEL - NUMBERS) * value / most

    parts = [text(12, top + 12, machine["name"], kind="pale")]
    for mark in ticks(most):
        parts += [line(at(mark), top + HEAD - 6, at(mark), bottom),
                  text(at(mark), bottom + 13, f"{mark:g}", "middle", "pale")]
    for i, row in enumerate(rows):
        y = top + HEAD + i * (BAR + GAP)
        parts += [text(LABEL - 8, y + 12, row["label"], "end"),
                  box(LABEL, y, at(row["ratio"]) - LABEL, BAR, "bar"),
                  text(WIDTH - NUMBERS + 14, y + 12, f"{row['ratio']:.1f} ×")]
        if "low" in row:
            parts.append(line(at(row["low"]), y + BAR / 2, at(row["high"]), y + BAR / 2, "spread"))
        if "reading" in row:
            parts.append(text(WIDTH - 12, y + 12, f"reading alone: {row['reading']:.3g} ×", "end", "pale"))
    parts.append(line(at(1), top + HEAD - 6, at(1), bottom, "target"))
    return parts, bottom + 26


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(sys.argv[1]) as file:
        plot = json.load(file)
    most = ticks(max(row.get("high", row["ratio"]) for machine in plot["machines"] for row in machine["figures"]))[-1]
    parts = [text(12, 24, plot["title"], kind="title"),
             text(12, 42, f"{plot['note']}; red: {plot['peer']}", kind="pale")]
    y = 56
    for machine in plot["machines"]:
        more, y = chart(y, machine, most)
        parts += more
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
          'font-family="DejaVu Sans, Helvetica, sans-serif">')
    print(f"<style>{STYLE}</style>")
    print(f'<rect width="{WIDTH}" height="{y}" rx="6" class="back"/>')
    print("\n".join(parts))
    print("</svg>")
    return 0


if __name__ == "__main__":
    sys.exit(main())
