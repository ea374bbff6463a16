/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: queues of operations that run only when a call waits for them.  The
 * first query of a busy stream returns "not ready", the second runs the work,
 * so that polling terminates.
 *
 * The default stream synchronises with the streams that are not NON_BLOCKING: an
 * operation first completes what was queued before it on the other side.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/fake_cuda.h"

static struct CUstream_st defaults[MAX_DEVICES];
static struct CUstream_st *streams;
static uint64_t last_number;

bool
stream_exists(const struct CUstream_st *stream)
{
	const struct CUstream_st *each = streams;

	while (each != NULL && each != stream)
		each = each->next;
	return each != NULL && each->context->n_retained > 0 && each->generation == each->context->generation;
}

bool
stream_is_default(const struct CUstream_st *stream)
{
	return stream >= defaults && stream < defaults + MAX_DEVICES;
}

struct CUstream_st *
stream_of(cuda_stream handle)
{
	struct CUctx_st *context = context_now();
	struct CUstream_st *stream = handle;

	if (handle == NULL || handle == (cuda_stream)1) {
		stream = &defaults[context->device];
		stream->context = context;
		if (stream->last == NULL)
			stream->last = &stream->first;
		return stream;
	}
	return stream_exists(handle) && stream->context == context ? stream : NULL;
}

/* The default stream would wait for, and hold up, each blocking one. */
int
stream_admit(cuda_stream handle, struct CUstream_st **stream_p)
{
	struct CUstream_st *stream = stream_of(handle);
	int result = CUDA_SUCCESS;

	if (stream == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	for (struct CUstream_st *each = streams; stream_is_default(stream) && each != NULL; each = each->next)
		if (each->capture != NULL && !each->non_blocking && each->context == stream->context)
			result = capture_refuse(each->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (stream->capture != NULL && capture_invalid(stream->capture))
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*stream_p = stream;
	return result;
}

void
streams_leave(const struct capture *capture)
{
	for (struct CUstream_st *each = streams; each != NULL; each = each->next)
		if (each->capture == capture)
			each->capture = NULL;
}

struct operation *
stream_operation(size_t data_size, int (*run)(struct operation *operation))
{
	struct operation *operation = calloc(1, sizeof(*operation) + data_size);

	if (operation != NULL)
		operation->run = run;
	return operation;
}

void
stream_add(struct CUstream_st *stream, struct operation *operation)
{
	operation->number = ++last_number;
	if (stream->capture != NULL) {
		capture_add(stream, operation);
		return;
	}
	*stream->last = operation;
	stream->last = &operation->next;
	stream->queried = false;
}

/* What the default stream has to do with the others. */
static int
run_earlier(struct CUstream_st *stream, uint64_t number)
{
	int result = CUDA_SUCCESS;

	if (stream->non_blocking)
		return CUDA_SUCCESS;
	if (!stream_is_default(stream))
		return stream_run(&defaults[stream->context->device], number);
	for (struct CUstream_st *each = streams; each != NULL && result == CUDA_SUCCESS; each = each->next)
		if (!each->non_blocking && each->context == stream->context)
			result = stream_run(each, number);
	return result;
}

int
stream_run(struct CUstream_st *stream, uint64_t number)
{
	while (stream->running <= number) {
		struct operation *operation = stream->first;
		int result;

		if (stream->running != 0) {
			entry_wait();
			continue;
		}
		if (operation == NULL || operation->number > number)
			break;
		stream->first = operation->next;
		if (stream->first == NULL)
			stream->last = &stream->first;
		stream->running = operation->number;
		result = run_earlier(stream, operation->number);
		if (result == CUDA_SUCCESS)
			result = operation->run(operation);
		free(operation);
		stream->running = 0;
		entry_changed();
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

int
stream_run_all(cuda_device device)
{
	int result = stream_run(&defaults[device], UINT64_MAX);

	for (struct CUstream_st *each = streams; each != NULL && result == CUDA_SUCCESS; each = each->next)
		if (each->context->device == device)
			result = stream_run(each, UINT64_MAX);
	return result;
}

static void
stream_empty(struct CUstream_st *stream)
{
	while (stream->first != NULL) {
		struct operation *next = stream->first->next;

		event_forget(stream->first);
		free(stream->first);
		stream->first = next;
	}
	stream->last = &stream->first;
}

/* With the context go its streams' contents; their handles are dead. */
void
stream_forget(struct CUctx_st *context)
{
	stream_empty(&defaults[context->device]);
	for (struct CUstream_st *each = streams; each != NULL; each = each->next)
		if (each->context == context)
			stream_empty(each);
}

static int
stream_create(struct CUstream_st **stream_p, unsigned int flags)
{
	struct CUstream_st *stream;

	if ((flags & ~(unsigned int)CUDA_STREAM_NON_BLOCKING) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	stream = calloc(1, sizeof(*stream));
	if (stream == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->context = context_now();
	stream->generation = stream->context->generation;
	stream->non_blocking = flags == CUDA_STREAM_NON_BLOCKING;
	stream->last = &stream->first;
	stream->next = streams;
	streams = stream;
	*stream_p = stream;
	return CUDA_SUCCESS;
}

/* What is queued is still done, as CUDA does it. */
static int
stream_destroy(struct CUstream_st *stream)
{
	struct CUstream_st **at = &streams;
	int result;

	if (!stream_exists(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture != NULL)
		return capture_refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	result = stream_run(stream, UINT64_MAX);
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	stream_empty(stream);
	free(stream);
	return result;
}

/* How far a stream is: never of one that only collects. */
static int
stream_poll(cuda_stream handle, struct CUstream_st **stream_p)
{
	int result = stream_admit(handle, stream_p);

	if (result == CUDA_SUCCESS && (*stream_p)->capture != NULL)
		result = capture_refuse((*stream_p)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return result == CUDA_SUCCESS ? capture_unsafe() : result;
}

static int
stream_synchronize(cuda_stream handle)
{
	struct CUstream_st *stream;
	int result = stream_poll(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	result = run_earlier(stream, stream_is_default(stream) ? UINT64_MAX : 0);
	return result == CUDA_SUCCESS ? stream_run(stream, UINT64_MAX) : result;
}

static int
stream_query(cuda_stream handle)
{
	struct CUstream_st *stream;
	int result = stream_poll(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (stream->first == NULL && stream->running == 0)
		return CUDA_SUCCESS;
	if (!stream->queried) {
		stream->queried = true;
		return CUDA_ERROR_NOT_READY;
	}
	return stream_run(stream, UINT64_MAX);
}

static int
stream_capturing(cuda_stream handle, int *status)
{
	struct CUstream_st *stream = stream_of(handle);

	if (stream == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	for (struct CUstream_st *each = streams; stream_is_default(stream) && each != NULL; each = each->next)
		if (each->capture != NULL && !each->non_blocking && each->context == stream->context)
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (stream->capture == NULL)
		*status = CUDA_CAPTURE_NONE;
	else
		*status = capture_invalid(stream->capture) ? CUDA_CAPTURE_INVALIDATED : CUDA_CAPTURE_ACTIVE;
	return CUDA_SUCCESS;
}

ENTRY(cuStreamCreate, (cuda_stream * stream, unsigned int flags), ENTRY_CONTEXT, stream_create(stream, flags))
ENTRY(cuStreamDestroy_v2, (cuda_stream stream), ENTRY_CONTEXT, stream_destroy(stream))
ENTRY(cuStreamSynchronize, (cuda_stream stream), ENTRY_CONTEXT, stream_synchronize(stream))
ENTRY(cuStreamQuery, (cuda_stream stream), ENTRY_CONTEXT, stream_query(stream))
ENTRY(cuStreamIsCapturing, (cuda_stream stream, int *status), ENTRY_CONTEXT, stream_capturing(stream, status))
