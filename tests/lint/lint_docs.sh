#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Links of the Markdown files lead to files, and the names of the API in them exist.  Each source file has a comment at its
# head, and HACKING.md lists each directory.
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

# headed - prints the source files without a head comment that tools/heads can print
headed()
{
	tools/heads --missing | sed 's/^/# no comment at the head: /'
}

# directories - prints the directories of HACKING.md's list that do not exist, and those of source files that it lacks;
# tests/D needs no line if D has one
directories()
{
	listed=$(awk '/^```/ { inside = !inside; next } inside { print $1 }' HACKING.md)
	for directory in $listed; do
		[ -d "$directory" ] || echo "# HACKING.md: no directory $directory"
	done
	tools/heads | sed 's/[^ /]*  .*//' | sort -u | while read -r directory; do
		echo "$listed" | grep -qxF -e "$directory" -e "${directory#tests/}" ||
			echo "# HACKING.md does not list $directory"
	done
}

# stale - prints the functions "x()" and the C files that comments and documents name, and that the tree does not have
stale()
{
	# Names of other projects.
	foreign='bytes_to_unicode cuMemAllocPitch generate_batch generate_test_inputs pause_generation
		preprocess_paged_attention cuda.h iso646.h'
	# shellcheck disable=SC2046 # names without spaces
	awk -v foreign="$foreign" '
	# comment(LINE) - returns what LINE has of a comment
	function comment(line)
	{
		if (match(line, /\/\*|\/\//))
			return substr(line, RSTART + 2)
		return FILENAME ~ /\.md$/ || line ~ /^[ \t]*\*/ ? line : ""
	}

	BEGIN {
		n = split(foreign, names)
		for (i = 1; i <= n; i++)
			known[names[i]] = 1
	}
	FNR == 1 {
		for (file = FILENAME; file != ""; file = substr(file, RLENGTH + 1)) {
			known[file] = 1
			if (!match(file, /^[^\/]*\//))
				break
		}
	}
	{
		text = comment($0)
		code = substr($0, 1, length($0) - length(text))
		if (code ~ /^[ \t]*#[ \t]*include/) {
			gsub(/.*[<"]|[>"].*/, "", code)
			known[code] = 1
		}
		while (match(code, /[A-Za-z_][A-Za-z0-9_]*/)) {
			known[substr(code, RSTART, RLENGTH)] = 1
			code = substr(code, RSTART + RLENGTH)
		}
		while (match(text, /[A-Za-z_][A-Za-z0-9_\/-]*(\(\)|\.(c|h|cu|cc)[^A-Za-z0-9_(])/)) {
			before = RSTART > 1 ? substr(text, RSTART - 1, 1) : ""
			name = substr(text, RSTART, RLENGTH)
			sub(/\(\)$|[^a-z]$/, "", name)
			text = substr(text, RSTART + RLENGTH)
			# Not a wildcard, nor a placeholder as in unit_FILE.c, nor a source that the build makes.
			if (before !~ /[*$.\/<{]/ && name !~ /[A-Z].*\.|^aot_/)
				said[name] = FILENAME ":" FNR
		}
	}
	END {
		for (name in said)
			if (!(name in known))
				print "# " said[name] ": there is no " name
	}' $(find common proto core daemon client kernels pagedctl events examples bench python tests -type f \
		\( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' -o -name '*.proto' -o -name '*.py' -o -name '*.pyi' \)) \
		HACKING.md CONTRIBUTING.md README.md SECURITY.md docs/*.md
}

lost=$(stale)
[ -z "$lost" ] || echo "$lost"
[ -z "$lost" ]
result $? "comments name functions and files that exist"

lost=$(headed)
[ -z "$lost" ] || echo "$lost"
[ -z "$lost" ]
result $? "each source file has a comment at its head"

lost=$(directories)
[ -z "$lost" ] || echo "$lost"
[ -z "$lost" ]
result $? "HACKING.md lists the directories"

for file in README.md HACKING.md CONTRIBUTING.md SECURITY.md docs/*.md bench/*.md bench/peers/*.md; do
	lost=$(links "$file"; names "$file")
	[ -z "$lost" ] || echo "$lost"
	[ -z "$lost" ]
	result $? "$file"
done
echo "1..$n"
exit $status
