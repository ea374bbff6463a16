/* SPDX-License-Identifier: Apache-2.0 */
/* The fake CUDA driver: captures, graphs, replays, and every rule that it enforces for them. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/fake-cuda/fixture.h"
#include "tests/fake-cuda/image.h"
#include "tests/fake-cuda/kernels/simt_cases.h"
#include "tests/support/cuda_graph.h"

static struct cuda_graphs graphs;
static cuda_stream one, two;
static cuda_event event, other;
static cuda_address memory;

static void
begin_tests(unsigned int flags)
{
	fake_cuda_start(0);
	it_require(cuda_graphs_find(&graphs, &cuda));
	ok(cuda.stream_create(&one, flags));
	ok(cuda.stream_create(&two, flags));
	ok(cuda.event_create(&event, CUDA_EVENT_DISABLE_TIMING));
	ok(cuda.event_create(&other, CUDA_EVENT_DISABLE_TIMING));
	ok(cuda.alloc(&memory, 4096));
	ok(cuda.fill(memory, 0, 4096, one));
	ok(cuda.stream_synchronize(one));
}

static int
status_of(cuda_stream stream)
{
	int status = -1;

	ok(cuda.stream_capturing(stream, &status));
	return status;
}

/* End an invalidated capture: the call returns an error, and the stream no longer captures. */
static void
end_invalidated(int wanted)
{
	cuda_graph graph = (cuda_graph)&graphs;

	gives(wanted, graphs.end(one, &graph));
	it_require(graph == NULL);
	it_require(status_of(one) == CUDA_CAPTURE_NONE && status_of(two) == CUDA_CAPTURE_NONE);
	ok(cuda.fill(memory, 1, 4, one));
	ok(cuda.stream_synchronize(one));
	ok(cuda.stream_synchronize(two));
}

static cuda_graph_exec
end_graph(void)
{
	cuda_graph_exec exec;
	cuda_graph graph;

	ok(graphs.end(one, &graph));
	ok(graphs.instantiate(&exec, graph, 0));
	ok(graphs.destroy(graph));
	return exec;
}

IT_TEST(graph_runs_when_launched_and_waited_for)
{
	cuda_graph_exec exec;
	uint32_t *pinned;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(cuda.host_alloc((void **)&pinned, 8, 0));
	/* Work queued before the graph runs first. */
	ok(cuda.copy_in(memory + 8, pinned, 4, one));
	ok(graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	it_require(status_of(one) == CUDA_CAPTURE_ACTIVE && status_of(two) == CUDA_CAPTURE_NONE);
	/* Each replay reads and writes host memory. */
	ok(cuda.copy_in(memory, pinned, 4, one));
	ok(cuda.copy(memory + 4, memory, 4, one));
	ok(cuda.copy_out(pinned + 1, memory + 4, 4, one));
	exec = end_graph();
	it_require(status_of(one) == CUDA_CAPTURE_NONE);
	it_require(fake_cuda_read_word(memory) == 0);
	pinned[0] = 5;
	ok(cuda.stream_synchronize(one));
	for (uint32_t i = 1; i < 4; i++) {
		pinned[0] = 10 * i;
		ok(graphs.launch(exec, i % 2 != 0 ? one : two));
		it_require(pinned[1] != 10 * i);
		ok(cuda.stream_synchronize(i % 2 != 0 ? one : two));
		it_require(pinned[1] == 10 * i);
	}
	it_require(fake_cuda_read_word(memory + 8) == 5);
	/* The graph is destroyed while a launch is in flight. */
	pinned[0] = 77;
	ok(graphs.launch(exec, one));
	ok(graphs.exec_destroy(exec));
	gives(CUDA_ERROR_INVALID_VALUE, graphs.launch(exec, one));
	gives(CUDA_ERROR_INVALID_VALUE, graphs.exec_destroy(exec));
	ok(cuda.stream_synchronize(one));
	it_require(pinned[1] == 77);
	ok(cuda.host_free(pinned));
	fake_cuda_finish();
}

/* Launches of one executable wait for each other, on whichever streams. */
IT_TEST(launches_of_one_graph_are_serialised)
{
	cuda_graph_exec exec;
	uint32_t *pinned;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(cuda.host_alloc((void **)&pinned, 4, 0));
	*pinned = 3;
	ok(graphs.begin(one, CUDA_CAPTURE_THREAD_LOCAL));
	ok(cuda.copy(memory, memory + 4, 4, one));
	ok(cuda.copy(memory + 4, memory + 8, 4, one));
	exec = end_graph();
	ok(cuda.copy_in(memory + 8, pinned, 4, one));
	ok(graphs.launch(exec, one));
	ok(graphs.launch(exec, two));
	ok(cuda.stream_synchronize(two));
	it_require(fake_cuda_read_word(memory) == 3);
	ok(graphs.exec_destroy(exec));
	ok(cuda.host_free(pinned));
	fake_cuda_finish();
}

/* Two branches that both write: their order is undefined, so it differs between two launches. */
IT_TEST(branches_are_unordered)
{
	uint32_t seen[2];
	cuda_graph_exec exec;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	ok(cuda.fill(memory, 0, 4, one));
	ok(cuda.event_record(event, one));
	ok(cuda.stream_wait(two, event, 0));
	it_require(status_of(two) == CUDA_CAPTURE_ACTIVE);
	ok(cuda.fill(memory, 1, 4, one));
	ok(cuda.fill(memory, 2, 4, two));
	ok(cuda.event_record(other, two));
	ok(cuda.stream_wait(one, other, 0));
	ok(cuda.copy(memory + 4, memory, 4, one));
	exec = end_graph();
	it_require(status_of(two) == CUDA_CAPTURE_NONE);
	for (unsigned int i = 0; i < 2; i++) {
		ok(graphs.launch(exec, one));
		ok(cuda.stream_synchronize(one));
		seen[i] = fake_cuda_read_word(memory + 4);
	}
	it_require(seen[0] == 0x02020202 && seen[1] == 0x01010101, "%#x %#x", seen[0], seen[1]);
	/* Captured work is not executed. */
	gives(CUDA_ERROR_CAPTURED_EVENT, cuda.event_query(event));
	gives(CUDA_ERROR_CAPTURED_EVENT, cuda.stream_wait(two, event, 0));
	ok(cuda.event_record(event, one));
	ok(cuda.event_synchronize(event));
	ok(graphs.exec_destroy(exec));
	fake_cuda_finish();
}

static void
fork_unjoined(void)
{
	ok(graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	ok(cuda.event_record(event, one));
	ok(cuda.stream_wait(two, event, 0));
	ok(cuda.fill(memory, 2, 4, two));
}

IT_TEST(forked_streams_must_be_joined)
{
	cuda_graph graph;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	fork_unjoined();
	end_invalidated(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	fork_unjoined();
	gives(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, graphs.end(two, &graph));
	end_invalidated(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* A wait before the last captured work does not join the stream. */
	fork_unjoined();
	ok(cuda.event_record(other, two));
	ok(cuda.fill(memory, 3, 4, two));
	ok(cuda.stream_wait(one, other, 0));
	end_invalidated(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	gives(CUDA_ERROR_ILLEGAL_STATE, graphs.end(one, &graph));
	fake_cuda_finish();
}

IT_TEST(capture_dependencies_are_isolated)
{
	cuda_graph graph;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(cuda.event_record(event, two));
	ok(graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	gives(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuda.stream_wait(one, event, 0));
	it_require(status_of(one) == CUDA_CAPTURE_INVALIDATED);
	gives(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuda.fill(memory, 1, 4, one));
	end_invalidated(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* Two captures cannot be merged. */
	ok(graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	ok(graphs.begin(two, CUDA_CAPTURE_GLOBAL));
	ok(cuda.event_record(event, one));
	gives(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuda.stream_wait(two, event, 0));
	gives(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, graphs.end(two, &graph));
	end_invalidated(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	fake_cuda_finish();
}

static int
sync_stream(void)
{
	return cuda.stream_synchronize(one);
}

static int
query_stream(void)
{
	return cuda.stream_query(one);
}

static int
sync_other(void)
{
	return cuda.stream_synchronize(two);
}

static int
sync_context(void)
{
	return cuda.context_synchronize();
}

static int
query_event(void)
{
	return cuda.event_query(other);
}

static int
query_captured(void)
{
	ok(cuda.event_record(event, one));
	return cuda.event_query(event);
}

static int
allocate(void)
{
	cuda_address address;

	return cuda.alloc(&address, 64);
}

static int
allocate_pinned(void)
{
	void *p;

	return cuda.host_alloc(&p, 64, 0);
}

static int
load_module(void)
{
	cuda_module module;

	return cuda.module_load(&module, "x");
}

static int
copy_pageable_in(void)
{
	uint32_t word = 1;

	return cuda.copy_in(memory, &word, 4, one);
}

static int
copy_pageable_out(void)
{
	uint32_t word;

	return cuda.copy_out(&word, memory, 4, one);
}

static int
destroy_stream(void)
{
	return cuda.stream_destroy(one);
}

static int
begin_again(void)
{
	return graphs.begin(one, CUDA_CAPTURE_GLOBAL);
}

static const struct {
	int (*call)(void);
	int wanted;
	bool in_no_mode; /* in no mode */
} refused[] = {
	{ sync_stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
	{ query_stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
	{ sync_context, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
	{ query_captured, CUDA_ERROR_CAPTURED_EVENT, true },
	{ copy_pageable_in, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
	{ copy_pageable_out, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
	{ destroy_stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
	{ begin_again, CUDA_ERROR_ILLEGAL_STATE, true },
	{ sync_other, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false },
	{ query_event, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false },
	{ allocate, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false },
	{ allocate_pinned, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false },
	{ load_module, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false },
};

IT_TEST(calls_that_invalidate_a_capture)
{
	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(cuda.event_record(other, two));
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		for (int mode = CUDA_CAPTURE_GLOBAL; mode <= CUDA_CAPTURE_RELAXED; mode++) {
			bool invalidates = refused[i].in_no_mode || mode != CUDA_CAPTURE_RELAXED;
			int result;

			ok(graphs.begin(one, mode));
			ok(cuda.fill(memory, 1, 4, one));
			result = refused[i].call();
			it_require(!invalidates || result == refused[i].wanted, "call %zu, mode %d: %d", i, mode,
				   result);
			it_require(status_of(one) == (invalidates ? CUDA_CAPTURE_INVALIDATED : CUDA_CAPTURE_ACTIVE),
				   "call %zu, mode %d", i, mode);
			if (invalidates)
				end_invalidated(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
			else
				ok(graphs.exec_destroy(end_graph()));
		}
	gives(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, graphs.begin(NULL, CUDA_CAPTURE_GLOBAL));
	gives(CUDA_ERROR_INVALID_VALUE, graphs.begin(one, 3));
	fake_cuda_finish();
}

/* A thread in relaxed mode may make the calls; other threads may not. */
IT_TEST(relaxed_mode_applies_to_a_thread)
{
	int mode = CUDA_CAPTURE_RELAXED;
	cuda_address address;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	ok(cuda.capture_mode(&mode));
	it_require(mode == CUDA_CAPTURE_GLOBAL);
	ok(cuda.alloc(&address, 64));
	ok(cuda.stream_synchronize(two));
	gives(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuda.stream_synchronize(one));
	ok(cuda.capture_mode(&mode));
	it_require(mode == CUDA_CAPTURE_RELAXED);
	end_invalidated(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	fake_cuda_finish();
}

static void *
in_another_thread(void *context)
{
	cuda_graph graph;

	ok(cuda.context_push(context));
	gives(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, graphs.end(one, &graph));
	ok(cuda.stream_synchronize(two));
	it_require(status_of(one) == CUDA_CAPTURE_ACTIVE);
	return NULL;
}

IT_TEST(capture_ends_in_its_thread)
{
	cuda_context context;
	pthread_t thread;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(cuda.context_current(&context));
	ok(graphs.begin(one, CUDA_CAPTURE_THREAD_LOCAL));
	it_require(pthread_create(&thread, NULL, in_another_thread, context) == 0);
	pthread_join(thread, NULL);
	ok(graphs.exec_destroy(end_graph()));
	fake_cuda_finish();
}

IT_TEST(legacy_stream_cannot_synchronise_with_a_capture)
{
	int status;

	begin_tests(0);
	ok(graphs.begin(one, CUDA_CAPTURE_RELAXED));
	gives(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuda.stream_capturing(NULL, &status));
	it_require(status_of(one) == CUDA_CAPTURE_ACTIVE);
	gives(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuda.fill(memory, 1, 4, NULL));
	end_invalidated(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	fake_cuda_finish();
}

IT_TEST(failures_are_injected_into_graph_calls)
{
	cuda_graph_exec exec, none;
	cuda_graph graph;

	setenv("PAGED_FAKE_CUDA_FAIL",
	       "cuStreamBeginCapture_v2@2=1,cuStreamEndCapture@2=1,cuGraphInstantiateWithFlags@2=2,cuGraphLaunch@2=1,"
	       "cuGraphExecDestroy@1=1,cuGraphDestroy@1=1",
	       1);
	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	ok(cuda.fill(memory, 1, 4, one));
	ok(graphs.end(one, &graph));
	ok(graphs.instantiate(&exec, graph, 0));
	ok(graphs.launch(exec, one));
	gives(1, graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	gives(1, graphs.end(one, &graph));
	gives(2, graphs.instantiate(&none, graph, 0));
	gives(1, graphs.launch(exec, one));
	gives(1, graphs.exec_destroy(exec));
	gives(1, graphs.destroy(graph));
	ok(graphs.exec_destroy(exec));
	ok(graphs.destroy(graph));
	ok(cuda.stream_synchronize(one));
	fake_cuda_finish();
}

/* A replay after its memory was freed is a sticky error. */
IT_TEST(replay_after_free_is_a_sticky_error)
{
	cuda_graph_exec exec;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	ok(graphs.begin(one, CUDA_CAPTURE_GLOBAL));
	ok(cuda.fill(memory, 1, 4, one));
	exec = end_graph();
	ok(cuda.free(memory));
	ok(graphs.launch(exec, one));
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.stream_synchronize(one));
}

/* A module may be unloaded when every graph with its kernels was destroyed, and not before. */

/* Frees all memory, so that no descriptor is left after a sticky error. */
static cuda_module
capture_kernel(void)
{
	struct simt_exchange_params p = { .out = (uint32_t *)(uintptr_t)memory }; /* NOLINT */
	cuda_function function;
	cuda_module module;

	ok(cuda.module_load(&module, FAKE_CUDA_BUILT_IN));
	ok(cuda.module_function(&function, module, "simt_case_exchange"));
	ok(cuda.free(memory));
	ok(graphs.begin(one, CUDA_CAPTURE_RELAXED));
	ok(cuda.launch(function, 1, 1, 1, 128, 1, 1, 0, one, (void *[]){ &p }, NULL));
	return module;
}

IT_TEST(unload_after_the_graph)
{
	cuda_graph_exec exec;
	cuda_module module;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	module = capture_kernel();
	exec = end_graph();
	ok(graphs.exec_destroy(exec));
	ok(cuda.module_unload(module));
	fake_cuda_finish();
}

IT_TEST(unload_before_the_graph_is_a_sticky_error)
{
	cuda_graph_exec exec;
	cuda_module module;

	begin_tests(CUDA_STREAM_NON_BLOCKING);
	module = capture_kernel();
	exec = end_graph();
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.module_unload(module));
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, graphs.exec_destroy(exec));
}

IT_TEST(unload_within_the_capture_is_a_sticky_error)
{
	begin_tests(CUDA_STREAM_NON_BLOCKING);
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.module_unload(capture_kernel()));
}

IT_MAIN
