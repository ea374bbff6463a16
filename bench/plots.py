#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bars of `paged-bench run SUITE... --json`, as SVG.

  plots.py [--targets] FILE... >plot.svg

A chart for each sense of ratios that the files have: the share of what can be
reached (more is better), times as long (less is better), times as fast (more
is better).  A bar for each figure, from 0 on, with the 10th to 90th percentile
as a line and the target as a red mark; amber bars miss it.  Behind a share of
reading stands, pale, what the arithmetic leaves of it to anybody.  Light and
dark follow the reader's choice.  --targets leaves out what has none, and pages
in their order.  Needs nothing but Python's standard library.
"""
import json
import re
import sys
from xml.sax.saxutils import escape

WIDTH, LABEL, NUMBER, BAR, GAP, HEAD, FOOT = 900, 330, 60, 14, 7, 40, 34
SENSES = {
    "share": "Share of what this machine reads, copies or computes at best: more is better",
    "times": "Times as long as its counterpart: less is better",
    "faster": "Times as fast as its counterpart: more is better",
}
STYLE = """
text { fill: #1f2328; font-size: 11px } .title { font-size: 14px; font-weight: 600 } .pale { fill: #59636e }
.back { fill: #ffffff } .roof { fill: #dfe5ec } .bar { fill: #2f6f9f } .missed { fill: #c98a1b }
line { stroke: #d1d9e0 } .spread { stroke: #1f2328; stroke-width: 1.5 } .target { stroke: #c6262e; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .pale { fill: #9198a1 } .back { fill: #0d1117 } .roof { fill: #2a313b }
.bar { fill: #4a95d0 } .missed { fill: #b67a12 } line { stroke: #30363d } .spread { stroke: #e6edf3 }
.target { stroke: #ff6b6b } }
"""


def runs_of(paths):
    """Documents of one run, or of several."""
    for path in paths:
        with open(path) as file:
            document = json.load(file)
        yield from document.get("runs", [document])


def goal_of(ratio, tiles):
    """The number in ">= 0.85" or "<= 1.15 (AMX 1.7)"; None: there is none."""
    found = re.match(r"[<>]= ([0-9.]+)(?: \(AMX ([0-9.]+)\))?$", ratio.get("target", ""))
    return float(found.group(2 if tiles and found.group(2) else 1)) if found else None


def short(name, to):
    """What is named after the figure that it stands beside, without its name."""
    return to[len(name):].lstrip(",: ") if to.startswith(name) and to[len(name):len(name) + 1] in (":", ",") else to


def bars(runs):
    """{sense: [dict]}; what is left of a share by arithmetic is its roof."""
    found = {}
    for run in runs:
        tiles = "amx_bf16" in run["flags"]
        for figure in run["figures"]:
            ratios = {short(figure["name"], ratio["to"]): ratio for ratio in figure.get("ratios", [])}
            roofline = ratios.pop("roofline", None)
            for to, ratio in ratios.items():
                roof = ratio["median"] / roofline["median"] if roofline and ratio["sense"] == "share" else None
                found.setdefault(ratio["sense"], []).append(
                    {"label": f"{figure['name']} / {to}", "value": ratio["median"], "low": ratio["p10"],
                     "high": ratio["p90"], "goal": goal_of(ratio, tiles), "missed": not ratio.get("met", True),
                     "roof": min(roof, 1) if roof else None})
    return found


def ticks(most):
    """Round numbers from 0 to at least `most`, at most six steps of them."""
    step = next(m * 10.0 ** e for e in range(-3, 9) for m in (1, 2, 2.5, 5) if most <= 6 * m * 10.0 ** e)
    return [step * i for i in range(int(-(-most // step)) + 1)]


def text(x, y, what, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(what)}</text>'


def line(x1, y1, x2, y2, kind=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def box(x, y, width, height, kind):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" class="{kind}"/>'


def chart(top, sense, rows):
    """The parts of one chart, and where it ends."""
    marks = ticks(max([row["value"] for row in rows] + [row["goal"] or 0 for row in rows]))
    width = WIDTH - LABEL - NUMBER
    bottom = top + HEAD + len(rows) * (BAR + GAP)

    def at(value):
        return LABEL + width * min(value / marks[-1], 1)

    parts = [text(12, top + 20, SENSES[sense], kind="title")]
    for mark in marks:
        parts += [line(at(mark), top + HEAD - 6, at(mark), bottom),
                  text(at(mark), bottom + 14, f"{mark:g}", "middle", "pale")]
    for i, row in enumerate(rows):
        y = top + HEAD + i * (BAR + GAP)
        parts.append(text(LABEL - 8, y + 11, row["label"], "end"))
        if row["roof"]:
            parts.append(box(LABEL, y, at(row["roof"]) - LABEL, BAR, "roof"))
        parts += [box(LABEL, y, at(row["value"]) - LABEL, BAR, "missed" if row["missed"] else "bar"),
                  line(at(row["low"]), y + BAR / 2, at(row["high"]), y + BAR / 2, "spread"),
                  text(WIDTH - NUMBER + 14, y + 11, f"{row['value']:.2f}")]
        if row["goal"]:
            parts.append(line(at(row["goal"]), y - 2, at(row["goal"]), y + BAR + 2, "target"))
    return parts, bottom + FOOT


def main():
    targets = sys.argv[1:2] == ["--targets"]
    paths = sys.argv[2:] if targets else sys.argv[1:]
    if not paths or paths[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    runs = list(runs_of(paths))
    found = bars(run for run in runs if not (targets and run["against"] == "contiguous"))
    for sense in found if targets else ():
        found[sense] = [row for row in found[sense] if row["goal"]]
    if not found:
        print("no figure has a ratio", file=sys.stderr)
        return 1
    suites = " ".join(dict.fromkeys(run["suite"] for run in runs if any("ratios" in row for row in run["figures"])))
    machine = f"{runs[0]['cpu']}, {runs[0]['cores']} cores, {runs[0]['caches']}, Linux {runs[0]['kernel']}"
    parts = [text(12, 24, f"paged-bench run {suites}", kind="title"),
             text(12, 42, f"{machine}; red: the target, amber: missed, pale: what arithmetic leaves", kind="pale")]
    y = 54
    for sense in SENSES:
        if found.get(sense):
            more, y = chart(y, sense, found[sense])
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
