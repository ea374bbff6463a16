#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What nvcc says of the kernels' device side: it compiles for every
# architecture that we name, and the kernels in the list spill no register.  From
# sm_90 on every kernel waits for the kernel before it (simt.h, SIMT_KERNEL()),
# and before that none does.
# Without a toolkit that is a visible skip.
archs="sm_80 sm_90a sm_100"
sources=$CUDA_FILES
if [ "$CUDA_DIR" = no ] || [ -z "$CUDA_DIR" ]; then
	echo "1..0 # SKIP no CUDA toolkit: configure found no nvcc"
	exit 0
fi
n=0
status=0
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
# waits_right PTX ARCH: one wait in each kernel, or none.
waits_right()
{
	waits=$(grep -c 'griddepcontrol\.wait' "$1")
	case $2 in
	sm_80) [ "$waits" -eq 0 ] ;;
	*) [ "$waits" -eq "$(grep -c '\.entry ' "$1")" ] ;;
	esac
}
# check WHAT SOURCE ARCH PTX [OPTION]: compile it; one line of TAP.  A line of the PTX must match the pattern PTX.
check()
{
	what=$1
	source=$2
	arch=$3
	pattern=$4
	shift 4
	n=$((n + 1))
	report=$out/report
	ptx=$out/$(basename "$source" .cu).ptx
	if ! "$CUDA_DIR/bin/nvcc" -std=c++17 -arch="$arch" -cubin -keep -keep-dir "$out" -Xptxas -v -I"$PAGED_SRCDIR" "$@" -o "$out/cubin" \
		"$PAGED_SRCDIR/$source" >"$report" 2>&1; then
		result="not ok"
	elif grep -E 'spill' "$report" | grep -qvE ' 0 bytes spill stores, 0 bytes spill loads'; then
		result="not ok"
	elif ! waits_right "$ptx" "$arch"; then
		echo "griddepcontrol.wait is in other kernels than it should be" >>"$report"
		result="not ok"
	elif ! grep -q "$pattern" "$ptx"; then
		echo "no $pattern in the PTX" >>"$report"
		result="not ok"
	else
		result=ok
	fi
	if [ "$result" != ok ]; then
		sed 's/^/# /' "$report"
		status=1
	fi
	echo "$result $n - $what"
}
for source in $sources; do
	for arch in $archs; do
		check "$source for $arch" "$source" "$arch" .
	done
done
# As before CUDA 12.8, which has no fences of shared memory alone (simt_barrier.h).
check "arrivals in a cluster before CUDA 12.8" tests/gpu/conformance.cu sm_90a 'mbarrier\.arrive\.release\.cluster' \
	-DSIMT_CLUSTER_FENCES=0
echo "1..$n"
exit $status
