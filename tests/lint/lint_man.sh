#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every manual page is clean under mandoc's lint.
if ! command -v mandoc >/dev/null 2>&1; then
	echo "1..0 # SKIP mandoc is not installed"
	exit 0
fi
n=0
status=0
for page in "$PAGED_SRCDIR"/man/*.[0-9]; do
	n=$((n + 1))
	if report=$(mandoc -T lint -W warning "$page" 2>&1); then
		echo "ok $n - ${page##*/}"
	else
		printf '%s\n' "$report" | sed 's/^/# /'
		echo "not ok $n - ${page##*/}"
		status=1
	fi
done
echo "1..$n"
exit $status
