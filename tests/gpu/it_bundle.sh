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
	"$PAGED_SRCDIR/tools/gpu-bundle" --limit 4096 "$PAGED_BUILDDIR" "$directory/paged-gpu.tar.gz" >"$directory/size" &&
		cat "$directory/size" && mkdir "$directory/elsewhere" &&
		tar -C "$directory/elsewhere" -xzf "$directory/paged-gpu.tar.gz" &&
		test -x "$bundle/run"
}

# The archive is carried to other machines: it has nothing for debuggers, and the kernels' images once.
small()
{
	grep -E "^$directory/paged-gpu.tar.gz: [0-9]+[.][0-9] MiB\$" "$directory/size" || return 1
	for file in "$bundle"/daemon/pagedd "$bundle"/bench/paged-bench "$bundle"/tests/*/it_* \
		"$bundle"/lib/libpagedclient.so*; do
		! readelf -SW "$file" | grep '[.]debug_info' || return 1
	done
	! grep -l cuda_image_attention_mma_ptx_end "$bundle/bench/paged-bench" "$bundle/pagedctl/pagedctl"
}

# It says so, and makes no archive.
too_large()
{
	! "$PAGED_SRCDIR/tools/gpu-bundle" --limit 1 "$PAGED_BUILDDIR" "$directory/large.tar.gz" >"$directory/said" 2>&1 &&
		cat "$directory/said" && [ ! -e "$directory/large.tar.gz" ] &&
		grep -E "large.tar.gz would have [0-9]+[.][0-9] MiB, more than 1: build for one architecture" "$directory/said" &&
		! "$PAGED_SRCDIR/tools/gpu-bundle" --limit 0 "$PAGED_BUILDDIR" "$directory/large.tar.gz" 2>"$directory/said" &&
		grep 'tools/gpu-bundle: --limit 0: not a number of MiB' "$directory/said"
}

# Every library that the loader finds is in the bundle, except the libraries of libc.
own_libraries()
{
	for program in "$bundle"/daemon/pagedd "$bundle"/pagedctl/pagedctl "$bundle"/bench/paged-bench \
		"$bundle"/examples/llama/paged-llama "$bundle"/tests/gpu/conformance "$bundle"/tests/*/it_*; do
		bare LD_LIBRARY_PATH="$bundle/lib:$bundle/lib/fallback" ldd "$program"
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

# Our libstdc++ may need a newer glibc than the programs, so it is loaded only in place of one that they cannot use.
fallback_libraries()
{
	library=$(cd "$bundle/lib/fallback" && echo libstdc++.so.*)
	mkdir "$directory/old" && echo "of an old machine" >"$directory/old/$library" || return 1
	bare LD_DEBUG=libs "$bundle/run" pagedd --version 2>"$directory/machines" &&
		grep "calling init: .*/$library" "$directory/machines" &&
		! grep -F "calling init: $bundle/lib/fallback/" "$directory/machines" &&
		bare LD_DEBUG=libs LD_LIBRARY_PATH="$directory/old" "$bundle/run" pagedd --version 2>"$directory/ours" &&
		grep -F "calling init: $bundle/lib/fallback/$library" "$directory/ours"
}

# tool_make FOLDER NAME: a tool of another machine, whose script is the standard input.
tool_make()
{
	mkdir -p "$directory/$1" && { echo '#!/bin/sh' && cat; } >"$directory/$1/$2" && chmod +x "$directory/$1/$2"
}

# stops_with LINE COMMAND...: it fails, and this line is all that it says.
stops_with()
{
	line=$1
	shift
	! "$@" >"$directory/said" 2>&1 && cat "$directory/said" && grep -xF "$line" "$directory/said" &&
		[ "$(wc -l <"$directory/said")" -eq 1 ]
}

# Either of two tools tells the version of glibc.
old_glibc()
{
	needed=$(sed -n 's/^glibc //p' "$bundle/needs")
	says="run: this machine has glibc 2.17, and the programs of this bundle need $needed or later"
	grep "^needs    glibc $needed, " "$bundle/README" && echo 'echo glibc 2.17' | tool_make glibc getconf &&
		stops_with "$says" bare PATH="$directory/glibc:$PATH" "$bundle/run" first "$directory/none" &&
		stops_with "$says" bare PATH="$directory/glibc:$PATH" "$bundle/run" pagedd --version &&
		echo 'exit 1' | tool_make glibc getconf && echo 'echo "ldd (GNU libc) 2.17"' | tool_make glibc ldd &&
		stops_with "$says" bare PATH="$directory/glibc:$PATH" "$bundle/run" pagedd --version &&
		echo 'echo "ldd (GNU libc) 2.900"' | tool_make glibc ldd &&
		bare PATH="$directory/glibc:$PATH" "$bundle/run" pagedd --version
}

# Of 13.0, whatever this build's toolkit is.
old_driver()
{
	needs="$bundle/needs"
	cp "$needs" "$directory/needs" && sed -i 's/^toolkit .*/toolkit 13.0/; s/^driver .*/driver 580/' "$needs" || return 1
	says="run: the driver is 570.86.15, and kernels built with CUDA 13.0 need 580 or later: take a newer driver"
	echo '[ "$1" = --query-gpu=driver_version ] && echo 570.86.15' | tool_make driver_tools nvidia-smi &&
		for mode in "first $directory/none" "all $directory/none" "permitted $directory/none" tests; do
			# shellcheck disable=SC2086 # words
			stops_with "$says, or a bundle built with CUDA 12" bare PATH="$directory/driver_tools:$PATH" "$bundle/run" \
				$mode || return 1
		done && [ ! -e "$directory/none" ] &&
		bare PATH="$directory/driver_tools:$PATH" ANY_DRIVER=1 "$bundle/run" first "$directory/any" machine &&
		sed -i 's/^toolkit .*/toolkit 12.8/; s/^driver .*/driver 525/' "$needs" &&
		bare PATH="$directory/driver_tools:$PATH" "$bundle/run" first "$directory/new" machine >"$directory/said" 2>&1 &&
		! grep '^run: ' "$directory/said" && echo 'echo failed; exit 9' | tool_make driver_tools nvidia-smi &&
		bare PATH="$directory/driver_tools:$PATH" "$bundle/run" first "$directory/new" machine >"$directory/said" 2>&1 &&
		grep '^run: no nvidia-smi tells whether the driver is 525 or later$' "$directory/said" &&
		mv "$directory/needs" "$needs"
}

# The environment that make check sets says whether kernels are built in.
kernels_told()
{
	if [ "$CUDA_IMAGES" = yes ]; then says="built in"; else says="none: "; fi
	toolkit=$(sed -n 's/^toolkit //p' "$bundle/needs")
	if [ "$CUDA_IMAGES" = yes ] || [ -e "$bundle/tests/gpu/conformance.fatbin" ]; then
		case $toolkit in
		12.*) needed=525 ;;
		13.*) needed=580 ;;
		*) return 1 ;;
		esac
		grep "^needs .* $needed or later (CUDA $toolkit)\$" "$bundle/README" || return 1
	elif [ -n "$toolkit" ]; then
		return 1
	fi
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
		grep -v '^{' "$directory/steps" | cmp - "$directory/results/steps.txt" &&
		[ "$(grep -c ': ' "$directory/results/steps.txt")" -eq 4 ] && grep -E '^(conformance|table): done' "$directory/steps" &&
		grep '^NVRTC: ' "$directory/results/machine.txt" && grep '# SKIP no CUDA d' "$directory/results/conformance.tap" &&
		grep '"name": "all".*"skipped"' "$directory/results/torch.jsonl"
}

# The fake CUDA driver in place of a machine's, and a checker of NVIDIA's that only runs the program.
on_fake_gpu()
{
	# The limits are for a GPU, and this machine may be busy.
	bare PATH="$directory/tools:$PATH" LD_LIBRARY_PATH="$directory/driver" BENCH_OPTIONS="--quick --group-limit 900" \
		LIMITS_TIMES=60 PAGED_TEST_LIMIT=1800 CHECKED="$directory/checked" "$@"
}

# As a machine's driver, it can be loaded by every user, whoever may enter the build directory.
driver_install()
{
	mkdir "$directory/driver" && cp "$PAGED_BUILDDIR"/tests/fake-cuda/.libs/lib*.so.* "$directory/driver" &&
		chmod 0711 "$directory" && chmod -R a+rX "$directory/driver"
}

tools_make()
{
	tool_make tools compute-sanitizer <<'TOOL'
echo "$*" >>"$CHECKED"
[ "$1 $3 $4" = "--tool --error-exitcode 9" ] && shift 4 && exec "$@"
TOOL
}

archive_files()
{
	tar -tzf "$1" | grep -v '/$' | sed 's,.*/,,' | sort
}

# Every figure is a line of JSON, and every step has put its results into the archive.
first_steps()
{
	driver_install && tools_make && on_fake_gpu "$bundle/run" first "$directory/first" machine conformance bench pool sanitize \
		>"$directory/said" && cat "$directory/said" &&
		[ "$(archive_files "$directory/first.tar.gz" | wc -l)" -le 8 ] &&
		[ "$(archive_files "$directory/first.tar.gz")" = "$(ls "$directory/first")" ] &&
		mkdir "$directory/back" && tar -C "$directory/back" -xzf "$directory/first.tar.gz" &&
		diff -r "$directory/first" "$directory/back/first" &&
		[ "$(grep -c '^bench .*: done' "$directory/first/steps.txt")" -eq 8 ] &&
		grep '^pool: done, .* 0 failed' "$directory/first/steps.txt" &&
		grep '^{' "$directory/said" | cmp - "$directory/first/bench.jsonl" &&
		grep '^--tool racecheck .*it_cuda_batch --in-process decode_in_16_bit_dtypes$' "$directory/checked" &&
		grep '^ok - memcheck it_cuda_batch decode_in_16_bit_dtypes *$' "$directory/first/sanitize.txt" &&
		python3 - "$directory/first/bench.jsonl" <<'CHECK'
import json, sys

cases = [json.loads(line) for line in open(sys.argv[1])]
medians = {case["name"]: case["median"] for case in cases if "name" in case}
wanted = {"1 GB read", "decode 16 x 8k", "decode 64 x 8k", "prefill 1 x 8k", "decode 16 x 8k, MLA", "append 5000"}
sys.exit(not wanted <= medians.keys() or min(medians.values()) <= 0 or "fake GPU" not in cases[0]["machine"])
CHECK
}

# Each figure follows a line that says what was permitted.
permitted_steps()
{
	on_fake_gpu "$bundle/run" permitted "$directory/permitted" >"$directory/said" && cat "$directory/said" &&
		[ "$(grep -c '^permitted PAGED_[A-Z0-9_]*=[01].*: done' "$directory/permitted/steps.txt")" -eq 12 ] &&
		python3 - "$directory/permitted/permitted.jsonl" <<'CHECK'
import json, sys

seen, permitted = set(), None
for case in map(json.loads, open(sys.argv[1])):
    permitted = case.get("environment", permitted)
    if case.get("median", 0) > 0:
        seen.add((permitted, case["name"]))
sys.exit(not {("PAGED_BULK=1", "decode 16 x 8k"), ("PAGED_BULK=0", "decode 1 x 8k"), ("PAGED_PDL=1", "decode 1 x 1k"),
              ("PAGED_WGMMA=1", "prefill 1 x 8k"), ("PAGED_WGMMA=1", "decode 16 x 8k, MLA"),
              ("PAGED_CLUSTERS=1", "decode 16 x 8k, MLA")} <= seen)
CHECK
}

# task_of PID: the running step of a run.
task_of()
{
	awk -v parent="$1" '$2 == "(timeout)" && $4 == parent { print $1 }' /proc/[0-9]*/stat 2>/dev/null
}

wait_for_line()
{
	while ! grep -q "$1" "$2" 2>/dev/null; do
		kill -0 "$3" || return 1
		sleep 0.1
	done
}

# Kernels that are killed with it leave the archive of the steps before.
killed_in_a_step()
{
	on_fake_gpu sh -c 'echo $$ >"$1" && exec "$2" first "$3" machine graph' sh "$directory/pid" "$bundle/run" \
		"$directory/killed" >"$directory/said" &
	wait_for_line '^# it_cuda_graph' "$directory/killed/tests.tap" $! || return 1
	pid=$(cat "$directory/pid")
	task=$(task_of "$pid")
	kill -KILL "$pid"
	kill "$task"
	[ "$(archive_files "$directory/killed.tar.gz" | tr '\n' ' ')" = "errors.txt machine.txt steps.txt " ] &&
		tar -xzOf "$directory/killed.tar.gz" killed/steps.txt | grep '^machine: ' &&
		tar -xzOf "$directory/killed.tar.gz" killed/machine.txt | grep '^NVRTC: '
}

ends()
{
	while kill -0 "$1" 2>/dev/null; do sleep 0.1; done
}

# What an interrupted run has started ends with it.
interrupted()
{
	on_fake_gpu sh -c 'echo $$ >"$1" && exec "$2" first "$3" graph' sh "$directory/pid" "$bundle/run" \
		"$directory/interrupted" >"$directory/said" &
	run=$!
	wait_for_line '^# it_cuda_graph' "$directory/interrupted/tests.tap" $run || return 1
	task=$(task_of "$(cat "$directory/pid")")
	kill "$(cat "$directory/pid")"
	wait $run
	[ $? -eq 130 ] || return 1
	ends "$task"
}

# Another nvidia-smi is a client of the driver until the run has ended, also by SIGKILL.
kept_awake()
{
	tool_make awake nvidia-smi <<'TOOL' || return 1
case $1 in
-l) echo $$ >"$CLIENT.new" && mv "$CLIENT.new" "$CLIENT" && exec sleep 900 ;;
--query-gpu=driver_version) echo 999.1 ;;
"")
	until [ -e "$CLIENT" ]; do sleep 0.1; done
	kill -0 "$(cat "$CLIENT")" && echo "GPU $CUDA_VISIBLE_DEVICES has a client"
	sleep "${HOLD-0}"
	;;
esac
TOOL
	on_fake_gpu PATH="$directory/awake:$PATH" CLIENT="$directory/client" "$bundle/run" first "$directory/kept" machine &&
		grep '^GPU 0 has a client$' "$directory/kept/machine.txt" && ends "$(cat "$directory/client")" || return 1
	rm "$directory/client"
	on_fake_gpu PATH="$directory/awake:$PATH" CLIENT="$directory/client" HOLD=5 CUDA_VISIBLE_DEVICES=1 sh -c \
		'echo $$ >"$1" && exec "$2" first "$3" machine' sh "$directory/pid" "$bundle/run" "$directory/left" &
	wait_for_line '^GPU 1 has a client$' "$directory/left/machine.txt" $! || return 1
	kill -KILL "$(cat "$directory/pid")"
	ends "$(cat "$directory/client")"
}

# Tests of kernels say nothing new if the instructions that they use are wrong; times do.
matrices_wrong()
{
	mkdir "$directory/wrong" && echo "# a.c:1: n_wrong == 0: mma_bf16_layout: 1 of 9 words differ
not ok 7 - mma_bf16_layout" >"$directory/wrong/conformance.tap" &&
		on_fake_gpu "$bundle/run" first "$directory/wrong" batch graph sanitize >"$directory/said" &&
		cat "$directory/said" && grep '^batch, work, graph: omitted' "$directory/wrong/steps.txt" &&
		! grep '^batch: ' "$directory/wrong/steps.txt" && grep '^sanitize memcheck: done' "$directory/wrong/steps.txt"
}

# A case that hung, and one that was skipped, are no reason to omit a test of kernels.
matrices_unknown()
{
	mkdir "$directory/unknown" && echo "# mma_bf16_layout: no end after 15 s
not ok 6 - mma_bf16_layout" >"$directory/unknown/conformance.tap" &&
		on_fake_gpu CUDA_VISIBLE_DEVICES= "$bundle/run" first "$directory/unknown" conformance batch graph \
			>"$directory/said" && cat "$directory/said" &&
		grep '^batch, work, graph: not known' "$directory/unknown/steps.txt" &&
		[ "$(grep -cE '^(batch|graph): done' "$directory/unknown/steps.txt")" -eq 2 ]
}

# Of a kernel that hangs, the test that launched it.  The conformance program would need kernels built by nvcc.
hangs_end()
{
	on_fake_gpu PAGED_TEST_LIMIT=1 PAGED_FAKE_CUDA_FAIL=cuLaunchKernel@1=hang "$bundle/run" first "$directory/hung" \
		work >"$directory/said" && cat "$directory/said" &&
		grep '^work: ended with 1, .* 0 passed, 5 failed, 0 skipped' "$directory/hung/steps.txt" &&
		[ "$(grep -c ': no end after 1 s$' "$directory/hung/tests.tap")" -ge 5 ]
}

nvrtc_found()
{
	bare PAGED_NVRTC=/nonexistent/libnvrtc.so.13 "$bundle/run" nvrtc | grep -xF "NVRTC: /nonexistent/libnvrtc.so.13"
}

# nvrtc_says DRIVER LOADER PYTHON: what run says with this driver, with the versions that the loader finds, and with the
# version among Python's packages.
nvrtc_says()
{
	bare PATH="$directory/nvrtc:$PATH" DRIVER="$1" LOADER="$2" PYTHON="$3" "$bundle/run" nvrtc
}

# A driver loads what NVRTC of its own version of CUDA or an older one has compiled.
nvrtc_fits()
{
	tool_make nvrtc nvidia-smi <<'TOOL' && tool_make nvrtc ldconfig <<'TOOL2' && tool_make nvrtc python3 <<'TOOL3' || return 1
[ "$1" = --query-gpu=driver_version ] && echo "$DRIVER"
TOOL
for version in $LOADER; do
	echo "	libnvrtc.so.$version (libc6,x86-64) => /loader/libnvrtc.so.$version"
done
TOOL2
[ "$3" != "$PYTHON" ] || echo "${0%/*}/libnvrtc.so.$PYTHON"
TOOL3
	touch "$directory/nvrtc/libnvrtc.so.12"
	nvrtc_says 580.65.06 13 12 | grep -xF "NVRTC: /loader/libnvrtc.so.13" &&
		nvrtc_says 570.86.15 "13 12" none | grep -xF "NVRTC: /loader/libnvrtc.so.12" || return 1
	for file in /usr/local/cuda*/lib64/libnvrtc.so.1[12]* /usr/local/cuda*/targets/*/lib/libnvrtc.so.1[12]*; do
		[ ! -e "$file" ] || return 0
	done
	nvrtc_says 570.86.15 13 12 | grep -xF "NVRTC: $directory/nvrtc/libnvrtc.so.12" &&
		nvrtc_says 570.86.15 13 none |
		grep "^NVRTC: /loader/libnvrtc.so.13, newer than the driver, which supports CUDA 12 and may not load"
}

refused()
{
	! "$PAGED_SRCDIR/tools/gpu-bundle" "$PAGED_BUILDDIR" "$bundle" 2>"$directory/said" &&
		grep "is there already" "$directory/said" &&
		! bare "$bundle/run" no-such-program
}

try "a bundle is packed" pack_and_move
try "it is small" small
try "an archive that is too large is refused" too_large
try "its programs find every library in it" own_libraries
try "the machine's libstdc++ is taken unless it is too old" fallback_libraries
try "a glibc that is too old is told" old_glibc
try "a driver that is too old is told" old_driver
try "it says whether it has kernels for a GPU" kernels_told
try "pagedd says its version" version
try "workers share a pool" worker
try "tests of the GPU are skipped where there is none" gpu_tests
try "all that a GPU is for, in steps" all_steps
if [ -e "$PAGED_BUILDDIR/tests/fake-cuda/.libs/libcuda.so.1" ]; then
	try "first light: steps, figures and one archive" first_steps
	try "figures of what is off by default" permitted_steps
	try "a run that is killed leaves the archive of the steps before" killed_in_a_step
	try "an interrupted run ends its step" interrupted
	try "the driver has a client until a run ends" kept_awake
	try "kernels are not tested if matrix instructions are wrong" matrices_wrong
	try "and are if it is not known" matrices_unknown
	try "a kernel that hangs ends only its test" hangs_end
else
	skip "first light" "the fake CUDA driver is not built"
fi
try "a CUDA compiler elsewhere is taken" nvrtc_found
try "one that fits the driver is taken first" nvrtc_fits
try "what cannot be is refused" refused
finish
