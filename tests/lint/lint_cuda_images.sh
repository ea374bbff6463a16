#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The built-in kernels: images.c includes what the build compiles, and ptxas's reports say that none spills registers.
# A build without --with-cuda compiles none and has no reports.
n=1
status=0
compiled=$(sed -n '/^GPU_S[OM][A-Z0-9_]*_FILES/,/[^\\]$/s,.*%D%/\(.*\)[.]cu.*,\1,p' "$PAGED_SRCDIR/kernels/cuda/local.mk" | sort)
included=$(sed -n '/^#define [A-Z0-9_]*SOURCES(S)/,/[^\\]$/p' "$PAGED_SRCDIR/kernels/cuda/host/images.c" | grep -o 'S("[a-z/]*", [a-z_]*)' |
	sed 's/S("\(.*\)", \(.*\))/\1\2/' | sort)
if [ -n "$compiled" ] && [ "$compiled" = "$included" ]; then
	echo "ok 1 - images.c includes each kernel that is compiled"
else
	echo "$compiled" | sed 's/^/# compiled: /'
	echo "$included" | sed 's/^/# included: /'
	echo "not ok 1 - images.c includes each kernel that is compiled"
	status=1
fi
if [ "$CUDA_IMAGES" != yes ]; then
	echo "ok 2 - no spills # SKIP no kernels are built in: configure --with-cuda"
	echo "1..2"
	exit $status
fi
for report in $(find kernels/cuda -name "*.sm_*.report" | sort); do
	n=$((n + 1))
	kernels=$(grep -c 'Compiling entry function' "$report")
	# Functions that are called have a line of their own.
	functions=$(grep -c 'bytes stack frame' "$report")
	clean=$(grep -c ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' "$report")
	most=$(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$report" | sort -n | tail -1)
	if [ "$kernels" -gt 0 ] && [ "$clean" = "$functions" ]; then
		echo "ok $n - ${report%.report}: $kernels kernels, at most $most registers"
	else
		sed 's/^/# /' "$report"
		echo "not ok $n - ${report%.report}: $clean of $functions functions without a stack or spills"
		status=1
	fi
done
echo "1..$n"
exit $status
