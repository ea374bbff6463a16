#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pagedctl mask: what the manual page shows, JSON, and what it refuses.  No daemon runs.
pagedctl=$PAGED_BUILDDIR/client/ctl/pagedctl
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
unset PAGED_RUNTIME_DIR
PATH=$PAGED_BUILDDIR/client/ctl:$PATH
n=0
status=0
missing=

# result RC TEXT - the test's line; on a failure what was printed
result()
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
	else
		sed 's/^/# /' "$work/out"
		echo "not ok $n - $2"
		status=1
	fi
}

# refuses RC SENTENCE ARGUMENTS... - the exit code, and that standard error begins so
refuses()
{
	code=$1
	sentence=$2
	shift 2
	"$pagedctl" "$@" >"$work/out" 2>&1
	[ $? -eq "$code" ] && [ "$(head -c ${#sentence} "$work/out")" = "$sentence" ]
	result $? "$(printf '%s\n' "$sentence" | head -n 1)"
}

echo "1..14"

# The example of the page, up to blanks at the ends of lines.
sed -n '/^\$ pagedctl mask /,/^\.Ed/p' "$PAGED_SRCDIR/man/pagedctl.8" | sed '$d' >"$work/page"
command=$(sed -n '1s/^\$ //p' "$work/page")
sed 1d "$work/page" >"$work/expected"
sh -c "$command" >"$work/printed" 2>&1
sed 's/ *$//' "$work/printed" >"$work/out"
[ -s "$work/expected" ] && cmp -s "$work/out" "$work/expected"
result $? "the manual page's example"

"$pagedctl" mask 'kv_idx <= q_idx + h' --q 6 --kv 5 --q-block 2 --kv-block 1 --heads 2 --q-base -1 --json >"$work/out" 2>&1
for field in '"expression": "kv_idx <= q_idx + h"' '"q": 6' '"kv": 5' '"q_base": -1' '"heads": 2' '"q_block": 2' \
	'"kv_block": 1' '"full": 15' '"partial": 5'; do
	grep -qF "$field," "$work/out" || missing="$missing $field"
done
[ -z "$missing" ]
result $? "JSON$missing"

"$pagedctl" mask 'float(kv_idx) < x' --set x=2.5 --q 4 --block 1x1 >"$work/out" 2>&1
grep -q '^sparsity 25.00 %: 12 full, 0 partial, 4 empty$' "$work/out"
result $? "a float parameter"

refuses 1 "pagedctl: mod, line 1, column 11: no name 'q_ix'; nearest is 'q_idx'
  kv_idx <= q_ix
            ^" mask 'kv_idx <= q_ix' --q 8
refuses 1 "pagedctl: block mask: 'kv_idx <= h' depends on h" mask 'kv_idx <= h' --q 8
refuses 2 "pagedctl: mask needs --q" mask causal
refuses 2 "pagedctl: mask takes EXPRESSION" mask --q 8
refuses 2 "pagedctl: --q 8k: a number from 1 to 2147483647" mask causal --q 8k
refuses 2 "pagedctl: --block 128: two numbers with an x between" mask causal --q 8 --block 128
refuses 2 "pagedctl: --block 0: a number from 1" mask causal --q 8 --block 0x4
refuses 2 "pagedctl: --q-base x: a number from -2147483648 to 2147483647" mask causal --q 8 --q-base x
refuses 2 "pagedctl: --set window: a parameter and its value" mask causal --q 8 --set window
refuses 2 "pagedctl: --set window=wide: the value is no number" mask causal --q 8 --set window=wide
refuses 2 "pagedctl: --q, --kv, --block, --heads, --q-base and --set go with mask" status --q 8
exit $status
