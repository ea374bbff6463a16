#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pagedd works with the confinement of its example unit: tests run with daemons under the unit's filters.
. "$PAGED_SRCDIR/tests/support/tap.sh"

skip_all()
{
	echo "1..0 # SKIP $1"
	exit 0
}

python=${PYTHON:-python3}
command -v systemd-analyze >/dev/null 2>&1 || skip_all "systemd-analyze is not installed"
[ "$(id -u)" = 0 ] || skip_all "the tests that a unit concerns need root"
"$python" -c 'import ctypes; ctypes.CDLL("libseccomp.so.2")' 2>/dev/null || skip_all "no Python with libseccomp"
if "$PAGED_BUILDDIR/daemon/pagedd" --version | grep -q '^sanitizers *yes'; then
	skip_all "sanitizers need other system calls"
fi

confined=$directory/confined
printf '#!/bin/sh\nexec "%s" "%s" "%s" "$@"\n' "$python" "$PAGED_SRCDIR/tests/system/confine.py" \
	"$PAGED_BUILDDIR/packaging/pagedd.service" >"$confined"
chmod +x "$confined"

filtered()
{
	"$confined" /bin/true && ! "$confined" /bin/mount --bind "$directory" "$directory" &&
		! "$confined" "$python" -c 'import socket; socket.socket()'
}
try "the filters refuse what the unit refuses" filtered

# A group of the daemon's user, which is the allow-group in it_quota: the runtime directory is given to it.
PAGED_TEST_WRAPPER=$confined
PAGED_TEST_GROUP=61012
export PAGED_TEST_WRAPPER PAGED_TEST_GROUP
for test in it_attach admin/it_check it_daemon it_masks sharing/it_prefix_full admin/it_quota; do
	program=$PAGED_BUILDDIR/tests/system/$test
	# Not those that become another user, or are in another PID namespace, before they start the daemon.
	# shellcheck disable=SC2046 # a list
	try "${test##*/} with confined daemons" "$program" $("$program" --list | grep -v -e without_permission \
		-e process_in_other_pid_namespace)
done
unset PAGED_TEST_WRAPPER

# paged-events under the filters of its own unit, with a daemon that is not confined.
events()
{
	printf 'pool p { layers = 1 kv-heads = 1 head-dim = 16 pages = 4 }\n' >"$directory/conf"
	"$PAGED_BUILDDIR/daemon/pagedd" --config "$directory/conf" --runtime-dir "$directory/run" &
	daemon=$!
	"$python" "$PAGED_SRCDIR/tests/system/confine.py" "$PAGED_BUILDDIR/packaging/paged-events.service" \
		"$PAGED_BUILDDIR/events/paged-events" --runtime-dir "$directory/run" --endpoint "ipc://$directory/kv" --bind \
		--metrics-listen 127.0.0.1:0 2>"$directory/events" &
	events=$!
	for _ in $(seq 1200); do
		grep -q attached "$directory/events" && break
		sleep 0.05
	done
	cat "$directory/events"
	kill "$events" && wait "$events" && grep -q attached "$directory/events"
	result=$?
	kill "$daemon" && wait "$daemon"
	return "$result"
}
if [ -x "$PAGED_BUILDDIR/events/paged-events" ]; then
	try "paged-events works under the filters of its unit" events
fi
finish
