#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library's binary interface is that of abi.txt: functions, layouts of structs, values of enums and macros.
#
# lint_abi.sh --update writes abi.txt, whose change is reviewed with the header's.  From the first release on, lines are
# added and structs with struct_size grow at their end; any other change needs a new soname (client/local.mk).
PAGED_SRCDIR=${PAGED_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$PAGED_SRCDIR/tests/support/tap.sh"
cd "$PAGED_SRCDIR" || exit 99
if ! ctags --version 2>/dev/null | grep -q "Universal Ctags"; then
	echo "1..0 # SKIP no universal-ctags"
	exit 0
fi
if ! printf '_Static_assert(sizeof(void *) == 8, "");' | cc -x c -fsyntax-only - 2>/dev/null; then
	echo "1..0 # SKIP abi.txt is of 64-bit machines"
	exit 0
fi

# tags KINDS FORMAT: of the installed headers, in the compiler's words.
tags()
{
	ctags -x -u --language-force=C --kinds-C="$1" --fields=+S --_xformat="$2" client/paged*.h common/paged_*.h |
		sed 's/typename://; s/\(enum\|struct\):/\1 /' | tr -s '\t ' ' '
}
# interface: prints a line for each thing that a compiled program relies on.
interface()
{
	tags p 'function %N%S: %t'
	tags t 'type %N: %t'
	{
		printf '#include "client/pagedclient.h"\n#include "client/paged_admin.h"\n#include <stddef.h>\n#include <stdio.h>\n'
		printf 'int main(void) {\n'
		tags m '%s %N %s.%N: %t' | awk '{ member = $1 ", " $2; pointer = "((struct " $1 " *)0)->" $2; $1 = $2 = ""
			printf "printf(\"%s at %%zu, %%zu bytes\\n\", offsetof(struct %s), sizeof(%s));\n", substr($0, 3), member, pointer }'
		tags s '%N' | awk '{ printf "printf(\"struct %s: %%zu bytes\\n\", sizeof(struct %s));\n", $1, $1 }'
		tags e '%N' | awk '{ printf "printf(\"enumerator %s = %%lld\\n\", (long long)%s);\n", $1, $1 }'
		echo 'return 0; }'
	} >"$directory/values.c"
	cc -I. -Iclient -Icommon "$directory/values.c" -o "$directory/values" && "$directory/values" &&
		cc -I. -Iclient -Icommon -E -dM "$directory/values.c" |
		sed -n '/^#define PAGED_\(VERSION\|.*_H\b\)/d; s/^#define \(PAGED_[A-Z0-9_]* [(0-9].*\)/macro \1/p'
}
interface >"$directory/found" || exit 99
LC_ALL=C sort -o "$directory/found" "$directory/found"
if [ "${1-}" = --update ]; then
	cp "$directory/found" tests/lint/abi.txt
	exit
fi
same()
{
	diff tests/lint/abi.txt "$directory/found" || {
		echo "If that is meant, run tests/lint/lint_abi.sh --update, and commit abi.txt with the change."
		return 1
	}
}
try "the interface is that of abi.txt" same
finish
