#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Python programs are clean under ruff, with the rules of ruff.toml.
. "$PAGED_SRCDIR/tests/lint/tree.sh"
ruff=$(in_environment ruff)
[ -n "$ruff" ] || leave "no ruff: tools/environment python/tests/requirements-lint.txt"
clean ruff "$ruff" check --no-cache --output-format concise <<END
$(tracked '*.py' '*.pyi' && scripts python3)
END
finish
