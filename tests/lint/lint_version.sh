#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# configure.ac has the version.  What must repeat it agrees, and so do NEWS and debian/changelog on the day of the release.
. "$PAGED_SRCDIR/tests/support/tap.sh"
cd "$PAGED_SRCDIR" || exit 99
version=$(sed -n 's/^AC_INIT(\[paged\], \[\([0-9]*\.[0-9]*\.[0-9]*\)\])$/\1/p' configure.ac)
day='[0-9]\{4\}-[0-9]\{2\}-[0-9]\{2\}'

# is FOUND EXPECTED
is()
{
	echo "\"$1\"; expected \"$2\""
	[ -n "$1" ] && [ "$1" = "$2" ]
}
try "client/pagedclient.h" is \
	"$(sed -n 's/^#define PAGED_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' client/pagedclient.h | paste -s -d .)" "$version"
try "NEWS begins with it" is "$(sed -n '1s/^paged \(.*\) - .*/\1/p' NEWS)" "$version"
try "debian/changelog begins with it" is "$(sed -n '1s/^paged (\(.*\)) .*/\1/p' debian/changelog)" "$version"

# Programs, manual pages, pkg-config and the Python package get it from configure.
repeated()
{
	! grep -rnwF -e "${version:-none}" -e unreleased README.md SECURITY.md HACKING.md CONTRIBUTING.md docs/*.md man \
		python/README.md python/pyproject.toml python/setup.py client/pagedclient.pc.in
}
try "nothing else says it, or that it is unreleased" repeated

news=$(sed -n "1s/.* - \(unreleased\|$day\)\$/\1/p" NEWS)
changelog=unreleased
sed -n 1p debian/changelog | grep -q UNRELEASED ||
	changelog=$(date -u -d "$(sed -n '/^ -- /{s/.*>  //p;q}' debian/changelog)" +%F)
try "NEWS and debian/changelog have one date, or none" is "$news" "$changelog"
older()
{
	! sed 1d NEWS | grep '^paged [0-9]' | grep -v "^paged [0-9.]* - $day\$"
}
try "older entries of NEWS have a date" older

nodes=$(sed -n 's/^\(PAGED_[0-9.]*\) {$/\1/p' client/pagedclient.map)
later()
{
	echo "$nodes"
	is "$({ echo "$nodes"; echo "PAGED_$version"; } | sort -V | tail -n 1)" "PAGED_$version"
}
try "the library has no symbols of a later version" later
try "debian/libpagedclient0.symbols has all versions of symbols" is \
	"$(sed -n 's/^ (symver)\(PAGED_[0-9.]*\) .*/\1/p' debian/libpagedclient0.symbols)" "$nodes"
finish
