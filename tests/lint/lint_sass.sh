#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels' machine code within the limits of sass_limits.txt: registers,
# spills and instructions per tile.  To change a limit, change its row there.
# Without the toolkit of that version or a disassembler this is a visible skip.
if [ "$CUDA_DIR" = no ] || [ -z "$CUDA_DIR" ]; then
	echo "1..0 # SKIP no CUDA toolkit: configure found no nvcc"
	exit 0
fi
if ! python3 -c '' 2>/dev/null; then
	echo "1..0 # SKIP tools/sass-report needs python3"
	exit 0
fi
exec python3 "$PAGED_SRCDIR/tools/sass-report" --nvcc "$CUDA_DIR/bin/nvcc" --limits "$PAGED_SRCDIR/tests/lint/sass_limits.txt"
