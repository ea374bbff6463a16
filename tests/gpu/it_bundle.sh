#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/gpu-bundle: the bundle runs on other machines, with an empty environment and only its own libraries.
. "$PAGED_SRCDIR/tests/support/tap.sh"
bundle=$directory/elsewhere/paged-gpu

# As on a machine where nothing was installed.  The list of what a sanitizer must not report stays.
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
		"$bundle"/tests/system/*/it_* "$bundle"/lib/libpagedclient.so*; do
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
		"$bundle"/examples/llama/paged-llama "$bundle"/tests/gpu/conformance "$bundle"/tests/*/it_* \
		"$bundle"/tests/system/*/it_*; do
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
		stops_with "$says" bare PATH="$directory/glibc:$PATH" "$bundle/run" light "$directory/none" &&
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
		for mode in "light $directory/none" tests; do
			# shellcheck disable=SC2086 # words
			stops_with "$says, or a bundle built with CUDA 12" bare PATH="$directory/driver_tools:$PATH" "$bundle/run" \
				$mode || return 1
		done && [ ! -e "$directory/none" ] &&
		bare PATH="$directory/driver_tools:$PATH" ANY_DRIVER=1 "$bundle/run" light "$directory/any" machine &&
		sed -i 's/^toolkit .*/toolkit 12.8/; s/^driver .*/driver 525/' "$needs" &&
		bare PATH="$directory/driver_tools:$PATH" "$bundle/run" light "$directory/new" machine >"$directory/said" 2>&1 &&
		! grep '^run: ' "$directory/said" && echo 'echo failed; exit 9' | tool_make driver_tools nvidia-smi &&
		bare PATH="$directory/driver_tools:$PATH" "$bundle/run" light "$directory/new" machine >"$directory/said" 2>&1 &&
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

# result_of RESULTS FILE: print a file of the archive.
result_of()
{
	tar -xzOf "$directory/$1/results.tar.gz" "results/$2"
}

# The whole command where there is no GPU: each step ends, and what is off by default is omitted, as no case has passed.
without_gpu()
{
	bare PATH="$PATH" CUDA_VISIBLE_DEVICES= TMPDIR="$directory" LIGHT_S=3600 LIMITS_TIMES=60 "$bundle/run" light \
		"$directory/results" >"$directory/steps" && cat "$directory/steps" &&
		grep -v '^{' "$directory/steps" | cmp - "$directory/results/steps.txt" &&
		cut -d ' ' -f 1 "$directory/steps" | tr -d :, | grep -v '^{' | uniq | tr '\n' ' ' | grep -x "machine \
conformance bench opt-in tests opt-in-tests graph marks pool sanitize " &&
		[ "$(grep -v '^sanitize' "$directory/steps" | grep -c ': done, ')" -eq 11 ] &&
		[ "$(grep -cE '^sanitize (seen|memcheck|racecheck): ' "$directory/steps")" -eq 3 ] &&
		[ "$(grep -c '^opt-in.*: omitted' "$directory/steps")" -eq 10 ] &&
		grep '^opt-in-tests PAGED_CLUSTERS: omitted, because wgmma_bf16 of conformance has not passed' "$directory/steps" &&
		result_of results machine.txt | grep '^NVRTC: ' &&
		result_of results conformance.tap | grep '# SKIP no CUDA d' || return 1
	for left in "$directory"/tmp.*; do
		[ ! -e "$left" ] || return 1
	done
}

# Programs that run all of what light has parts of.
torch_and_table()
{
	bare PATH="$PATH" CUDA_VISIBLE_DEVICES= "$bundle/run" paged-bench run --lines gpu >"$directory/bench.jsonl" &&
		bare PATH="$PATH" CUDA_VISIBLE_DEVICES= python3 "$bundle/bench/peers/gpu_torch.py" >"$directory/torch.jsonl" &&
		grep '"name": "all".*"skipped"' "$directory/torch.jsonl" &&
		python3 "$bundle/bench/peers/peer_table.py" "$directory/bench.jsonl" "$directory/torch.jsonl"
}

# The fake CUDA driver in place of a machine's, and a checker of NVIDIA's that only runs the program.
on_fake_gpu()
{
	# The limits are for a GPU, and this machine may be busy.
	bare PATH="$directory/tools:$PATH" LD_LIBRARY_PATH="$directory/driver" BENCH_OPTIONS="--quick --group-limit 900" \
		LIGHT_S=36000 LIMITS_TIMES=60 PAGED_TEST_LIMIT=1800 TMPDIR="$directory" CHECKED="$directory/checked" "$@"
}

# As a machine's driver, it can be loaded by every user, also one who may not enter the build directory.
driver_install()
{
	mkdir "$directory/driver" && cp "$PAGED_BUILDDIR"/tests/fake-cuda/.libs/lib*.so.* "$directory/driver" &&
		chmod 0711 "$directory" && chmod -R a+rX "$directory/driver" || return 1
	# Any image has the fake driver's kernels.
	[ -e "$bundle/tests/gpu/conformance.fatbin" ] ||
		printf 'paged fake-cuda: built in\0' >"$bundle/tests/gpu/conformance.fatbin"
}

tools_make()
{
	tool_make tools compute-sanitizer <<'TOOL'
echo "$*" >>"$CHECKED"
[ "$1 $3 $4" = "--tool --error-exitcode 9" ] && shift 4 && exec "$@"
TOOL
	tool_make tools ncu <<'TOOL'
echo "ncu $*" >>"$CHECKED"
TOOL
}

archive_files()
{
	tar -tzf "$directory/$1/results.tar.gz" | grep -v '/$' | sed 's,.*/,,' | sort | tr '\n' ' '
}

# Every figure is a line of JSON, and every step has put its results into the archive.  What is off by default is
# measured after the conformance cases of it have passed.
light_steps()
{
	driver_install && tools_make && on_fake_gpu "$bundle/run" light "$directory/light" machine conformance bench opt-in \
		pool sanitize >"$directory/said" && cat "$directory/said" &&
		[ "$(find "$directory/light" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' ')" = "bench.jsonl opt-in.jsonl results.tar.gz steps.txt " ] &&
		[ "$(archive_files light)" = "bench.jsonl conformance.tap conformance.txt errors.txt machine.txt opt-in.jsonl \
sanitize.txt steps.txt tests.tap " ] || return 1
	for file in bench.jsonl opt-in.jsonl steps.txt; do
		result_of light "$file" | cmp - "$directory/light/$file" || return 1
	done
	[ "$(grep -c '^bench .*: done' "$directory/light/steps.txt")" -eq 4 ] &&
		[ "$(grep -c '^opt-in PAGED_[A-Z0-9_=]* .*: done' "$directory/light/steps.txt")" -eq 6 ] &&
		grep '^pool: done, .* 0 failed' "$directory/light/steps.txt" &&
		cat "$directory/light/bench.jsonl" "$directory/light/opt-in.jsonl" >"$directory/figures" &&
		grep '^{' "$directory/said" | cmp - "$directory/figures" &&
		grep '^--tool racecheck .*it_cuda_batch --in-process decode_in_16_bit_dtypes$' "$directory/checked" &&
		grep '^ncu --clock-control none ' "$directory/checked" &&
		result_of light sanitize.txt | grep '^ok - memcheck it_cuda_batch decode_in_16_bit_dtypes *$' &&
		python3 - "$directory/light/bench.jsonl" "$directory/light/opt-in.jsonl" <<'CHECK'
import json, sys

cases = [json.loads(line) for line in open(sys.argv[1])]
medians = {case["name"]: case["median"] for case in cases if "name" in case}
wanted = {"1 GB read", "decode 16 x 8k", "prefill 1 x 8k", "decode 16 x 8k, MLA"}
if not wanted <= medians.keys() or min(medians.values()) <= 0 or "fake GPU" not in cases[0]["machine"]:
    sys.exit(f"bench: {cases}")
seen, permitted = set(), None
for case in map(json.loads, open(sys.argv[2])):
    permitted = case.get("environment", permitted)
    if case.get("median", 0) > 0:
        seen.add((permitted, case["name"]))
wanted = {("PAGED_BULK=1", "decode 16 x 8k"), ("PAGED_PDL=0", "decode 1 x 1k"), ("PAGED_PDL=1", "decode 1 x 1k"),
          ("PAGED_WGMMA=1", "prefill 1 x 8k"), ("PAGED_WGMMA=1", "decode 16 x 8k, MLA"),
          ("PAGED_WGMMA=1 PAGED_CLUSTERS=1", "decode 16 x 8k, MLA")}
sys.exit(not wanted <= seen and f"opt-in: {seen}")
CHECK
}

# An sm_91 has no wgmma and no clusters.
opt_in_that_passed()
{
	on_fake_gpu PAGED_FAKE_CUDA_ATTRIBUTES=76=1 "$bundle/run" light "$directory/apart" conformance opt-in-tests \
		>"$directory/said" && cat "$directory/said" &&
		grep '^opt-in-tests PAGED_WGMMA: omitted, because wgmma_bf16 of conformance has not passed$' "$directory/said" &&
		grep '^opt-in-tests PAGED_BULK: done, .* 2 passed, 0 failed, ' "$directory/said" &&
		result_of apart opt-in.tap | grep '^ok 1 - bulk_copies_run_on_request$' &&
		! result_of apart opt-in.tap | grep ' shapes_of_prefill'
}

# The kernels that run by default are compared with float64 before what may hang.
defaults_apart()
{
	for program in it_cuda_batch it_cuda_prefill it_cuda_graph_attention; do
		bare PAGED_TEST_OPT_IN=none "$bundle/run" "$program" --list >"$directory/names" &&
			grep . "$directory/names" && ! grep -E '_by_|overlapping|_on_request' "$directory/names" || return 1
	done
}

# A step that hangs costs its own limit, and what the others have is in the archive.
hung_step()
{
	tool_make hung nvidia-smi <<'TOOL'
[ $# -gt 0 ] || exec sleep 36000
TOOL
	on_fake_gpu PATH="$directory/hung:$PATH" LIMITS_TIMES=1 "$bundle/run" light "$directory/stuck" machine marks \
		>"$directory/said" && cat "$directory/said" && grep '^machine: stopped after its 15 s, ' "$directory/said" &&
		grep '^marks: ' "$directory/said" &&
		[ "$(archive_files stuck)" = "errors.txt machine.txt steps.txt tests.tap " ]
}

# What does not fit into the time of the whole command is said.
no_time_left()
{
	on_fake_gpu LIGHT_S=1 "$bundle/run" light "$directory/late" machine marks >"$directory/said" && cat "$directory/said" &&
		[ "$(cat "$directory/said")" = "machine: omitted, because the 1 s are over
marks: omitted, because the 1 s are over" ] && [ "$(archive_files late)" = "steps.txt " ]
}

# task_of PID: the running step of a run.
task_of()
{
	# Not awk alone, which ends at the first process that has ended meanwhile.
	cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent="$1" '$2 == "(timeout)" && $4 == parent { print $1 }'
}

wait_for_line()
{
	# shellcheck disable=SC2086 # a pattern of file names
	while ! grep -qs "$1" $2; do
		kill -0 "$3" || return 1
		sleep 0.1
	done
}

# begin_graph RESULTS: a run whose step has begun.
begin_graph()
{
	rm -rf "$directory"/tmp.*
	on_fake_gpu sh -c 'echo $$ >"$1" && exec "$2" light "$3" machine graph' sh "$directory/pid" "$bundle/run" \
		"$directory/$1" >"$directory/said" &
	run=$!
	wait_for_line '^# it_cuda_graph' "$directory/tmp.*/results/tests.tap" "$run" || return 1
	pid=$(cat "$directory/pid")
	task=$(task_of "$pid")
	[ -n "$task" ]
}

# Kernels that are killed with it leave the archive of the steps before.
killed_in_a_step()
{
	begin_graph killed || return 1
	kill -KILL "$pid"
	kill "$task"
	[ "$(archive_files killed)" = "errors.txt machine.txt steps.txt " ] &&
		result_of killed steps.txt | grep '^machine: ' && result_of killed machine.txt | grep '^NVRTC: '
}

ends()
{
	while kill -0 "$1" 2>/dev/null; do sleep 0.1; done
}

# What an interrupted run has started ends with it, and its results are packed.
interrupted()
{
	begin_graph interrupted || return 1
	kill "$pid"
	wait "$run"
	[ $? -eq 130 ] || return 1
	ends "$task"
	result_of interrupted tests.tap | grep '^# it_cuda_graph' && ! result_of interrupted steps.txt | grep '^graph: '
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
	on_fake_gpu PATH="$directory/awake:$PATH" CLIENT="$directory/client" "$bundle/run" light "$directory/kept" machine &&
		result_of kept machine.txt | grep '^GPU 0 has a client$' && ends "$(cat "$directory/client")" || return 1
	rm -r "$directory/client" "$directory"/tmp.*
	on_fake_gpu PATH="$directory/awake:$PATH" CLIENT="$directory/client" HOLD=5 CUDA_VISIBLE_DEVICES=1 sh -c \
		'echo $$ >"$1" && exec "$2" light "$3" machine' sh "$directory/pid" "$bundle/run" "$directory/left" &
	wait_for_line '^GPU 1 has a client$' "$directory/tmp.*/results/machine.txt" $! || return 1
	kill -KILL "$(cat "$directory/pid")"
	ends "$(cat "$directory/client")"
}

# conformance_says LINES COMMAND...: with a program in place of conformance that prints them.
conformance_says()
{
	printf '#!/bin/sh\ncat <<"END"\n%s\nEND\n' "$1" >"$directory/says" && chmod +x "$directory/says" || return 1
	shift
	mv "$bundle/tests/gpu/conformance" "$directory/conformance" && cp "$directory/says" "$bundle/tests/gpu/conformance" &&
		"$@" >"$directory/said"
	code=$?
	mv -f "$directory/conformance" "$bundle/tests/gpu/conformance"
	cat "$directory/said"
	return "$code"
}

# Tests of kernels say nothing new if the instructions that they use are wrong; times do.
matrices_wrong()
{
	conformance_says "# a.c:1: n_wrong == 0: mma_bf16_layout: 1 of 9 words differ
not ok 7 - mma_bf16_layout" on_fake_gpu "$bundle/run" light "$directory/wrong" conformance tests graph sanitize &&
		grep '^tests, graph: omitted' "$directory/said" && ! grep -E '^(tests kernels|graph): ' "$directory/said" &&
		grep '^sanitize memcheck: done' "$directory/said"
}

# A case that hung, and one that was skipped, are no reason to omit a test of kernels.
matrices_unknown()
{
	conformance_says "# mma_bf16_layout: no end after 15 s
not ok 6 - mma_bf16_layout
ok 7 - mma_f16_layout # SKIP" on_fake_gpu CUDA_VISIBLE_DEVICES= "$bundle/run" light "$directory/unknown" conformance tests \
		graph && grep '^tests, graph: not known' "$directory/said" &&
		[ "$(grep -cE '^(tests kernels|graph): done' "$directory/said")" -eq 2 ]
}

# A test whose kernel hangs ends.
hangs_end()
{
	on_fake_gpu PAGED_TEST_LIMIT=1 PAGED_FAKE_CUDA_FAIL=cuLaunchKernel@1=hang "$bundle/run" light "$directory/hung" \
		marks >"$directory/said" && cat "$directory/said" && grep '^marks: ended with 1, ' "$directory/said" &&
		result_of hung tests.tap | grep ': no end after 1 s$' &&
		[ "$(result_of hung tests.tap | grep -c '^\(not \)\?ok ')" -eq "$(bare "$bundle/run" it_cuda_marks --list | wc -l)" ]
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
try "light, where there is no GPU" without_gpu
try "all figures, and PyTorch's" torch_and_table
try "what is on by default is tested apart" defaults_apart
if [ -e "$PAGED_BUILDDIR/tests/fake-cuda/.libs/libcuda.so.1" ]; then
	try "light: steps, figures and one archive" light_steps
	try "what is off by default is tested if its conformance cases passed" opt_in_that_passed
	try "a step that hangs ends at its limit" hung_step
	try "a run ends in time" no_time_left
	try "a run that is killed leaves the archive of the steps before" killed_in_a_step
	try "an interrupted run ends its step" interrupted
	try "the driver has a client until a run ends" kept_awake
	try "kernels are not tested if matrix instructions are wrong" matrices_wrong
	try "and are if it is not known" matrices_unknown
	try "a kernel that hangs ends only its test" hangs_end
else
	skip "light" "the fake CUDA driver is not built"
fi
try "a CUDA compiler elsewhere is taken" nvrtc_found
try "one that fits the driver is taken first" nvrtc_fits
try "what cannot be is refused" refused
finish
