#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pagedctl mask: the manual page's examples, JSON, and errors.  No daemon runs.
. "$PAGED_SRCDIR/tests/support/tap.sh"
pagedctl=$PAGED_BUILDDIR/pagedctl/pagedctl
unset PAGED_RUNTIME_DIR
PATH=$PAGED_BUILDDIR/pagedctl:$PATH
missing=

# refuses RC SENTENCE ARGUMENTS... - the exit code, and that standard error begins so
refuses()
{
	code=$1
	sentence=$2
	shift 2
	"$pagedctl" "$@" >"$directory/output" 2>&1
	[ $? -eq "$code" ] && [ "$(head -c ${#sentence} "$directory/output")" = "$sentence" ]
	result $? "$(printf '%s\n' "$sentence" | head -n 1)"
}

# The example of the page, up to blanks at the ends of lines.
sed -n '/^\$ pagedctl mask /,/^\.Ed/p' "$PAGED_SRCDIR/man/pagedctl.8" | sed '$d' >"$directory/page"
command=$(sed -n '1s/^\$ //p' "$directory/page")
sed 1d "$directory/page" >"$directory/expected"
sh -c "$command" >"$directory/printed" 2>&1
sed 's/ *$//' "$directory/printed" >"$directory/output"
[ -s "$directory/expected" ] && cmp -s "$directory/output" "$directory/expected"
result $? "the manual page's example"

"$pagedctl" mask 'kv_idx <= q_idx + h' --q 6 --kv 5 --q-block 2 --kv-block 1 --heads 2 --q-base -1 --json >"$directory/output" 2>&1
for field in '"expression": "kv_idx <= q_idx + h"' '"q": 6' '"kv": 5' '"q_base": -1' '"heads": 2' '"q_block": 2' \
	'"kv_block": 1' '"full": 15' '"partial": 5'; do
	grep -qF "$field," "$directory/output" || missing="$missing $field"
done
[ -z "$missing" ]
result $? "JSON$missing"

"$pagedctl" mask 'float(kv_idx) < x' --set x=2.5 --q 4 --block 1x1 >"$directory/output" 2>&1
grep -q '^sparsity 25.00 %: 12 full, 0 partial, 4 empty$' "$directory/output"
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
finish
