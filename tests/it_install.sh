#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What make install puts down is enough: programs in C, C++ and Python use it.
. "$PAGED_SRCDIR/tests/tap.sh"
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null; rm -rf "$directory"' EXIT

# Where configure was told to put things; later ones are made of earlier ones.
root=$directory/root
for name in prefix exec_prefix datarootdir bindir sbindir libdir includedir mandir; do
	eval "$name=\"$(sed -n "s/^$name = //p" "$PAGED_BUILDDIR/Makefile")\""
done
# shellcheck disable=SC2154 # the loop sets them
bin=$root$bindir sbin=$root$sbindir lib=$root$libdir include=$root$includedir man=$root$mandir

install_all()
{
	# The make that runs the tests is not to be heard by this one.
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$PAGED_BUILDDIR" install DESTDIR="$root"
}
try "make install" install_all

expected()
{
	ls "$bin/pagedctl" "$sbin/pagedd" "$include/pagedclient.h" "$include/paged_admin.h" \
		"$include/paged_attention.h" "$include/paged_marks.h" "$include/paged_mods.h" \
		"$include/paged_types.h" \
		"$lib/libpagedclient.so" "$lib/libpagedclient.so.0" "$lib/pkgconfig/pagedclient.pc" \
		"$man/man8/pagedd.8" "$man/man8/pagedctl.8" "$man/man5/pagedd.conf.5" \
		"$man/man3/libpagedclient.3" "$man/man7/paged-protocol.7"
}
try "everything is in its place" expected

if "$sbin/pagedd" --version | grep -q '^sanitizers *yes'; then
	skip "programs use it" "built with sanitizers"
	finish
fi

export PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
export LD_LIBRARY_PATH="$lib" PAGED_RUNTIME_DIR="$directory/runtime"
flags=$(pkg-config --cflags --libs pagedclient) || flags=
cd "$directory" || exit 99
cc=${CC:-cc}
cxx=${CXX:-c++}

# shellcheck disable=SC2086 # flags are words
try_with "$cc" "the README's program compiles" \
	$cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$PAGED_SRCDIR/examples/first.c" -o first $flags
# shellcheck disable=SC2086
try_with "$cxx" "a C++ program compiles" \
	$cxx -std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Wpedantic -Werror "$PAGED_SRCDIR/tests/install_worker.cc" -o worker $flags

# The manual's examples are one program, but for the model's part.
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

# The configuration that the README shows, with less memory and no group.
sed -n 's/^    //; /^pool llama {/,/^}/p' "$PAGED_SRCDIR/README.md" | sed 's/2GiB/64MiB/' >pagedd.conf
try "the README's configuration is accepted" "$sbin/pagedd" --check-config --config pagedd.conf
"$sbin/pagedd" --config pagedd.conf --runtime-dir "$PAGED_RUNTIME_DIR" 2>log &
daemon=$!
for _ in $(seq 200); do
	"$bin/pagedctl" status >/dev/null 2>&1 && break
	sleep 0.05
done
try "pagedctl status" "$bin/pagedctl" status
[ ! -x first ] || try "the README's program runs" ./first
[ ! -x manual ] || try "the manual's examples run" ./manual
[ ! -x worker ] || try "the C++ program runs" ./worker
try_with python3 "Python calls the library" python3 "$PAGED_SRCDIR/tests/install_ffi.py"
try "pagedctl check" "$bin/pagedctl" check

kill "$daemon"
try "pagedd stops" wait "$daemon"
daemon=
finish
