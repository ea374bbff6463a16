# SPDX-License-Identifier: Apache-2.0
# tap.sh - what scripts that are tests source: a directory that goes with them, and lines of TAP
#
# Output of a test's command is expected in $directory/output, and shown if it fails.

# shellcheck shell=sh
# Clients wait long on a busy machine.
export PAGED_TIMEOUT_MS="${PAGED_TIMEOUT_MS-300000}"
directory=$(mktemp -d "/tmp/${0##*/}.XXXXXX") || exit 99
trap 'rm -rf "$directory"' EXIT
n=0
status=0

# result RC NAME: of what was run before.
result()
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
	else
		sed 's/^/# /' "$directory/output"
		echo "not ok $n - $2"
		status=1
	fi
}

# try NAME COMMAND...
try()
{
	name=$1
	shift
	"$@" >"$directory/output" 2>&1
	result $? "$name"
}

# try_with PROGRAM NAME COMMAND...: skipped where PROGRAM is missing.
try_with()
{
	if command -v "$1" >/dev/null 2>&1; then
		shift
		try "$@"
	else
		skip "$2" "no $1"
	fi
}

# skip NAME WHY
skip()
{
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# The last line of a script.
finish()
{
	echo "1..$n"
	exit $status
}
