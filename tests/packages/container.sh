#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# container.sh DIRECTORY - the steps of packaging/Containerfile, run on a fresh Debian with the packages in the directory,
# make a pagedd that starts, answers and ends.
#
# The fresh Debian is debootstrap's, in a directory of its own, and is entered in namespaces of its own.
PAGED_SRCDIR=${PAGED_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
mirror=http://deb.debian.org/debian
if [ -z "${2-}" ]; then
	why=
	[ "$(id -u)" = 0 ] || why="needs root"
	command -v debootstrap >/dev/null 2>&1 || why="no debootstrap"
	[ -n "$why" ] || python3 -c "import urllib.request; urllib.request.urlopen('$mirror/dists/bookworm/Release', timeout=60)" \
		>/dev/null 2>&1 || why="$mirror cannot be reached"
	if [ -n "$why" ]; then
		echo "1..0 # SKIP $why"
		exit 0
	fi
	exec unshare --mount --pid --fork "$0" "$(realpath "$1")" inside
fi
packages=$1
. "$PAGED_SRCDIR/tests/support/tap.sh"
root=$directory/root
file=$PAGED_SRCDIR/packaging/Containerfile
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null; umount -R "$root/proc" 2>/dev/null; rm -rf --one-file-system "$directory"' EXIT
unset LD_LIBRARY_PATH PAGED_RUNTIME_DIR

try "its base is Debian 12" grep -x "FROM debian:12-slim" "$file"
try "debootstrap" debootstrap --variant=minbase bookworm "$root" "$mirror"
mount -t proc proc "$root/proc" || exit 99

# step WORD ARGUMENTS - one line of the Containerfile
step()
{
	case $1 in
	COPY)
		to=${2##* }
		mkdir -p "$root$to" && (cd "$packages" && eval "cp ${2% *} '$root$to'")
		;;
	RUN) DEBIAN_FRONTEND=noninteractive chroot "$root" /bin/sh -c "$2" ;;
	*) echo "$1 is not known to this test"; return 1 ;;
	esac
}
grep -vE '^(#|FROM |USER |ENTRYPOINT )' "$file" >"$directory/steps"
while read -r word arguments; do
	try "$word $arguments" step "$word" "$arguments"
done <"$directory/steps"

user=$(sed -n 's/^USER //p' "$file")
program=$(sed -n 's/^ENTRYPOINT \["\(.*\)"\]$/\1/p' "$file")
chroot --userspec="$user:$user" "$root" "$program" 2>"$directory/log" &
daemon=$!
for _ in $(seq 6000); do
	chroot "$root" pagedctl status >/dev/null 2>&1 && break
	kill -0 "$daemon" 2>/dev/null || break
	sleep 0.05
done
answers()
{
	cat "$directory/log"
	chroot "$root" pagedctl status && chroot --userspec="$user:$user" "$root" pagedctl check
}
try "$program starts as $user, and answers" answers
ends()
{
	kill "$daemon" && wait "$daemon"
}
try "it ends on SIGTERM" ends
daemon=
finish
