/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures: a stream that is in one adds its operations to a program instead
 * of its queue.  Each stream records the nodes on which its next operation
 * depends; an event carries these to another stream, which joins the capture.
 *
 * A call that is not allowed in a capture invalidates it: later calls are
 * refused, and its end returns no graph.  Calls that enqueue nothing but are
 * not allowed during a capture check capture_unsafe().
 */
#include <pthread.h>
#include <stdlib.h>

#include "tests/fake-cuda/fake_cuda.h"

struct capture {
	struct capture *next;
	struct CUstream_st *origin;
	struct graph_program *program;
	pthread_t thread;
	int mode;
	bool invalid;
};

static struct capture *captures;
static __thread int thread_mode = CUDA_CAPTURE_GLOBAL;

int
capture_refuse(struct capture *capture, int result)
{
	capture->invalid = true;
	return result;
}

bool
capture_invalid(const struct capture *capture)
{
	return capture->invalid;
}

int
capture_unsafe(void)
{
	int result = CUDA_SUCCESS;

	if (thread_mode == CUDA_CAPTURE_RELAXED)
		return result;
	for (struct capture *each = captures; each != NULL; each = each->next) {
		bool own = pthread_equal(each->thread, pthread_self()) != 0;

		if (own ? each->mode != CUDA_CAPTURE_RELAXED
			: each->mode == CUDA_CAPTURE_GLOBAL && thread_mode == CUDA_CAPTURE_GLOBAL)
			result = capture_refuse(each, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return result;
}

int
capture_context(const struct CUctx_st *context)
{
	int result = CUDA_SUCCESS;

	for (struct capture *each = captures; each != NULL; each = each->next)
		if (each->origin->context == context)
			result = capture_refuse(each, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return result;
}

int
capture_merge(struct capture_set *to, const struct capture_set *from)
{
	for (unsigned int i = 0; i < from->n; i++) {
		unsigned int k = 0;

		while (k < to->n && to->nodes[k] != from->nodes[i])
			k++;
		if (k == CAPTURE_WIDTH)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (k == to->n)
			to->nodes[to->n++] = from->nodes[i];
	}
	return CUDA_SUCCESS;
}

void
capture_add(struct CUstream_st *stream, struct operation *operation)
{
	struct graph_program *program = stream->capture->program;

	if (!program_add(program, operation, &stream->tips)) {
		capture_refuse(stream->capture, CUDA_ERROR_OUT_OF_MEMORY);
		free(operation);
		return;
	}
	stream->tips = (struct capture_set){ .n = 1, .nodes = { program_last(program) } };
}

static int
capture_begin(cuda_stream handle, int mode)
{
	struct CUstream_st *stream = stream_of(handle);
	struct capture *capture;

	if (stream == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (mode < CUDA_CAPTURE_GLOBAL || mode > CUDA_CAPTURE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream_is_default(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture != NULL)
		return capture_refuse(stream->capture, CUDA_ERROR_ILLEGAL_STATE);
	capture = calloc(1, sizeof(*capture));
	if (capture == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	capture->program = program_create();
	if (capture->program == NULL) {
		free(capture);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	capture->origin = stream;
	capture->thread = pthread_self();
	capture->mode = mode;
	capture->next = captures;
	captures = capture;
	stream->capture = capture;
	stream->tips.n = 0;
	return CUDA_SUCCESS;
}

/* With what it collected, or without. */
static void
capture_close(struct capture *capture)
{
	struct capture **at = &captures;

	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	streams_leave(capture);
	events_leave(capture);
	free(capture);
}

static int
capture_end(cuda_stream handle, struct CUgraph_st **graph_p)
{
	struct CUstream_st *stream = stream_of(handle);
	struct graph_program *program;
	struct capture *capture;
	int result;

	if (stream == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	capture = stream->capture;
	if (capture == NULL)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream)
		return capture_refuse(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	if (capture->mode != CUDA_CAPTURE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	*graph_p = NULL;
	program = capture->program;
	if (capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!program_ends_in(program, &stream->tips))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	else
		result = graph_create(program, graph_p);
	capture_close(capture);
	if (result != CUDA_SUCCESS)
		program_drop(program);
	return result;
}

void
capture_forget(const struct CUctx_st *context)
{
	struct capture *next;

	for (struct capture *each = captures; each != NULL; each = next) {
		next = each->next;
		if (each->origin->context != context)
			continue;
		program_drop(each->program);
		capture_close(each);
	}
}

static int
mode_exchange(int *mode)
{
	int before = thread_mode;

	if (*mode < CUDA_CAPTURE_GLOBAL || *mode > CUDA_CAPTURE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

ENTRY(cuStreamBeginCapture_v2, (cuda_stream stream, int mode), ENTRY_CONTEXT, capture_begin(stream, mode))
ENTRY(cuStreamEndCapture, (cuda_stream stream, cuda_graph *graph), ENTRY_CONTEXT, capture_end(stream, graph))
ENTRY(cuThreadExchangeStreamCaptureMode, (int *mode), ENTRY_DRIVER, mode_exchange(mode))
