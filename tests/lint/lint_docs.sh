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
