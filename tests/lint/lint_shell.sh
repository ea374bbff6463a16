#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shell scripts are clean under shellcheck, with the rules of .shellcheckrc.
. "$PAGED_SRCDIR/tests/lint/tree.sh"
command -v shellcheck >/dev/null 2>&1 || leave "no shellcheck: apt-get install shellcheck"
clean shellcheck shellcheck <<END
$({ scripts '(ba|da)?sh' && tracked '*.sh'; } | sort -u)
END
finish
