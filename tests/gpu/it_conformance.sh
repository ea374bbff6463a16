#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/conformance over the fake CUDA driver: its records replay, and one wrong bit in each launch is detected.
if [ ! -e "$PAGED_BUILDDIR/tests/fake-cuda/.libs/libcuda.so.1" ]; then
	echo "1..0 # SKIP the fake CUDA driver is not built"
	exit 0
fi
. "$PAGED_SRCDIR/tests/support/tap.sh"
program=$PAGED_BUILDDIR/tests/gpu/conformance

PAGED_CONFORMANCE_RECORD=$directory/record "$program" >"$directory/output" 2>&1
result $? "records are written"
PAGED_CONFORMANCE_REPLAY=$directory/record "$program" >"$directory/output" 2>&1
result $? "and replayed without a driver"

# The last word of each launch's results, without its highest bits.
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
# tools/gpu-run omits steps if it finds such a line.
grep -qE ': mma_bf16_layout: 1 of [0-9]+ words differ$' "$directory/output"
result $? "and its case is named"

# The cases of what is off by default are the last.
"$program" --list >"$directory/output"
tail -n 5 "$directory/output" | tr '\n' ' ' | grep -qx 'dependent_launches bulk_copies wgmma_bf16 wgmma_f16 clusters '
result $? "what may hang runs last"
PAGED_TEST_LIMIT=1 PAGED_FAKE_CUDA_FAIL=cuLaunchKernel=hang "$program" warp >"$directory/output"
[ $? -eq 1 ] && grep -qx '# warp: no end after 1 s' "$directory/output" && grep -qx 'not ok 1 - warp' "$directory/output"
result $? "a kernel that hangs ends its test"
finish
