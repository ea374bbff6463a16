#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes follow the arrows: common <- proto <- daemon, client;
# common <- kernels <- daemon, client; common <- core <- daemon, client;
# client <- pagedctl, events, examples; client, common, kernels, core <- bench.
n=0
status=0
# allow NAME FILES ALLOWED...: files under a directory include of ours only these prefixes.
allow()
{
	n=$((n + 1))
	name=$1
	files=$2
	shift 2
	pattern=
	for prefix in "$@"; do
		pattern="$pattern|$prefix"
	done
	wrong=$(for file in $files; do
		grep -nHE '^#include "(common|proto|kernels|core|daemon|client|pagedctl|events|examples|bench)/' "$file" |
			grep -vE "#include \"(${pattern#|})"
	done)
	if [ -z "$wrong" ]; then
		echo "ok $n - $name includes only: $*"
	else
		printf '%s\n' "$wrong" | sed 's/^/# /'
		echo "not ok $n - $name includes only: $*"
		status=1
	fi
}
cd "$PAGED_SRCDIR" || exit 99
under()
{
	find "$@" -name '*.[ch]' -print | sort
}
allow common "$(under common)" common/
allow proto "$(under proto)" common/ proto/
allow kernels "$(under kernels)" common/ kernels/
allow core "$(under core)" common/ core/
allow daemon "$(under daemon)" common/ proto/ kernels/ core/ daemon/
allow client "$(under client)" common/ proto/ kernels/ core/ client/
# Inside the client: api -> owner; cuda implements api's compute_ops.h, and sees only what that needs.
below="common/ proto/ kernels/ client/pagedclient.h client/params.h client/owner/"
# shellcheck disable=SC2086 # a list of words
{
	allow client/owner "$(under client/owner)" $below core/
	allow client/api "$(under client/api)" $below client/api/
	allow client/cuda "$(under client/cuda)" $below client/api/compute_ops.h client/api/objects.h client/api/mark.h client/cuda/
}
allow pagedctl "$(under pagedctl)" client/pagedclient.h pagedctl/
allow events "$(under events)" events/
allow examples "$(under examples)" client/pagedclient.h examples/
allow bench "$(under bench)" common/ kernels/ core/core.h bench/
# Only proto/wire*.c sees what protoc-c generates.
n=$((n + 1))
if wrong=$(grep -rlE 'paged\.pb-c\.h|protobuf-c/' common kernels core daemon client pagedctl events examples bench 2>/dev/null |
	grep '\.[ch]$'); then
	printf '%s\n' "$wrong" | sed 's/^/# /'
	echo "not ok $n - only proto/ sees generated code"
	status=1
else
	echo "ok $n - only proto/ sees generated code"
fi
echo "1..$n"
exit $status
