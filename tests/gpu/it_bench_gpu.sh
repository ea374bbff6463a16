#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# paged-bench's suite for the GPU: at tiny sizes over the fake CUDA driver, where
# every case must be present and finite, whatever its value; and without a driver.
. "$PAGED_SRCDIR/tests/support/tap.sh"
bench=$PAGED_BUILDDIR/bench/paged-bench
fake_cuda=$PAGED_BUILDDIR/tests/fake-cuda/.libs

# Every case has finite results, and the machine is described.
quick()
{
	LD_LIBRARY_PATH=$fake_cuda PAGED_CACHE_DIR='' PAGED_PAGEDD=$PAGED_BUILDDIR/daemon/pagedd \
		"$bench" run --json --quick gpu >"$directory/json" &&
		python3 - "$directory/json" <<'CHECK'
import json, math, sys

run = json.load(open(sys.argv[1]))
wrong = []
for case in run["cases"]:
    numbers = [case[key] for key in ("median", "p10", "p90") if key in case]
    numbers += [case["ratio"]] if "limit" in case else []
    if len(numbers) < 3 or not all(math.isfinite(number) and number > 0 for number in numbers):
        wrong.append(case)
names = [case["name"] for case in run["cases"]]
for case in wrong:
    print(case)
print(run["machine"], len(names), "cases")
sys.exit(bool(wrong) or len(names) < 60 or len(set(names)) != len(names) or "fake GPU" not in run["machine"])
CHECK
}

one_group()
{
	LD_LIBRARY_PATH=$fake_cuda "$bench" run --quick --only skew gpu >"$directory/text" && cat "$directory/text" &&
		[ "$(grep -c '^decode' "$directory/text")" -eq 2 ] && grep ' x decode 64 x 3056 (target' "$directory/text"
}

# Even if this machine has a GPU, no device is visible.
no_driver()
{
	CUDA_VISIBLE_DEVICES='' "$bench" run gpu >"$directory/text" && cat "$directory/text" &&
		grep '^all  *skipped: no CUDA d' "$directory/text"
}

refused()
{
	! "$bench" run --only x control 2>"$directory/text" && grep 'suite control has no --only' "$directory/text"
}

if [ ! -e "$fake_cuda/libcuda.so.1" ]; then
	skip "every case, at tiny sizes" "the fake CUDA driver is not built"
else
	try "every case, at tiny sizes" quick
	try "one group of them" one_group
fi
try "without a driver it says so" no_driver
try "a suite without groups refuses --only" refused
finish
