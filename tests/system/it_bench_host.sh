#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# paged-bench's suites for the host at toy sizes: every figure is present and
# finite, or has a reason why not; values are not checked.
. "$PAGED_SRCDIR/tests/support/tap.sh"
bench=$PAGED_BUILDDIR/bench/paged-bench

# suite, minimum number of figures, further arguments
quick()
{
	suite=$1
	least=$2
	shift 2
	"$bench" run "$suite" --json --quick "$@" >"$directory/json" &&
		python3 -m json.tool "$directory/json" >/dev/null && python3 - "$directory/json" "$least" <<'CHECK'
import json, math, sys

run = json.load(open(sys.argv[1]))
wrong, measured = [], 0
for figure in run["figures"]:
    if "skipped" in figure:
        print("skipped:", figure["name"], figure["skipped"])
        continue
    numbers = [figure[key] for key in ("median", "p10", "p90")]
    numbers += [ratio["median"] for ratio in figure.get("ratios", [])]
    # Whoever has a target is told whether it is met, by the bound that it says.
    for ratio in figure.get("ratios", []):
        bound = ratio.get("target", "").split(" (AMX")[0]
        if ("target" in ratio) != ("met" in ratio) or (bound == ratio.get("target") and ratio["met"] != (
                ratio["median"] >= float(bound[3:]) if bound[0] == ">" else ratio["median"] <= float(bound[3:]))):
            wrong.append(ratio)
    measured += 1
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        wrong.append(figure)
names = [figure["name"] for figure in run["figures"]]
for figure in wrong:
    print(figure)
print(measured, "figures,", [key for key in ("cpu", "caches", "memory", "kernel") if not run[key]])
sys.exit(bool(wrong) or measured < int(sys.argv[2]) or len(set(names)) != len(names)
         or not all(run[key] for key in ("cpu", "caches", "memory", "kernel")))
CHECK
}

text()
{
	"$bench" run --quick limits >"$directory/text" && cat "$directory/text" && grep -q 'GFLOP/s' "$directory/text"
}

# Suites of every kind in one document: those with rounds of their own, those without, those with a daemon.
together()
{
	"$bench" run all --json --quick >"$directory/json" && python3 - "$directory/json" <<'CHECK'
import json, sys

runs = {run["suite"]: run["figures"] for run in json.load(open(sys.argv[1]))["runs"]}
print({suite: len(figures) for suite, figures in runs.items()})
plan = [figure for figure in runs["control"] if "100 ns" in figure.get("target", "")]
sys.exit(not {"append", "control", "decode", "limits", "prefill", "scale"} <= set(runs) or "gpu" in runs
         or len(plan) != 1 or plan[0]["met"] != (plan[0]["median"] <= 100))
CHECK
}

listed()
{
	"$bench" list >"$directory/text" && cat "$directory/text" && grep -q '^    decode 1 x 4k  *limit >= 0.90' \
		"$directory/text"
}

refused()
{
	! "$bench" run limits --against torch && ! "$bench" run limits --against nothing &&
		! "$bench" run decode --only nothing && ! "$bench" run decode --isa none &&
		! "$bench" run all --against nothing && ! "$bench" run limits nothing &&
		! "$bench" run limits --threads 0 && ! "$bench" run limits --samples 5x
}

# All of it, as docs/PERFORMANCE.md shows it: the table of what has a target, and the plot.
measured()
{
	PAGED_BENCH=$bench "$PAGED_SRCDIR/bench/measure" "$directory/measured" --quick >"$directory/text" &&
		cat "$directory/text" && grep -q '^| decode of 4k tokens, in cache |.*| ≥ 0.90 | m' "$directory/text" &&
		grep -q '^| plan of a decode step, a sequence |.*| ≤ 100 ns | m' "$directory/text" &&
		grep -q '^| pages of 1, permuted |' "$directory/text" &&
		python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' \
			"$directory/measured/figures.svg" &&
		printf 'a\n<!-- figures -->\nold\n<!-- end of figures -->\nz\n' >"$directory/page" &&
		python3 -B "$PAGED_SRCDIR/bench/table.py" --into "$directory/page" "$directory"/measured/*.json &&
		grep -q '^a$' "$directory/page" && ! grep -q old "$directory/page" &&
		grep -q '^| append of 5000 tokens |' "$directory/page" && grep -q '^z$' "$directory/page"
}

plots()
{
	quick append 17 && python3 -B "$PAGED_SRCDIR/bench/plots.py" "$directory/json" >"$directory/svg" &&
		python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$directory/svg" &&
		grep -q 'append 5000 / copied' "$directory/svg"
}

# A torch module that cannot be imported, even if this machine has PyTorch.
no_torch()
{
	mkdir "$directory/torch" && echo 'raise ImportError("not this one")' >"$directory/torch/__init__.py" || return 1
	! PAGED_TORCH='' PYTHONPATH=$directory "$bench" run decode --quick --against torch >"$directory/text" 2>&1 &&
		cat "$directory/text" && grep -q 'not this one.*bench/peers/setup DIR' "$directory/text" &&
		! PAGED_TORCH=/nowhere "$bench" run decode --quick --against torch >"$directory/text" 2>&1 &&
		grep -q 'bench/peers/setup DIR' "$directory/text"
}

try "figures and their targets are listed" listed
try "limits of the machine" quick limits 5
try "limits as text" text
try "decode beside reading its pages" quick decode 30
try "decode of all shapes" quick decode 140 --long
try "prefill of all shapes" quick prefill 70 --long
try "decode over pages in their order" quick decode 12 --against contiguous
try "one group of it, by another instruction set" quick decode 3 --only skew --isa generic
try "prefill beside the best matrix unit" quick prefill 20
try "append beside copying" quick append 17
try "all suites in one document" together
try "bars of a run" plots
try "all that docs/PERFORMANCE.md shows" measured
try "no torch, and what to do about it" no_torch
if "${PAGED_TORCH:-python3}" -c 'import torch' 2>/dev/null; then
	try "decode beside torch" quick decode 13 --against torch
	try "prefill beside torch" quick prefill 18 --against torch
else
	skip "decode beside torch" "no torch; bench/peers/setup makes one"
	skip "prefill beside torch" "no torch; bench/peers/setup makes one"
fi
try "what makes no sense is refused" refused
finish
