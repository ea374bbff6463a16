#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ptxas's report about the built-in kernels: none spills registers.
# Skipped for a build without --with-cuda, which has no built-in kernels.
if [ "$CUDA_IMAGES" != yes ]; then
	echo "1..0 # SKIP no kernels are built in: configure --with-cuda"
	exit 0
fi
n=0
status=0
for report in kernels/cuda/*.sm_*.report; do
	n=$((n + 1))
	kernels=$(grep -c 'Compiling entry function' "$report")
	clean=$(grep -c ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' "$report")
	most=$(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$report" | sort -n | tail -1)
	if [ "$kernels" -gt 0 ] && [ "$clean" = "$kernels" ]; then
		echo "ok $n - ${report%.report}: $kernels kernels, at most $most registers"
	else
		sed 's/^/# /' "$report"
		echo "not ok $n - ${report%.report}: $clean of $kernels kernels without a stack or spills"
		status=1
	fi
done
echo "1..$n"
exit $status
