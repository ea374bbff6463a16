#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What configure can leave out, and what it refuses.
. "$PAGED_SRCDIR/tests/tap.sh"
if [ -e "$PAGED_SRCDIR/config.status" ]; then
	echo "1..0 # SKIP the source directory is configured"
	exit 0
fi
cd "$directory" || exit 99

# refuses SENTENCE OPTION...
refuses()
{
	sentence=$1
	shift
	! "$PAGED_SRCDIR/configure" --with-cuda=no "$@" && grep -F -e "$sentence" config.log
}
try "no static library" refuses "--enable-static: libpagedclient is a shared library only" --enable-static
try "no tests without a daemon" refuses "--disable-daemon: the tests need pagedd; add --disable-tests" \
	--disable-daemon --enable-tests

without_daemon()
{
	"$PAGED_SRCDIR/configure" --with-cuda=no --disable-daemon &&
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -n all install >planned &&
		grep -q libpagedclient planned && grep -q pagedctl planned && ! grep -E 'pagedd[.-o]|libdaemon' planned
}
try "the client library alone" without_daemon
finish
