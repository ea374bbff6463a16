#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Features that configure can omit, and options that it refuses.
. "$PAGED_SRCDIR/tests/support/tap.sh"
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

# A Python without its headers.
printf '#!/bin/sh\ncase "$*" in *get_path*include*) echo /nowhere ;; *) exec python3 "$@" ;; esac\n' >without-headers
chmod +x without-headers
try "no Python package without Python's headers" refuses "apt-get install python3-dev" --enable-python \
	PYTHON="$directory/without-headers"

# A C compiler for another machine, which does not have that machine's Python headers.
cat >other-cc <<'END'
#!/bin/sh
case "$*" in *-print-multiarch*) echo other-linux-gnu ;; *) exec cc "$@" ;; esac
END
chmod +x other-cc
try "no headers of this machine's Python for another machine" refuses "install those (libpython3-dev:ARCHITECTURE)" \
	--build=x86_64-linux-gnu --host=aarch64-linux-gnu CC="$directory/other-cc" --enable-python

without_daemon()
{
	"$PAGED_SRCDIR/configure" --with-cuda=no --disable-daemon 2>errors && cat errors && [ ! -s errors ] && [ ! -e conftest.c ] &&
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -n all install >planned &&
		grep -q libpagedclient planned && grep -q pagedctl planned && ! grep -E 'pagedd[.-o]|libdaemon' planned
}
try "the client library alone, and no complaint about the directory core" without_daemon

# Everything but the demo is built, on a machine that has no PCRE2.
without_demo()
{
	printf '#!/bin/sh\ncase "$*" in *pcre2*) exit 1 ;; esac\nexec pkg-config "$@"\n' >without-pcre2 &&
		chmod +x without-pcre2 &&
		PKG_CONFIG="$directory/without-pcre2" "$PAGED_SRCDIR/configure" --with-cuda=no --disable-demo >summary &&
		grep -q '^ *demo  *no$' summary &&
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -n all check TESTS= >planned &&
		grep -q pagedd planned && grep -q it_daemon planned && ! grep -m 3 -E '(examples/|it_)llama|unit_gguf|it_workers' planned
}
try "the demo left out" without_demo

# Everything but paged-events is built, on a machine that has neither msgpack-c nor libmicrohttpd.
without_events()
{
	printf '#!/bin/sh\ncase "$*" in *msgpack* | *microhttpd*) exit 1 ;; esac\nexec pkg-config "$@"\n' >without-libraries &&
		chmod +x without-libraries &&
		PKG_CONFIG="$directory/without-libraries" "$PAGED_SRCDIR/configure" --with-cuda=no --disable-events >summary &&
		grep -q '^ *events  *no$' summary &&
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -n all install check TESTS= >planned &&
		grep -q pagedd planned && ! grep -m 3 -E 'libevents|paged-events|it_events|it_metrics_http' planned
}
try "paged-events left out" without_events
finish
