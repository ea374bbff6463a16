#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Links of the Markdown files lead to files, and the names of the API in them exist.
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

for file in README.md HACKING.md SECURITY.md docs/*.md bench/*.md bench/peers/*.md; do
	lost=$(links "$file"; names "$file")
	[ -z "$lost" ] || echo "$lost"
	[ -z "$lost" ]
	result $? "$file"
done
echo "1..$n"
exit $status
