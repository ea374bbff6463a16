#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mypy --strict passes: python/tests/test_typing.py, where the environment of its requirements is.  `make check` has no such
# environment, and tools/check --python runs the test itself.
. "$PAGED_SRCDIR/tests/lint/tree.sh"
[ -n "$(in_environment mypy)" ] || leave "no mypy: tools/environment python/tests/requirements-lint.txt"
for python in environments/requirements-[0-9a-f]*/bin/python; do
	[ -x "$python" ] || leave "no PyTorch: tools/environment python/tests/requirements.txt"
done
export PYTHONPATH="$PAGED_BUILDDIR/python:$PAGED_SRCDIR/python/tests" PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -p no:cacheprovider -p no:terminal -p tap --rootdir python/tests python/tests/test_typing.py
