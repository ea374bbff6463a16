#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# codespell finds no misspelt word, with the exceptions of .codespellrc.
. "$PAGED_SRCDIR/tests/lint/tree.sh"
command -v codespell >/dev/null 2>&1 || leave "no codespell: apt-get install codespell"
clean codespell codespell <<END
$(tracked . ':!tests/golden/*/*' ':!*.svg')
END
finish
