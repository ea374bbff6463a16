#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# C sources are as clang-format 14 has them.  To change a file so: clang-format-14 -i FILE.
#
# Device code is left as its authors have it: clang-format 14 indents a loop after the macros that unroll it, inside
# another loop, as if it were outside.
. "$PAGED_SRCDIR/tests/lint/tree.sh"
command -v clang-format-14 >/dev/null 2>&1 || leave "no clang-format-14: apt-get install clang-format-14"
clean clang-format clang-format-14 --dry-run --Werror <<END
$(tracked '*.[ch]' '*.cc' ':!kernels/cuda/attention' ':!kernels/cuda/device' ':!kernels/cuda/simt')
END
finish
