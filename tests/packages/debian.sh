#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# debian.sh DIRECTORY - the Debian packages in the directory are clean, can be installed and used, and leave nothing.
#
# They are installed in an overlay over this machine's files, and the machine stays as it is.  That needs root, and the
# packages' dependencies, which a machine that has built them has.
PAGED_SRCDIR=${PAGED_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
packages=$(realpath "$1")
case ${2:-} in
'')
	if [ "$(id -u)" != 0 ]; then
		echo "1..0 # SKIP needs root"
		exit 0
	fi
	overlay=$(mktemp -d) || exit 99
	unshare --mount --pid --fork "$0" "$packages" "$overlay"
	status=$?
	rmdir "$overlay"
	exit $status
	;;
/*)
	# In namespaces, whose end unmounts everything and kills what still runs.
	overlay=$2
	if ! mount -t tmpfs tmpfs "$overlay" || ! mkdir "$overlay/upper" "$overlay/work" "$overlay/root" ||
		! mount -t overlay overlay -o "lowerdir=/,upperdir=$overlay/upper,workdir=$overlay/work" "$overlay/root"; then
		echo "1..0 # SKIP no overlay file system here"
		exit 0
	fi
	mount --rbind /dev "$overlay/root/dev" && mount -t proc proc "$overlay/root/proc" &&
		mount -t tmpfs tmpfs "$overlay/root/run" && mount --bind "$overlay/upper" "$overlay/root/mnt" &&
		exec chroot "$overlay/root" "$PAGED_SRCDIR/tests/packages/debian.sh" "$packages" inside
	exit 99
	;;
esac

. "$PAGED_SRCDIR/tests/support/tap.sh"
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null; rm -rf "$directory"' EXIT
cd "$directory" || exit 99
unset LD_LIBRARY_PATH PYTHONPATH PAGED_RUNTIME_DIR
debs=$(find "$packages" -name '*.deb' ! -name '*-dbgsym_*')
names=$(for deb in $debs; do dpkg-deb -f "$deb" Package; done)

clean()
{
	lintian --allow-root --display-info "$packages"/*.changes >lintian.log 2>&1
	cat lintian.log
	[ ! -s lintian.log ]
}
try_with lintian "lintian finds nothing" clean
# shellcheck disable=SC2086 # lists of words
try "the packages can be installed" dpkg -i $debs
in_place()
{
	getent passwd paged && getent group paged && cmp /etc/paged/pagedd.conf "$PAGED_SRCDIR/packaging/pagedd.conf" &&
		dpkg-query -W -f '${Conffiles}' pagedd | grep -F /etc/paged/pagedd.conf &&
		for page in pagedd.8 pagedd.conf.5 pagedctl.8 libpagedclient.3 paged_mods.7; do
			ls "/usr/share/man/man${page##*.}/$page.gz" || return 1
		done &&
		(cd /usr/share/doc && ls pagedd/README.md pagedd/examples/pagedd-gpu.conf libpagedclient-dev/README.md \
			libpagedclient-dev/docs/ENGINES.md libpagedclient-dev/examples/engine.c python3-paged/PYTHON.md python3-paged/examples/first.py)
}
try "user, group, configuration, manual pages, guides and examples are there" in_place
try_with systemd-analyze "systemd accepts the unit" systemd-analyze verify /lib/systemd/system/pagedd.service

start()
{
	install -d -o paged -g paged -m 750 /run/paged && runuser -u paged -- pagedd --check-config
}
try "the user paged could start pagedd with the configuration of the package" start
runuser -u paged -- pagedd 2>log &
daemon=$!
for _ in $(seq 6000); do
	pagedctl status >/dev/null 2>&1 && break
	sleep 0.05
done
try "pagedctl status" pagedctl status
# shellcheck disable=SC2046
try "a C program is compiled" cc -std=c99 -Wall -Wextra -Werror /usr/share/doc/libpagedclient-dev/examples/first.c -o first \
	$(pkg-config --cflags --libs pagedclient)
cp "$PAGED_SRCDIR/tests/packages/use.py" .
try "Python uses it, embedded and served" /usr/bin/python3 use.py /run/paged
try "Python knows the version" /usr/bin/python3 -c 'import importlib.metadata, paged
assert paged.version() == importlib.metadata.version("paged")'
try "all pages are free again" pagedctl check
stop()
{
	pkill -TERM -P "$daemon" && wait "$daemon"
}
try "pagedd ends on SIGTERM" stop
daemon=

# shellcheck disable=SC2086
try "the packages can be purged" dpkg --purge $names
nothing_left()
{
	! getent passwd paged && ! getent group paged &&
		# What changed in the overlay, except for this test's files and man's cache; device nodes are removed files.
		left=$(find /mnt \( -path "/mnt$directory" -o -path /mnt/var/cache/man \) -prune -o ! -type d ! -type c -iname '*paged*' -print) &&
		echo "$left" && [ -z "$left" ] && ! ls -d /etc/paged /run/paged
}
try "nothing is left" nothing_left
finish
