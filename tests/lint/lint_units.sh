#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The example units expose no more than systemd-analyze security calls 3.0.
if ! command -v systemd-analyze >/dev/null 2>&1 ||
	! systemd-analyze security --help 2>/dev/null | grep -q -e --offline; then
	echo "1..0 # SKIP no systemd-analyze that checks files"
	exit 0
fi
directory=$(mktemp -d "/tmp/${0##*/}.XXXXXX") || exit 99
trap 'rm -rf "$directory"' EXIT
packaging=$PAGED_SRCDIR/packaging
n=0
status=0

# expect UNIT NAME: of a file with configure's variables.
expect()
{
	n=$((n + 1))
	if report=$(systemd-analyze security --offline=true --threshold=30 --no-pager "$1" 2>&1); then
		echo "ok $n - $2"
	else
		printf '%s\n' "$report" | grep -e '✗' -e '→' | sed 's/^/# /'
		echo "not ok $n - $2"
		status=1
	fi
}

for unit in pagedd paged-events; do
	sed 's|@[a-z]*@|/usr|g' "$packaging/$unit.service.in" >"$directory/$unit.service"
	expect "$directory/$unit.service" "$unit.service"
done
mkdir "$directory/pagedd.service.d"
cp "$packaging/pagedd-gpu.conf" "$directory/pagedd.service.d/gpu.conf"
expect "$directory/pagedd.service" "pagedd.service for GPUs"
echo "1..$n"
exit $status
