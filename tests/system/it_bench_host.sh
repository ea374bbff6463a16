#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# paged-bench's suites for the host at tiny sizes: every case is present and
# finite, or has the reason why it was skipped; values are not checked.
. "$PAGED_SRCDIR/tests/support/tap.sh"
bench=$PAGED_BUILDDIR/bench/paged-bench

# suite, minimum number of cases, further arguments
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
for case in run["cases"]:
    if "skipped" in case:
        print("skipped:", case["name"], case["skipped"])
        continue
    numbers = [case[key] for key in ("median", "p10", "p90")]
    numbers += [ratio["median"] for ratio in case.get("ratios", [])]
    # A ratio has "met" if and only if it has a target, and "met" agrees with the target's bound.
    for ratio in case.get("ratios", []):
        bound = ratio.get("target", "").split(" (AMX")[0]
        if ("target" in ratio) != ("met" in ratio) or (bound == ratio.get("target") and ratio["met"] != (
                ratio["median"] >= float(bound[3:]) if bound[0] == ">" else ratio["median"] <= float(bound[3:]))):
            wrong.append(ratio)
    measured += 1
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        wrong.append(case)
names = [case["name"] for case in run["cases"]]
for case in wrong:
    print(case)
print(measured, "cases,", [key for key in ("cpu", "caches", "memory", "kernel") if not run[key]])
sys.exit(bool(wrong) or measured < int(sys.argv[2]) or len(set(names)) != len(names)
         or not all(run[key] for key in ("cpu", "caches", "memory", "kernel")))
CHECK
}

text()
{
	"$bench" run --quick limits >"$directory/text" && cat "$directory/text" && grep -q 'GFLOP/s' "$directory/text"
}

# Suites of every kind in one document: with rounds of their own, without, and with a daemon.
together()
{
	"$bench" run all --json --quick >"$directory/json" && python3 - "$directory/json" <<'CHECK'
import json, sys

runs = {run["suite"]: run["cases"] for run in json.load(open(sys.argv[1]))["runs"]}
print({suite: len(cases) for suite, cases in runs.items()})
plan = [case for case in runs["control"] if "100 ns" in case.get("target", "")]
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
	! "$bench" run limits --reference torch && ! "$bench" run limits --reference nothing &&
		! "$bench" run decode --only nothing && ! "$bench" run sharing --only nothing --quick && ! "$bench" run decode --isa none &&
		! "$bench" run all --reference nothing && ! "$bench" run limits nothing &&
		! "$bench" run limits --threads 0 && ! "$bench" run limits --samples 5x && ! "$bench" run limits --cpu-time
}

# The table and plot of docs/PERFORMANCE.md, as bench/measure makes them.
measured()
{
	PAGED_BENCH=$bench "$PAGED_SRCDIR/bench/measure" "$directory/measured" --quick >"$directory/text" &&
		cat "$directory/text" && grep -q '^| decode of 4k tokens, in cache |.*| ≥ 0.90 | m' "$directory/text" &&
		grep -q '^| plan of a decode step, per sequence |.*| ≤ 100 ns | m' "$directory/text" &&
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
	! PAGED_TORCH='' PYTHONPATH=$directory "$bench" run decode --quick --reference torch >"$directory/text" 2>&1 &&
		cat "$directory/text" && grep -q 'not this one.*bench/peers/setup DIR' "$directory/text" &&
		! PAGED_TORCH=/nowhere "$bench" run decode --quick --reference torch >"$directory/text" 2>&1 &&
		grep -q 'bench/peers/setup DIR' "$directory/text"
}

no_vllm()
{
	! PAGED_VLLM=/nowhere "$bench" run append --quick --reference vllm >"$directory/text" 2>&1 &&
		cat "$directory/text" && grep -q 'bench/peers/setup DIR vllm, then PAGED_VLLM=DIR' "$directory/text"
}

# Attention of a peer and ours have errors that are neither 0 nor the bound of 2 %.
peer_errors()
{
	python3 - "$directory/json" <<'CHECK'
import json, re, sys

methods = [case["method"] for case in json.load(open(sys.argv[1]))["cases"] if "method" in case]
errors = [float(error) for method in methods for error in re.findall(r"(?:error|ours) ([0-9.]+) %", method)]
print(methods[:3], len(errors))
sys.exit(len(errors) != 2 * len(methods) or not all(0.01 < error < 1 for error in errors))
CHECK
}

# suite, minimum number of cases, reference
quick_peer()
{
	quick "$1" "$2" --reference "$3" && peer_errors
}

try "cases and their targets are listed" listed
try "limits of the machine" quick limits 5
try "limits as text" text
try "decode compared with reading its pages" quick decode 30
try "decode of all shapes" quick decode 140 --long
try "prefill of all shapes" quick prefill 70 --long
try "decode over pages in order" quick decode 12 --reference contiguous
try "one group of it, by another instruction set" quick decode 3 --only skew --isa generic
try "prefill compared with the best matrix unit" quick prefill 20
try "append compared with copying" quick append 17
try "append by CPU time" quick append 17 --cpu-time
try "the prefix cache" quick sharing 30
try "one group of it" quick sharing 2 --only decode
try "hand-over of a sequence" quick sharing 3 --only give
try "trims of pages" quick sharing 6 --only trim
try "decode over trimmed rows" quick decode 2 --only trimmed
try "all suites in one document" together
try "bars of a run" plots
try "the table and plot of docs/PERFORMANCE.md" measured
try "no torch, and what to do about it" no_torch
if "${PAGED_TORCH:-python3}" -c 'import torch' 2>/dev/null; then
	try "decode compared with torch" quick_peer decode 13 torch
	try "prefill compared with torch" quick_peer prefill 18 torch
else
	skip "decode compared with torch" "no torch; bench/peers/setup makes one"
	skip "prefill compared with torch" "no torch; bench/peers/setup makes one"
fi
try "no vllm, and what to do about it" no_vllm
if "${PAGED_VLLM:-python3}" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("vllm") is None)' 2>/dev/null; then
	try "decode compared with vllm" quick_peer decode 19 vllm
	try "prefill compared with vllm" quick_peer prefill 18 vllm
	try "append compared with vllm" quick append 12 --reference vllm
else
	skip "decode compared with vllm" "no vllm; bench/peers/setup makes one"
	skip "prefill compared with vllm" "no vllm; bench/peers/setup makes one"
	skip "append compared with vllm" "no vllm; bench/peers/setup makes one"
fi
try "invalid options are refused" refused
finish
