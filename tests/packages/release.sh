#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# release.sh - tools/release releases a clean, dated commit and nothing else, with all files that git tracks.
#
# It releases a commit of the files that are here now.  Wheel and Debian packages have tests of their own, so two programs
# take the places of the tools that make them.
PAGED_SRCDIR=${PAGED_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$PAGED_SRCDIR/tests/support/tap.sh"
cd "$PAGED_SRCDIR" || exit 99
if ! git rev-parse --git-dir >/dev/null 2>&1; then
	echo "1..0 # SKIP no git checkout"
	exit 0
fi
unset PAGED_BUILDDIR MAKEFLAGS MFLAGS MAKELEVEL
# A failed distcheck leaves a source tree that is read-only.
trap 'chmod -R u+w "$directory"; rm -rf "$directory"' EXIT
tree=$directory/tree
mkdir "$tree" && git ls-files -z --cached --others --exclude-standard |
	tar -c --null --ignore-failed-read -T - 2>"$directory/output" | tar -x -C "$tree"
cd "$tree" || exit 99
git() { command git -c user.name=release -c user.email=release -c safe.directory=\* "$@"; }
cat >tools/wheel <<'END'
#!/bin/sh
mkdir -p "$3" && touch "$3/paged-wheel.whl"
END
cat >tools/deb <<'END'
#!/bin/sh
mkdir -p build-deb && touch build-deb/pagedd.deb
END
git init -q . && git add -A && git commit -q -m "as here" || exit 99
version=$(sed -n 's/^AC_INIT(\[paged\], \[\(.*\)\])$/\1/p' configure.ac)
made=$directory/made

# refuses SENTENCE
refuses()
{
	! tools/release --no-install --output "$made" >"$directory/said" 2>&1 && cat "$directory/said" &&
		grep -F -e "$1" "$directory/said" && [ ! -e "$made" ]
}
touch new-file
try "not with a file that the commit has not" refuses "no clean checkout"
rm new-file
sed -i "1s/ - .*/ - unreleased/" NEWS && sed -i "1s/) [a-zA-Z]*;/) UNRELEASED;/" debian/changelog
git commit -q -a --allow-empty -m "not released"
try "not while NEWS calls it unreleased" refuses "NEWS calls $version unreleased"
dated()
{
	tools/release --date && [ "$(sed -n 1p NEWS)" = "paged $version - $(date -u +%F)" ] && git commit -q -a -m "$version" &&
		PAGED_SRCDIR=$tree sh tests/lint/lint_version.sh
}
try "--date dates NEWS and debian/changelog" dated
try "tarball, wheel, Debian packages: make distcheck" tools/release --no-install --output "$made"
sums()
{
	(cd "$made" && ls && sha256sum --strict -c SHA256SUMS && [ "$(wc -l <SHA256SUMS)" = 3 ]) &&
		ls "$made/paged-$version.tar.xz" "$made/paged-wheel.whl" "$made/pagedd.deb"
}
try "SHA256SUMS has them all" sums
complete()
{
	git ls-files | grep -vE '(^|/)\.git[a-z-]*$' | sort >"$directory/tracked"
	tar -tf "$made/paged-$version.tar.xz" | sed "s|^paged-$version/||" | sort >"$directory/in-tarball"
	comm -23 "$directory/tracked" "$directory/in-tarball" >"$directory/missing"
	sed 's/^/not in the tarball; add to EXTRA_DIST of its local.mk: /' "$directory/missing" | head -n 20
	[ -s "$directory/in-tarball" ] && [ ! -s "$directory/missing" ]
}
try "the tarball has all that git tracks" complete
finish
