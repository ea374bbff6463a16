#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/gpu-bundle: the bundle runs on other machines, with an empty environment and only its own libraries.
. "$PAGED_SRCDIR/tests/support/tap.sh"
bundle=$directory/elsewhere/paged-gpu

# As on a machine where nothing was installed.  What a sanitizer shall not report stays known.
bare()
{
	(cd / && env -i ${LSAN_OPTIONS:+"LSAN_OPTIONS=$LSAN_OPTIONS"} "$@")
}

pack_and_move()
{
	"$PAGED_SRCDIR/tools/gpu-bundle" "$PAGED_BUILDDIR" "$directory/paged-gpu.tar.gz" &&
		mkdir "$directory/elsewhere" &&
		tar -C "$directory/elsewhere" -xzf "$directory/paged-gpu.tar.gz" &&
		test -x "$bundle/run"
}

# Every library that the loader finds is in the bundle, except the libraries of libc.
own_libraries()
{
	for program in "$bundle"/daemon/pagedd "$bundle"/pagedctl/pagedctl "$bundle"/bench/paged-bench \
		"$bundle"/examples/llama/paged-llama "$bundle"/tests/gpu/conformance "$bundle"/tests/*/it_*; do
		bare LD_LIBRARY_PATH="$bundle/lib" ldd "$program"
	done >"$directory/libraries" || return 1
	grep 'not found' "$directory/libraries" && return 1
	awk -v lib="$bundle/lib/" '$2 == "=>" && index($3, lib) != 1 { print $1 }' "$directory/libraries" |
		grep -vE '^lib(c|m|mvec|dl|pthread|rt|resolv|util|nsl|anl)[.]so' && return 1
	for library in libc libm libpthread libcuda ld-linux-x86-64; do
		for file in "$bundle/lib/$library".so*; do
			[ ! -e "$file" ] || return 1
		done
	done
}

# The environment that make check sets says whether kernels are built in.
kernels_told()
{
	if [ "$CUDA_IMAGES" = yes ]; then says="built in"; else says="none: "; fi
	grep "^kernels  $says" "$bundle/README"
}

version()
{
	bare "$bundle/run" pagedd --version >"$directory/version" &&
		"$PAGED_BUILDDIR/daemon/pagedd" --version | cmp - "$directory/version"
}

worker()
{
	bare "$bundle/run" it_sharing >"$directory/tap" || { cat "$directory/tap"; return 1; }
	grep '^ok 1 - ' "$directory/tap" && ! grep SKIP "$directory/tap"
}

# Without a driver, the GPU tests are reported as skipped.
gpu_tests()
{
	bare PAGED_TEST_REAL_CUDA=1 CUDA_VISIBLE_DEVICES= "$bundle/run" it_cuda_work >"$directory/tap"
	code=$?
	cat "$directory/tap"
	[ "$code" -eq 0 ] && grep '^ok 1 - .* # SKIP no CUDA d' "$directory/tap"
}

# What a lent machine is asked for, one step after the other, and what became of each.
all_steps()
{
	bare PATH="$PATH" CUDA_VISIBLE_DEVICES= "$bundle/run" all "$directory/results" machine conformance torch table \
		>"$directory/steps" && cat "$directory/steps" &&
		cmp "$directory/steps" "$directory/results/steps.txt" &&
		[ "$(grep -c ': ' "$directory/steps")" -eq 4 ] && grep -E '^(conformance|table): done' "$directory/steps" &&
		grep '^NVRTC: ' "$directory/results/machine.txt" && grep '# SKIP no CUDA d' "$directory/results/conformance.tap" &&
		grep '"name": "all".*"skipped"' "$directory/results/torch.jsonl"
}

nvrtc_found()
{
	bare PAGED_NVRTC=/nonexistent/libnvrtc.so.13 "$bundle/run" nvrtc | grep -xF "NVRTC: /nonexistent/libnvrtc.so.13"
}

refused()
{
	! "$PAGED_SRCDIR/tools/gpu-bundle" "$PAGED_BUILDDIR" "$bundle" 2>"$directory/said" &&
		grep "is there already" "$directory/said" &&
		! bare "$bundle/run" no-such-program
}

try "a bundle is packed" pack_and_move
try "its programs find every library in it" own_libraries
try "it says whether it has kernels for a GPU" kernels_told
try "pagedd says its version" version
try "workers share a pool" worker
try "tests of the GPU are skipped where there is none" gpu_tests
try "all that a GPU is for, in steps" all_steps
try "a CUDA compiler elsewhere is taken" nvrtc_found
try "what cannot be is refused" refused
finish
