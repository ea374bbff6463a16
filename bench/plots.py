#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws bar charts of the output of `paged-bench run SUITE... --json`, as SVG.

  plots.py [--targets] FILE... >plot.svg

There is one chart for each kind of ratio in the files: fraction of a limit
(higher is better), slowdown (lower is better) and speedup (higher is better).
Each case has a bar that starts at 0, a line from the 10th to the 90th percentile
and, if it has a target, a red mark; a bar that misses its target is amber.  A
pale bar behind a fraction of the reading speed shows its upper bound, which the
arithmetic sets.  Colours follow the viewer's light or dark mode.  --targets
omits cases without a target and runs with --reference contiguous.  Uses only
Python's standard library.
"""
import json
import re
import sys
from xml.sax.saxutils import escape

WIDTH, LABEL, NUMBER, BAR, GAP, HEAD, FOOT = 900, 330, 60, 14, 7, 40, 34
KINDS = {
    "fraction": "Fraction of this machine's best speed of reading, copying or computing: higher is better",
    "slowdown": "Time divided by the reference's time: lower is better",
    "speedup": "Speed divided by the reference's speed: higher is better",
}
STYLE = """
text { fill: #1f2328; font-size: 11px } .title { font-size: 14px; font-weight: 600 } .pale { fill: #59636e }
.back { fill: #ffffff } .bound { fill: #dfe5ec } .bar { fill: #2f6f9f } .missed { fill: #c98a1b }
line { stroke: #d1d9e0 } .spread { stroke: #1f2328; stroke-width: 1.5 } .target { stroke: #c6262e; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .pale { fill: #9198a1 } .back { fill: #0d1117 } .bound { fill: #2a313b }
.bar { fill: #4a95d0 } .missed { fill: #b67a12 } line { stroke: #30363d } .spread { stroke: #e6edf3 }
.target { stroke: #ff6b6b } }
"""


def runs_of(paths):
    """The runs in the files; a file has one run, or several in "runs"."""
    for path in paths:
        with open(path) as file:
            document = json.load(file)
        yield from document.get("runs", [document])


def target_of(ratio, amx):
    """The number in ">= 0.85" or "<= 1.15 (AMX 1.7)"; None if the ratio has no target."""
    found = re.match(r"[<>]= ([0-9.]+)(?: \(AMX ([0-9.]+)\))?$", ratio.get("target", ""))
    return float(found.group(2 if amx and found.group(2) else 1)) if found else None


def short(name, reference):
    """The reference's name; if it begins with the case's own name, only the rest of it."""
    rest = reference[len(name):] if reference.startswith(name) else ""
    return rest.lstrip(",: ") if rest[:1] in (":", ",") else reference


def bars(runs):
    """{kind of ratio: [dict]}; a bar's bound is the largest fraction that the roofline allows."""
    found = {}
    for run in runs:
        amx = "amx_bf16" in run["flags"]
        for case in run["cases"]:
            ratios = {short(case["name"], ratio["reference"]): ratio for ratio in case.get("ratios", [])}
            roofline = ratios.pop("roofline", None)
            for reference, ratio in ratios.items():
                bound = ratio["median"] / roofline["median"] if roofline and ratio["kind"] == "fraction" else None
                found.setdefault(ratio["kind"], []).append(
                    {"label": f"{case['name']} / {reference}", "value": ratio["median"], "low": ratio["p10"],
                     "high": ratio["p90"], "target": target_of(ratio, amx), "missed": not ratio.get("met", True),
                     "bound": min(bound, 1) if bound else None})
    return found


def ticks(most):
    """Round numbers from 0 to at least `most`, in at most six equal steps."""
    step = next(m * 10.0 ** e for e in range(-3, 9) for m in (1, 2, 2.5, 5) if most <= 6 * m * 10.0 ** e)
    return [step * i for i in range(int(-(-most // step)) + 1)]


def text(x, y, what, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(what)}</text>'


def line(x1, y1, x2, y2, kind=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def box(x, y, width, height, kind):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" class="{kind}"/>'


def chart(top, kind, rows):
    """The SVG elements of one chart, and its bottom edge."""
    marks = ticks(max([row["value"] for row in rows] + [row["target"] or 0 for row in rows]))
    width = WIDTH - LABEL - NUMBER
    bottom = top + HEAD + len(rows) * (BAR + GAP)

    def at(value):
        return LABEL + width * min(value / marks[-1], 1)

    parts = [text(12, top + 20, KINDS[kind], kind="title")]
    for mark in marks:
        parts += [line(at(mark), top + HEAD - 6, at(mark), bottom),
                  text(at(mark), bottom + 14, f"{mark:g}", "middle", "pale")]
    for i, row in enumerate(rows):
        y = top + HEAD + i * (BAR + GAP)
        parts.append(text(LABEL - 8, y + 11, row["label"], "end"))
        if row["bound"]:
            parts.append(box(LABEL, y, at(row["bound"]) - LABEL, BAR, "bound"))
        parts += [box(LABEL, y, at(row["value"]) - LABEL, BAR, "missed" if row["missed"] else "bar"),
                  line(at(row["low"]), y + BAR / 2, at(row["high"]), y + BAR / 2, "spread"),
                  text(WIDTH - NUMBER + 14, y + 11, f"{row['value']:.2f}")]
        if row["target"]:
            parts.append(line(at(row["target"]), y - 2, at(row["target"]), y + BAR + 2, "target"))
    return parts, bottom + FOOT


def main():
    targets = sys.argv[1:2] == ["--targets"]
    paths = sys.argv[2:] if targets else sys.argv[1:]
    if not paths or paths[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    runs = list(runs_of(paths))
    found = bars(run for run in runs if not (targets and run["reference"] == "contiguous"))
    for kind in found if targets else ():
        found[kind] = [row for row in found[kind] if row["target"]]
    if not found:
        print("no case has a ratio", file=sys.stderr)
        return 1
    suites = " ".join(dict.fromkeys(run["suite"] for run in runs if any("ratios" in row for row in run["cases"])))
    machine = f"{runs[0]['cpu']}, {runs[0]['cores']} cores, {runs[0]['caches']}, Linux {runs[0]['kernel']}"
    parts = [text(12, 24, f"paged-bench run {suites}", kind="title"),
             text(12, 42, f"{machine}; red: target, amber: missed, pale: bound by arithmetic", kind="pale")]
    y = 54
    for kind in KINDS:
        if found.get(kind):
            elements, y = chart(y, kind, found[kind])
            parts += elements
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
          'font-family="DejaVu Sans, Helvetica, sans-serif">')
    print(f"<style>{STYLE}</style>")
    print(f'<rect width="{WIDTH}" height="{y}" rx="6" class="back"/>')
    print("\n".join(parts))
    print("</svg>")
    return 0


if __name__ == "__main__":
    sys.exit(main())
