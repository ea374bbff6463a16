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

# Each case is a line; peer_table.py reads them, and ignores the end of a run that was killed while it printed one.
lines()
{
	LD_LIBRARY_PATH=$fake_cuda "$bench" run --quick --lines --group skew gpu >"$directory/lines" &&
		cat "$directory/lines" && [ "$(wc -l <"$directory/lines")" -eq 3 ] &&
		head -n 1 "$directory/lines" | grep '"machine":"fake GPU' &&
		sed '$s/,.*//' "$directory/lines" >"$directory/killed" &&
		python3 "$PAGED_SRCDIR/bench/peers/peer_table.py" "$directory/killed" >"$directory/table" &&
		cat "$directory/table" && grep '^| decode 64 x 3056 | [0-9.]* ' "$directory/table" &&
		[ "$(wc -l <"$directory/table")" -eq 3 ]
}

# A group that takes too long is a line, too.
group_limit()
{
	LD_LIBRARY_PATH=$fake_cuda "$bench" run --lines --group-limit 1 --group "decode 1 x 32k" gpu >"$directory/lines" &&
		cat "$directory/lines" && grep '"name":"decode 1 x 32k",.*"skipped":"not done within 1 s"' "$directory/lines"
}

# Even if this machine has a GPU, no device is visible.
no_driver()
{
	CUDA_VISIBLE_DEVICES='' "$bench" run gpu >"$directory/text" && cat "$directory/text" &&
		grep '^all  *skipped: no CUDA d' "$directory/text"
}

refused()
{
	! "$bench" run --only x control 2>"$directory/text" && grep 'suite control has no --only and no --group' "$directory/text"
}

if [ ! -e "$fake_cuda/libcuda.so.1" ]; then
	skip "every case, at tiny sizes" "the fake CUDA driver is not built"
else
	try "every case, at tiny sizes" quick
	try "one group of them" one_group
	try "a line for each case" lines
	try "a group has a time limit" group_limit
fi
try "without a driver it says so" no_driver
try "a suite without groups refuses --only" refused
finish
