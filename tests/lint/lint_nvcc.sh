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
for source in $sources; do
	for arch in $archs; do
		n=$((n + 1))
		report=$out/report
		if ! "$CUDA_DIR/bin/nvcc" -std=c++17 -arch="$arch" -cubin -keep -keep-dir "$out" -Xptxas -v -I"$PAGED_SRCDIR" -o "$out/cubin" \
			"$PAGED_SRCDIR/$source" >"$report" 2>&1; then
			result="not ok"
		elif grep -E 'spill' "$report" | grep -qvE ' 0 bytes spill stores, 0 bytes spill loads'; then
			result="not ok"
		elif ! waits_right "$out/$(basename "$source" .cu).ptx" "$arch"; then
			echo "griddepcontrol.wait is in other kernels than it should be" >>"$report"
			result="not ok"
		else
			result=ok
		fi
		if [ "$result" != ok ]; then
			sed 's/^/# /' "$report"
			status=1
		fi
		echo "$result $n - $source for $arch"
	done
done
echo "1..$n"
exit $status
