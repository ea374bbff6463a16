#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The files that make install installs are sufficient for programs in C, C++ and Python.
. "$PAGED_SRCDIR/tests/support/tap.sh"
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null; rm -rf "$directory"' EXIT

# The directories that configure was given; later ones are derived from earlier ones.
root=$directory/root
# shellcheck disable=SC2034 # for docdir, below
PACKAGE_TARNAME=paged
for name in prefix exec_prefix datarootdir datadir bindir sbindir libdir includedir mandir docdir sysconfdir \
	localstatedir runstatedir bashcompletiondir zshcompletiondir; do
	eval "$name=\"$(sed -n "s/^$name = //p" "$PAGED_BUILDDIR/Makefile" | tr '()' '{}')\""
done
# shellcheck disable=SC2154 # the loop sets them
bin=$root$bindir sbin=$root$sbindir lib=$root$libdir include=$root$includedir man=$root$mandir
# shellcheck disable=SC2154
examples=$root$docdir/examples bash_completion=$root$bashcompletiondir zsh_completion=$root$zshcompletiondir

install_all()
{
	# The make that runs the tests is not to be heard by this one.
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$PAGED_BUILDDIR" install DESTDIR="$root"
}
try "make install" install_all

# Not with --disable-events.
events=
[ ! -e "$PAGED_BUILDDIR/events/paged-events" ] ||
	events="$sbin/paged-events $man/man8/paged-events.8 $examples/paged-events.service"
expected()
{
	# shellcheck disable=SC2086 # a list
	ls $events "$bin/pagedctl" "$sbin/pagedd" "$include/pagedclient.h" "$include/paged_admin.h" \
		"$include/paged_attention.h" "$include/paged_batch.h" "$include/paged_marks.h" \
		"$include/paged_mods.h" "$include/paged_sharing.h" "$include/paged_watch.h" \
		"$include/paged_reports.h" "$include/paged_types.h" \
		"$lib/libpagedclient.so" "$lib/libpagedclient.so.0" "$lib/pkgconfig/pagedclient.pc" \
		"$man/man8/pagedd.8" "$man/man8/pagedctl.8" "$man/man5/pagedd.conf.5" \
		"$man/man3/libpagedclient.3" "$man/man3/paged_sharing.3" "$man/man3/paged_watch.3" \
		"$man/man7/paged-protocol.7" "$man/man7/paged_mods.7" \
		"$examples/pagedd-gpu.conf" "$examples/pagedd.conf" "$examples/pagedd.service" \
		"$examples/first.c" "$examples/python/first.py" "$root$docdir/README.md" "$root$docdir/docs/ENGINES.md" \
		"$bash_completion/pagedctl" "$bash_completion/pagedd" "$zsh_completion/_pagedctl"
}
try "everything is in its place" expected

# shellcheck disable=SC2154
paths()
{
	grep -F "$sysconfdir/paged/pagedd.conf" "$man/man8/pagedd.8" && grep -F "$runstatedir/paged" "$man/man8/pagedd.8" &&
		grep -F "$sysconfdir/paged/pagedd.conf --runtime-dir $runstatedir/paged" "$examples/pagedd.service" &&
		"$sbin/pagedd" --help | grep -F "$sysconfdir/paged/pagedd.conf"
}
try "manual pages and unit name configure's directories" paths

# The driver of a GPU gets its devices by a set-user-ID program, which has no effect with NoNewPrivileges.
unit_makes_devices()
{
	grep '^NoNewPrivileges=yes' "$examples/pagedd.service" &&
		grep '^ExecStartPre=-+.*/nvidia-modprobe -c0 -u$' "$examples/pagedd-gpu.conf"
}
try "the unit's part for GPUs makes their devices" unit_makes_devices

if "$sbin/pagedd" --version | grep -q '^sanitizers *yes'; then
	skip "programs use it" "built with sanitizers"
	finish
fi

# No file of another library is present: a worker needs none.
export PKG_CONFIG_LIBDIR="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
export LD_LIBRARY_PATH="$lib" PAGED_RUNTIME_DIR="$directory/runtime"
flags=$(pkg-config --cflags --libs pagedclient) || flags=
only_ours()
{
	pkg-config --cflags --libs pagedclient && [ "$(pkg-config --cflags pagedclient | tr -d ' ')" = "-I$include" ]
}
try_with pkg-config "pkg-config names our directories alone" only_ours
cd "$directory" || exit 99
cc=${CC:-cc}
cxx=${CXX:-c++}

# shellcheck disable=SC2086 # flags are words
try_with "$cc" "the first example compiles" \
	$cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$examples/first.c" -o first $flags
# shellcheck disable=SC2086
try_with "$cc" "the installed engine compiles" $cc -std=gnu11 -Wall -Wextra -Werror "$examples/engine.c" -o engine $flags -lm
# shellcheck disable=SC2086
try_with "$cxx" "a C++ program compiles" \
	$cxx -std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Wpedantic -Werror "$PAGED_SRCDIR/tests/system/install_worker.cc" -o worker $flags

# The manual's examples form one program, except for the model's part.
manual_example()
{
	cat <<-'END'
	#include <err.h>
	#include <pagedclient.h>

	enum { n_layers = 2 };

	static float data[512 * 9 * 64], result[512 * 9 * 64];
	static struct paged_tensor q = { .data = data, .dtype = PAGED_F32, .n_heads = 9, .dim = 64 };
	static struct paged_tensor k = { .data = data, .dtype = PAGED_F32, .n_heads = 3, .dim = 64 };

	static void
	project_qkv(uint32_t layer, float *to_q, float *to_k, float *to_v)
	{
		to_q[layer] = to_k[layer] + to_v[layer];
	}

	int
	main(void)
	{
		struct paged_tensor v = k, out = q;
		uint32_t layer;

		out.data = result;
	END
	sed -n '/^\.Sh EXAMPLES/,/^\.Sh SEE/p' "$PAGED_SRCDIR/man/libpagedclient.3" |
		sed -n '/^\.Bd -literal/,/^\.Ed/{/^\./!p}' | sed 's/\\-/-/g; s/\\e/\\/g'
	echo '	paged_client_close(client);
	return 0;
	}'
}
manual_example >manual.c
# shellcheck disable=SC2086
try_with "$cc" "the manual's examples compile" $cc -std=gnu11 -Wall -Wextra -Werror manual.c -o manual $flags

try "the example of a configuration is accepted" "$sbin/pagedd" --check-config --config "$examples/pagedd.conf" \
	--runtime-dir "$PAGED_RUNTIME_DIR"

# The configuration that the README shows, with less memory and no group.
sed -n 's/^    //; /^pool llama {/,/^}/p' "$PAGED_SRCDIR/README.md" | sed 's/2GiB/64MiB/' >pagedd.conf
try "the README's configuration is accepted" "$sbin/pagedd" --check-config --config pagedd.conf \
	--runtime-dir "$PAGED_RUNTIME_DIR"
"$sbin/pagedd" --config pagedd.conf --runtime-dir "$PAGED_RUNTIME_DIR" 2>log &
daemon=$!
for _ in $(seq 6000); do
	"$bin/pagedctl" status >/dev/null 2>&1 && break
	sleep 0.05
done
try "pagedctl status" "$bin/pagedctl" status
[ ! -x first ] || try "the first example runs" ./first
[ ! -x manual ] || try "the manual's examples run" ./manual
[ ! -x worker ] || try "the C++ program runs" ./worker
try_with python3 "Python calls the library" python3 "$PAGED_SRCDIR/tests/system/install_ffi.py"
try "pagedctl check" "$bin/pagedctl" check

# completes LINE EXPECTED - bash completes the last word of a line so
completes()
{
	# shellcheck disable=SC2016
	PATH=$bin:$sbin:$PATH bash -c '. "$1" && COMP_WORDS=($2) && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) &&
		_paged "${COMP_WORDS[0]}" && echo "$(printf "%s\n" "${COMPREPLY[@]}" | sort -u | tr "\n" " ")"' \
		bash "$bash_completion/${1%% *}" "$1" | tee completed
	[ "$(cat completed)" = "$2 " ]
}
try_with bash "bash completes commands" completes "pagedctl se" "sequences sessions"
try_with bash "bash completes options" completes "pagedd --check" "--check-config"
try_with bash "bash completes pools" completes "pagedctl --pool l" "llama"
try_with zsh "zsh reads its completion" zsh -n "$zsh_completion/_pagedctl"

kill "$daemon"
try "pagedd stops" wait "$daemon"
daemon=
finish
