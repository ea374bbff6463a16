#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/conformance over the driver's stand-in: its records replay, and one wrong bit in each launch is found.
if [ ! -e "$PAGED_BUILDDIR/tests/cuda-stand-in/.libs/libcuda.so.1" ]; then
	echo "1..0 # SKIP the CUDA driver's stand-in is not built"
	exit 0
fi
directory=$(mktemp -d /tmp/it-conformance.XXXXXX) || exit 99
trap 'rm -rf "$directory"' EXIT
program=$PAGED_BUILDDIR/tests/gpu/conformance
n=0
status=0

result()
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
	else
		sed 's/^/# /' "$directory/output"
		echo "not ok $n - $2"
		status=1
	fi
}

PAGED_CONFORMANCE_RECORD=$directory/record "$program" >"$directory/output" 2>&1
result $? "records are written"
PAGED_CONFORMANCE_REPLAY=$directory/record "$program" >"$directory/output" 2>&1
result $? "and replayed without a driver"

# The last word of each launch's results, but for its highest bits.
awk '/^launch/ && seen { printf "%s\n", last; last = "" }
	/^launch/ { if (last != "") print last; print; last = ""; next }
	{ if (last != "") print last; last = $0 }
	END { print last }' "$directory/record" >"$directory/same"
cmp -s "$directory/record" "$directory/same"
result $? "a record is lines of words"
awk 'function wrong(line) { sub(/[0-9a-f]+$/, "7", line); return line }
	/^launch/ { if (last != "") print wrong(last); print; last = ""; next }
	{ if (last != "") print last; last = $0 }
	END { print wrong(last) }' "$directory/record" >"$directory/wrong"
PAGED_CONFORMANCE_REPLAY=$directory/wrong "$program" >"$directory/output" 2>&1
[ "$(grep -c '^not ok' "$directory/output")" -eq "$(grep -c '^launch' "$directory/record")" ]
result $? "a wrong word is found in each"
echo "1..$n"
exit $status
