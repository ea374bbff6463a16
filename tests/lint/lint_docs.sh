#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Links of the Markdown files lead to files, the names of the API in them exist, and HACKING.md lists every source file.
cd "$PAGED_SRCDIR" || exit 99
n=0
status=0
result()
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; status=1; fi
}

# links FILE - prints the links in FILE that lead nowhere
links()
{
	grep -o '](\(\.\.\)\{0,1\}[^):]*)' "$1" | sed 's/^](//; s/)$//; s/#.*//' | sort -u | while read -r link; do
		[ -z "$link" ] || [ -e "$(dirname "$1")/$link" ] || echo "# $1: $link"
	done
}

# names FILE - prints paged_* calls and PAGED_* constants in FILE that no installed header has
names()
{
	grep -o '\bpaged_[a-z_]*[a-z]()\{1,1\}\|\bPAGED_\(ERR\|ROW\|MASK\)_[A-Z_]*[A-Z]' "$1" | tr -d '()' | sort -u |
		while read -r name; do
			grep -qrw --include='*.h' -e "$name" client common || echo "# $1: $name"
		done
}

# listed - prints the files of HACKING.md's list, one per line; its form is "directory/  text" or "  file.[ch], file  text"
listed()
{
	awk '
	/^```/ { inside = !inside; next }
	!inside { next }
	/^[a-z]/ { directory = $1; next }
	{
		match($0, /^  ([^ ]+, )*[^ ]+/)
		n = split(substr($0, 3, RLENGTH - 2), name, ", ")
		for (i = 1; i <= n; i++) {
			base = name[i]
			if (sub(/\[ch\]$/, "", base)) {
				print directory base "c"
				print directory base "h"
			} else {
				print directory base
			}
		}
	}' HACKING.md
}

# sources - prints the source files of the product and of tests/support, without those that a build in this directory makes
sources()
{
	find common proto core daemon client kernels pagedctl events examples bench tests/support \
		\( -name '*.[ch]' -o -name '*.cu' -o -name '*.awk' -o -name '*.py' -o -name '*.proto' \) |
		grep -v -e '\.pb-c\.' -e '^kernels/cuda/aot_.*\.cu$' -e '^kernels/cuda/sources\.c$'
}

missing=$(
	listed | while read -r file; do [ -e "$file" ] || echo "# HACKING.md: no file $file"; done
	listed >"${TMPDIR:-/tmp}/lint_docs.$$"
	sources | grep -vxF -f "${TMPDIR:-/tmp}/lint_docs.$$" | sed 's/^/# HACKING.md does not list /'
	rm -f "${TMPDIR:-/tmp}/lint_docs.$$"
)
[ -z "$missing" ] || echo "$missing"
[ -z "$missing" ]
result $? "HACKING.md lists the source files"

for file in README.md HACKING.md SECURITY.md docs/*.md bench/*.md bench/peers/*.md; do
	lost=$(links "$file"; names "$file")
	[ -z "$lost" ] || echo "$lost"
	[ -z "$lost" ]
	result $? "$file"
done
echo "1..$n"
exit $status
