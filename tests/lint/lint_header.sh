#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The installed headers compile alone, in C and in C++, without a warning.  No struct ends in padding: struct_size would
# count it, so a field that is added later would seem to be known.
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/include"
cp "$PAGED_SRCDIR/client/pagedclient.h" "$PAGED_SRCDIR/client/paged_admin.h" \
	"$PAGED_SRCDIR/client/paged_attention.h" "$PAGED_SRCDIR/client/paged_batch.h" \
	"$PAGED_SRCDIR/client/paged_marks.h" "$PAGED_SRCDIR/client/paged_mods.h" \
	"$PAGED_SRCDIR/client/paged_sharing.h" "$PAGED_SRCDIR/client/paged_watch.h" \
	"$PAGED_SRCDIR/common/paged_reports.h" "$PAGED_SRCDIR/common/paged_types.h" \
	"$directory/include"
n=0
status=0
try()
{
	n=$((n + 1))
	name=$*
	if ! command -v "$1" >/dev/null 2>&1; then
		echo "ok $n - $name # SKIP no $1"
		return
	fi
	if report=$("$@" -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I"$directory/include" 2>&1); then
		echo "ok $n - $name"
	else
		printf '%s\n' "$report" | sed 's/^/# /'
		echo "not ok $n - $name"
		status=1
	fi
}
for header in pagedclient paged_admin paged_attention paged_batch paged_marks paged_mods paged_sharing paged_types paged_watch; do
	echo "#include <$header.h>" > "$directory/$header.c"
	cp "$directory/$header.c" "$directory/$header.cc"
	cd "$directory" || exit 99
	try gcc -std=c99 "$header.c"
	try gcc -std=c11 -Wstrict-prototypes "$header.c"
	try g++ -std=c++98 -Wno-long-long "$header.cc"
	try g++ -std=c++17 "$header.cc"
	try g++ -std=c++20 "$header.cc"
done
n=$((n + 1))
padding=$(cat ./*.c | LC_ALL=C gcc -Wpadded -fsyntax-only -I"$directory/include" -x c - 2>&1 |
	grep 'padding struct size to alignment boundary')
if [ -n "$padding" ]; then
	printf '%s\n' "$padding" | sed 's/^/# /'
	printf 'not '
	status=1
fi
echo "ok $n - no struct ends in padding"

# Each struct with struct_size has its initialiser, which sets the size and zeroes the rest; in C and in C++.
{
	printf '#include <pagedclient.h>\n#include <string.h>\nint main(void)\n{\n\tint bad = 0;\n'
	awk '/^struct paged_[a-z_]* \{/ { name = $2; next }
	     name != "" { if (/^\tsize_t struct_size;/) print name; name = "" }' include/*.h |
	while read -r name; do
		macro=$(echo "${name}_INIT" | tr '[:lower:]' '[:upper:]')
		printf '\t{\n\t\tstruct %s a = %s, b;\n' "$name" "$macro"
		printf '\t\tmemset(&b, 0, sizeof(b));\n\t\tb.struct_size = sizeof(b);\n'
		printf '\t\tbad += memcmp(&a, &b, sizeof(a)) != 0;\n\t}\n'
	done
	# Structs of a fixed size.
	for name in $(sed -n 's/^#define \(PAGED_[A-Z_]*\)_INIT PAGED_ZEROED_.*/\1/p' include/pagedclient.h | tr '[:upper:]' '[:lower:]'); do
		macro=$(echo "${name}_INIT" | tr '[:lower:]' '[:upper:]')
		printf '\t{\n\t\tstruct %s a = %s, b;\n\t\tmemset(&b, 0, sizeof(b));\n' "$name" "$macro"
		printf '\t\tbad += memcmp(&a, &b, sizeof(a)) != 0;\n\t}\n'
	done
	printf '\treturn bad;\n}\n'
} > initialisers.c
cp initialisers.c initialisers.cc
for compiler in "gcc -std=c99" "gcc -std=c11" "g++ -std=c++98 -Wno-long-long" "g++ -std=c++17" "g++ -std=c++20"; do
	case $compiler in
	gcc*) source=initialisers.c ;;
	*) source=initialisers.cc ;;
	esac
	n=$((n + 1))
	# shellcheck disable=SC2086 # options are words
	if report=$($compiler -Wall -Wextra -Wpedantic -Wshadow -Werror -Iinclude $source -o initialisers 2>&1) &&
		[ "$(grep -c struct $source)" -gt 35 ] && ./initialisers; then
		echo "ok $n - initialisers, $compiler"
	else
		printf '%s\n' "$report" | sed 's/^/# /'
		echo "not ok $n - initialisers, $compiler"
		status=1
	fi
done
echo "1..$n"
exit $status
