#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# paged-bench's suite for the GPU: at toy sizes over the fake CUDA driver, where
# every figure must be present and finite, whatever its value; and without a driver.
. "$PAGED_SRCDIR/tests/support/tap.sh"
bench=$PAGED_BUILDDIR/bench/paged-bench
fake_cuda=$PAGED_BUILDDIR/tests/fake-cuda/.libs

# What was measured of each figure, and the machine.
quick()
{
	LD_LIBRARY_PATH=$fake_cuda PAGED_CACHE_DIR='' PAGED_PAGEDD=$PAGED_BUILDDIR/daemon/pagedd \
		"$bench" run --json --quick gpu >"$directory/json" &&
		python3 - "$directory/json" <<'CHECK'
import json, math, sys

run = json.load(open(sys.argv[1]))
wrong = []
for figure in run["figures"]:
    numbers = [figure[key] for key in ("median", "p10", "p90") if key in figure]
    numbers += [figure["ratio"]] if "limit" in figure else []
    if len(numbers) < 3 or not all(math.isfinite(number) and number > 0 for number in numbers):
        wrong.append(figure)
names = [figure["name"] for figure in run["figures"]]
for figure in wrong:
    print(figure)
print(run["machine"], len(names), "figures")
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
	skip "every figure, at toy sizes" "the fake CUDA driver is not built"
else
	try "every figure, at toy sizes" quick
	try "one group of them" one_group
fi
try "without a driver it says so" no_driver
try "a suite that is not made of groups takes no --only" refused
finish
