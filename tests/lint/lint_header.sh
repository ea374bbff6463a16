#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The installed headers compile alone, in C and in C++, without a warning.
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
echo "1..$n"
exit $status
