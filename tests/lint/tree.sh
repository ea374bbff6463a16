# SPDX-License-Identifier: Apache-2.0
# tree.sh - what lints of the source text source: they read the files that git tracks, with tools of certain versions

# shellcheck shell=sh
. "$PAGED_SRCDIR/tests/support/tap.sh"
cd "$PAGED_SRCDIR" || exit 99

# leave WHY: ends the script as one that is skipped.
leave()
{
	echo "1..0 # SKIP $1"
	exit 0
}

# tracked PATTERN...: prints the tracked files.  A release has none: its text was checked when it was made.
tracked()
{
	git ls-files -- "$@" 2>/dev/null | while read -r file; do
		[ ! -f "$file" ] || echo "$file"
	done
}

# scripts LANGUAGE: prints the tracked programs whose first line names that interpreter.
scripts()
{
	git grep -lI -m 1 -E "^#!.*[/ ]$1" -- . ':!*.py' ':!*.md' 2>/dev/null | while read -r file; do
		! head -n 1 "$file" | grep -qE "^#!.*[/ ]$1" || echo "$file"
	done
}

# in_environment TOOL: prints its path: that of the environment of python/tests/requirements-lint.txt, or that of $PATH.
in_environment()
{
	for tool in environments/requirements-lint-*/bin/"$1" "$(command -v "$1")"; do
		if [ -x "$tool" ]; then
			echo "$tool"
			return
		fi
	done
}

# clean NAME COMMAND...: the command finds nothing in the files that standard input lists.
clean()
{
	name=$1
	shift
	files=$(cat)
	[ -n "$files" ] || leave "no git checkout"
	# shellcheck disable=SC2086 # a list of names
	try "$name: $(echo "$files" | wc -l) files" "$@" $files
}
