#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests and benchmark in the program's own process, where NVIDIA's tools see the kernels, over the fake CUDA driver.
if [ ! -e "$PAGED_BUILDDIR/tests/fake-cuda/.libs/libcuda.so.1" ]; then
	echo "1..0 # SKIP the fake CUDA driver is not built"
	exit 0
fi
. "$PAGED_SRCDIR/tests/support/tap.sh"
batch=$PAGED_BUILDDIR/tests/system/cuda/it_cuda_batch
bench=$PAGED_BUILDDIR/bench/paged-bench

# launched_by COMMAND...: whether kernels were launched, all of them by the process of COMMAND.  libtool's wrapper of an
# uninstalled program starts the program by exec, so the process stays the same.
launched_by()
{
	rm -f "$directory/calls"
	PAGED_FAKE_CUDA_LOG=$directory/calls LD_LIBRARY_PATH=$PAGED_BUILDDIR/tests/fake-cuda/.libs PAGED_CACHE_DIR='' \
		"$@" >"$directory/text" &
	pid=$!
	wait "$pid" || return 1
	cat "$directory/text"
	awk -v pid="$pid" '$2 == "cuLaunchKernel" { n++; others += $1 != pid } END { exit n == 0 || others != 0 }' \
		"$directory/calls"
}

test_passes()
{
	launched_by "$batch" --in-process decode_of_one_query && [ "$(cat "$directory/text")" = "ok 1 - decode_of_one_query
1..1" ]
}

each_in_its_own()
{
	! launched_by "$batch" decode_of_one_query && grep '^ok 1 - decode_of_one_query' "$directory/text"
}

test_fails()
{
	! PAGED_FAKE_CUDA_FAIL=cuLaunchKernel=1 "$batch" --in-process decode_of_one_query >"$directory/text" &&
		cat "$directory/text" && grep -x 'not ok 1 - decode_of_one_query' "$directory/text" &&
		grep 'paged_append.*is PAGED_ERR_BACKEND\|CUDA_ERROR_INVALID_VALUE' "$directory/text"
}

workers_skipped()
{
	"$PAGED_BUILDDIR/tests/system/cuda/it_cuda_work" --in-process vmm_reader_reads_another_session >"$directory/text" &&
		cat "$directory/text" && grep '^ok 1 - vmm_reader_.* # SKIP it starts workers' "$directory/text"
}

names()
{
	"$batch" --list >"$directory/text" && grep -x decode_of_one_query "$directory/text" &&
		! "$batch" --in-process no_such_test 2>"$directory/text" && grep 'no test no_such_test' "$directory/text"
}

group()
{
	launched_by "$bench" run --quick --lines --in-process --group skew gpu &&
		[ "$(grep -c '"name":"decode ' "$directory/text")" -eq 2 ]
}

one_group()
{
	! "$bench" run --in-process gpu 2>"$directory/text" && grep 'group NAME selects it' "$directory/text" &&
		! LD_LIBRARY_PATH=$PAGED_BUILDDIR/tests/fake-cuda/.libs "$bench" run --group x gpu 2>"$directory/text" &&
		grep 'suite gpu has no group x' "$directory/text"
}

# On a GPU to open the device takes up to a second.  Two tests open it; what asks whether there is one does so once.
driver_tried_once()
{
	rm -f "$directory/calls"
	PAGED_TEST_REAL_CUDA=1 PAGED_FAKE_CUDA_LOG=$directory/calls PAGED_CACHE_DIR='' \
		LD_LIBRARY_PATH=$PAGED_BUILDDIR/tests/fake-cuda/.libs "$batch" decode_of_one_query attention_with_v_in_k \
		>"$directory/text" || return 1
	cat "$directory/text" && ! grep SKIP "$directory/text" && grep ' cuInit ' "$directory/calls" &&
		[ "$(grep ' cuInit ' "$directory/calls" | cut -d ' ' -f 1 | sort -u | wc -l)" -eq 3 ]
}

try "a test passes" test_passes
try "without the option a test has a process of its own" each_in_its_own
try "a test that fails says so" test_fails
try "a test that starts workers is skipped" workers_skipped
try "the driver is tried once for all tests" driver_tried_once
try "tests are found by name" names
try "a group of the benchmark" group
try "one group, which exists" one_group
finish
