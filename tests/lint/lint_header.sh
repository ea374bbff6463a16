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
echo "1..$n"
exit $status
