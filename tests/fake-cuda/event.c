/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: each counts its records and the records that its stream completed.
 * A shared event keeps both counts in shared memory; its owner has a thread
 * that runs the stream when another process waits.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake-cuda/fake_cuda.h"

struct CUevent_st {
	struct CUevent_st *next;
	struct CUctx_st *context;
	unsigned int n_users; /* the handle, operations on their way, the thread */
	bool destroyed, shared, exported, imported;
	bool queried, timed;
	uint32_t recorded, reached;
	uint64_t reached_ns;
	struct CUstream_st *stream; /* of the last record */
	uint64_t number;
	bool captured;           /* so was the last record */
	struct capture *capture; /* by that; NULL: it has ended */
	struct capture_set tips; /* what the record comes behind */
	struct backing backing;  /* of a shared one */
	int owner;               /* pidfd, of an imported one */
};

static struct CUevent_st *events;

static bool
event_exists(const struct CUevent_st *event)
{
	const struct CUevent_st *each = events;

	while (each != NULL && each != event)
		each = each->next;
	return each != NULL;
}

static void
event_drop(struct CUevent_st *event)
{
	if (--event->n_users > 0)
		return;
	if (event->shared)
		backing_close(&event->backing);
	if (event->imported)
		close(event->owner);
	free(event);
}

static struct CUevent_st *
event_add(void)
{
	struct CUevent_st *event = calloc(1, sizeof(*event));

	if (event == NULL)
		return NULL;
	event->n_users = 1;
	event->owner = -1;
	event->context = context_now();
	event->next = events;
	events = event;
	return event;
}

static uint32_t
event_recorded(const struct CUevent_st *event)
{
	return event->shared ? __atomic_load_n(&event->backing.control->recorded, __ATOMIC_ACQUIRE) : event->recorded;
}

static bool
event_reached(const struct CUevent_st *event, uint32_t record)
{
	uint32_t reached =
		event->shared ? __atomic_load_n(&event->backing.control->reached, __ATOMIC_ACQUIRE) : event->reached;

	return (int32_t)(reached - record) >= 0;
}

static void
futex_wake(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Waits until another process has completed a record; wakes that process's thread. */
static int
import_wait(struct CUevent_st *event, uint32_t record)
{
	struct backing_control *control = event->backing.control;

	while (!event_reached(event, record)) {
		if (process_gone(event->owner) || !control->alive)
			return entry_poison(CUDA_ERROR_UNKNOWN,
					    "the owner of an event died or destroyed it while a call waits for it");
		if ((int32_t)(record - __atomic_load_n(&control->wanted, __ATOMIC_ACQUIRE)) > 0)
			__atomic_store_n(&control->wanted, record, __ATOMIC_RELEASE);
		futex_wake(&control->wanted);
		entry_wait();
	}
	return CUDA_SUCCESS;
}

static int
event_wait(struct CUevent_st *event, uint32_t record)
{
	if (event->imported)
		return import_wait(event, record);
	if (event_reached(event, record))
		return CUDA_SUCCESS;
	return event->stream != NULL ? stream_run(event->stream, event->number) : CUDA_SUCCESS;
}

/* Records */

static int
record_run(struct operation *operation)
{
	struct CUevent_st *event = operation->event.event;

	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	event->reached_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	event->reached = operation->event.record;
	if (event->shared)
		__atomic_store_n(&event->backing.control->reached, event->reached, __ATOMIC_RELEASE);
	event_drop(event);
	return CUDA_SUCCESS;
}

/* A captured record marks a place in the capture, and nothing is ever reached there. */
static int
record_capture(struct CUevent_st *event, const struct CUstream_st *stream)
{
	if (event->shared)
		return capture_refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	event->captured = true;
	event->capture = stream->capture;
	event->tips = stream->tips;
	return CUDA_SUCCESS;
}

void
events_leave(const struct capture *capture)
{
	for (struct CUevent_st *each = events; each != NULL; each = each->next)
		if (each->capture == capture)
			each->capture = NULL;
}

/* An imported one could be recorded with CUDA; nothing here needs it. */
static int
event_record(struct CUevent_st *event, cuda_stream handle)
{
	struct operation *operation;
	struct CUstream_st *stream;
	int result = stream_admit(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!event_exists(event) || event->context != context_now())
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->imported)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (stream->capture != NULL)
		return record_capture(event, stream);
	event->captured = false;
	event->capture = NULL;
	operation = stream_operation(0, record_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	operation->event.event = event;
	operation->event.record = ++event->recorded;
	event->n_users++;
	event->queried = false;
	stream_add(stream, operation);
	event->stream = stream;
	event->number = operation->number;
	if (event->shared)
		__atomic_store_n(&event->backing.control->recorded, event->recorded, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

static int
wait_run(struct operation *operation)
{
	int result = event_wait(operation->event.event, operation->event.record);

	event_drop(operation->event.event);
	return result;
}

void
event_forget(const struct operation *operation)
{
	if (operation->run == record_run || operation->run == wait_run)
		event_drop(operation->event.event);
}

/* Waiting for a captured record brings the stream into the capture; nothing else crosses its border. */
static int
wait_capture(struct CUstream_st *stream, const struct CUevent_st *event)
{
	int result;

	if (!event->captured)
		return capture_refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	if (event->capture == NULL)
		return stream->capture == NULL ? CUDA_ERROR_CAPTURED_EVENT
					       : capture_refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	if (capture_invalid(event->capture))
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream_is_default(stream))
		return capture_refuse(event->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (stream->capture == NULL) {
		stream->capture = event->capture;
		stream->tips.n = 0;
	} else if (stream->capture != event->capture) {
		capture_refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
		return capture_refuse(event->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	result = capture_merge(&stream->tips, &event->tips);
	return result == CUDA_SUCCESS ? result : capture_refuse(stream->capture, result);
}

static int
stream_wait(cuda_stream handle, struct CUevent_st *event, unsigned int flags)
{
	struct operation *operation;
	struct CUstream_st *stream;
	int result;

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = stream_admit(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (!event_exists(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->captured || stream->capture != NULL)
		return wait_capture(stream, event);
	operation = stream_operation(0, wait_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	operation->event.event = event;
	operation->event.record = event_recorded(event);
	event->n_users++;
	stream_add(stream, operation);
	return CUDA_SUCCESS;
}

/* How far it is: never of a captured one. */
static int
event_poll(const struct CUevent_st *event)
{
	if (!event_exists(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!event->captured)
		return capture_unsafe();
	return event->capture == NULL ? CUDA_ERROR_CAPTURED_EVENT
				      : capture_refuse(event->capture, CUDA_ERROR_CAPTURED_EVENT);
}

static int
event_synchronize(struct CUevent_st *event)
{
	int result = event_poll(event);

	return result == CUDA_SUCCESS ? event_wait(event, event_recorded(event)) : result;
}

static int
event_query(struct CUevent_st *event)
{
	int result = event_poll(event);

	if (result != CUDA_SUCCESS)
		return result;
	if (event_reached(event, event_recorded(event)))
		return CUDA_SUCCESS;
	if (!event->queried) {
		event->queried = true;
		return CUDA_ERROR_NOT_READY;
	}
	return event_wait(event, event_recorded(event));
}

/* Between the moments at which the stream came to each, on this machine. */
static int
event_elapsed(float *ms, struct CUevent_st *start, struct CUevent_st *end)
{
	if (!event_exists(start) || !event_exists(end) || !start->timed || !end->timed || start->recorded == 0 ||
	    end->recorded == 0)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!event_reached(start, start->recorded) || !event_reached(end, end->recorded))
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(end->reached_ns - start->reached_ns) / 1e6);
	return CUDA_SUCCESS;
}

/* Life */

static int
event_create(struct CUevent_st **event_p, unsigned int flags)
{
	bool shared = (flags & CUDA_EVENT_INTERPROCESS) != 0;
	struct CUevent_st *event;

	if (shared && (flags & CUDA_EVENT_DISABLE_TIMING) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	event = event_add();
	if (event == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (shared && !backing_make(&event->backing, BACKING_EVENT, 0, 0)) {
		events = event->next;
		free(event);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	event->shared = shared;
	event->timed = (flags & CUDA_EVENT_DISABLE_TIMING) == 0;
	*event_p = event;
	return CUDA_SUCCESS;
}

static int
event_destroy(struct CUevent_st *event)
{
	struct CUevent_st **at = &events;

	if (!event_exists(event))
		return CUDA_ERROR_INVALID_HANDLE;
	while (*at != event)
		at = &(*at)->next;
	*at = event->next;
	event->destroyed = true;
	if (event->shared && !event->imported)
		event->backing.control->alive = 0;
	if (event->exported)
		futex_wake(&event->backing.control->wanted);
	event_drop(event);
	return CUDA_SUCCESS;
}

/* Other processes */

static void *
event_serve(void *argument)
{
	struct CUevent_st *event = argument;
	uint32_t *word = &event->backing.control->wanted;
	const struct timespec while_ms = { .tv_nsec = 50000000 };

	for (;;) {
		uint32_t wanted = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		entry_lock();
		if (event->destroyed)
			break;
		if (!event_reached(event, wanted) && event->stream != NULL)
			stream_run(event->stream, event->number);
		entry_unlock();
		syscall(SYS_futex, word, FUTEX_WAIT, wanted, &while_ms, NULL, 0);
	}
	event_drop(event);
	entry_unlock();
	return NULL;
}

static int
event_export(struct cuda_ipc_handle *handle, struct CUevent_st *event)
{
	sigset_t all, before;
	pthread_t thread;
	int failed;

	if (!event_exists(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!event->shared || event->imported)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = backing_export(&event->backing);
	if (event->exported)
		return CUDA_SUCCESS;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&thread, NULL, event_serve, event);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_detach(thread);
	event->exported = true;
	event->n_users++;
	return CUDA_SUCCESS;
}

static int
event_import(struct CUevent_st **event_p, struct cuda_ipc_handle handle)
{
	struct CUevent_st *event;
	struct backing backing;
	int owner, result;

	result = backing_import(&backing, &handle, BACKING_EVENT, &owner);
	if (result != CUDA_SUCCESS)
		return result;
	event = event_add();
	if (event == NULL) {
		backing_close(&backing);
		close(owner);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	event->shared = event->imported = true;
	event->backing = backing;
	event->owner = owner;
	*event_p = event;
	return CUDA_SUCCESS;
}

ENTRY(cuEventCreate, (cuda_event * event, unsigned int flags), ENTRY_CONTEXT, event_create(event, flags))
ENTRY(cuEventDestroy_v2, (cuda_event event), ENTRY_DRIVER, event_destroy(event))
ENTRY(cuEventRecord, (cuda_event event, cuda_stream stream), ENTRY_CONTEXT, event_record(event, stream))
ENTRY(cuEventQuery, (cuda_event event), ENTRY_DRIVER, event_query(event))
ENTRY(cuEventSynchronize, (cuda_event event), ENTRY_DRIVER, event_synchronize(event))
ENTRY(cuEventElapsedTime, (float *ms, cuda_event start, cuda_event end), ENTRY_DRIVER, event_elapsed(ms, start, end))
ENTRY(cuStreamWaitEvent, (cuda_stream stream, cuda_event event, unsigned int flags), ENTRY_CONTEXT,
      stream_wait(stream, event, flags))
ENTRY(cuIpcGetEventHandle, (struct cuda_ipc_handle * handle, cuda_event event), ENTRY_CONTEXT,
      event_export(handle, event))
ENTRY(cuIpcOpenEventHandle, (cuda_event * event, struct cuda_ipc_handle handle), ENTRY_CONTEXT,
      event_import(event, handle))
