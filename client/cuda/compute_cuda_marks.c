/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/cuda/compute_cuda_marks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "client/owner/map_cuda.h"

/* An event that this process made. */
struct marks_event {
	LIST_ENTRY(marks_event) link;
	uint64_t number;
	cuda_event event;
	struct cuda_ipc_handle handle;
	bool in_use; /* a batch uses it */
};

/* An event that another process made. */
struct marks_import {
	LIST_ENTRY(marks_import) link;
	struct process_name process;
	uint64_t number;
	struct cuda_ipc_handle handle;
	cuda_event event;
	int pidfd;
	bool opening; /* a thread opens it without the lock; event and pidfd are not set yet */
};

struct marks_device {
	LIST_ENTRY(marks_device) link;
	struct cuda_gpu gpu; /* not a pool's, because events outlive pools */
	unsigned int n_batches;
	LIST_HEAD(, marks_event) events;
	LIST_HEAD(, marks_import) imports;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER; /* an import is no longer `opening` */
static LIST_HEAD(, marks_device) devices = LIST_HEAD_INITIALIZER(devices);
static uint64_t last_number;

/* The functions below are called with the lock held, unless their comment says otherwise. */

static enum paged_status
marks_device_acquire(struct cuda_batch *cuda, struct paged_error *error)
{
	struct marks_device *device;
	enum paged_status status;

	if (cuda->marks != NULL)
		return PAGED_OK;
	LIST_FOREACH(device, &devices, link)
		if (memcmp(&device->gpu.uuid, &cuda->gpu->uuid, sizeof(device->gpu.uuid)) == 0)
			break;
	if (device == NULL) {
		device = calloc(1, sizeof(*device));
		if (device == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "no memory for marks");
		status = cuda_gpu_open_uuid(&device->gpu, &cuda->gpu->uuid, error);
		if (status != PAGED_OK) {
			free(device);
			return status;
		}
		LIST_INSERT_HEAD(&devices, device, link);
	}
	device->n_batches++;
	cuda->marks = device;
	return PAGED_OK;
}

static void
marks_import_close(struct marks_device *device, struct marks_import *import)
{
	LIST_REMOVE(import, link);
	device->gpu.driver.event_destroy(import->event);
	close(import->pidfd);
	explicit_bzero(import, sizeof(*import));
	free(import);
}

/* Drop a batch's reference.  After the last one imports are closed, but a device that has events of ours is kept. */
static void
marks_device_release(struct marks_device *device)
{
	if (--device->n_batches > 0)
		return;
	while (!LIST_EMPTY(&device->imports))
		marks_import_close(device, LIST_FIRST(&device->imports));
	if (!LIST_EMPTY(&device->events))
		return;
	LIST_REMOVE(device, link);
	cuda_gpu_close(&device->gpu);
	free(device);
}

/* Called without the lock. */
void
compute_cuda_marks_release(struct cuda_batch *cuda)
{
	if (cuda->marks == NULL)
		return;
	pthread_mutex_lock(&lock);
	if (cuda->mark != NULL)
		cuda->mark->in_use = false;
	marks_device_release(cuda->marks);
	pthread_mutex_unlock(&lock);
}

static enum paged_status
marks_event_create(struct marks_device *device, struct marks_event *made, struct paged_error *error)
{
	const struct cuda_driver *driver = &device->gpu.driver;
	enum paged_status status;

	if (cuda_gpu_attribute(&device->gpu, CUDA_DEVICE_IPC_EVENTS) == 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "%s shares no events between processes; finish the batch instead", device->gpu.name);
	status = cuda_gpu_check(&device->gpu,
				driver->event_create(&made->event, CUDA_EVENT_INTERPROCESS | CUDA_EVENT_DISABLE_TIMING),
				"cuEventCreate", error);
	if (status != PAGED_OK)
		return status;
	status = cuda_gpu_check(&device->gpu, driver->ipc_export_event(&made->handle, made->event),
				"cuIpcGetEventHandle", error);
	if (status != PAGED_OK)
		driver->event_destroy(made->event);
	return status;
}

/* Give the batch an event that no other batch uses, or a new one. */
static enum paged_status
marks_event_acquire(struct cuda_batch *cuda, struct paged_error *error)
{
	struct marks_device *device = cuda->marks;
	struct marks_event *event;
	enum paged_status status;

	if (cuda->mark != NULL)
		return PAGED_OK;
	LIST_FOREACH(event, &device->events, link)
		if (!event->in_use)
			break;
	if (event == NULL) {
		event = calloc(1, sizeof(*event));
		if (event == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "no memory for an event");
		status = marks_event_create(device, event, error);
		if (status != PAGED_OK) {
			free(event);
			return status;
		}
		event->number = ++last_number;
		LIST_INSERT_HEAD(&device->events, event, link);
	}
	event->in_use = true;
	cuda->mark = event;
	return PAGED_OK;
}

/* Prepend the pool's name to the error text. */
static enum paged_status
marks_fail(const struct paged_batch *batch, enum paged_status status, const struct paged_error *why,
	   struct paged_error *error)
{
	return status == PAGED_OK ? PAGED_OK
				  : paged_fail(error, status, "pool %s: %s", batch->pool->mapping.name, why->text);
}

enum paged_status
compute_cuda_mark(struct paged_batch *batch, struct mark *mark, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	struct paged_error why;
	/* An event that a graph records is not recorded at its replays. */
	enum paged_status status = compute_cuda_refuse_capture(
		batch, ", and a graph has no marks: mark the stream after each replay", error);

	if (status != PAGED_OK)
		return status;
	status = process_self(&mark->process, &why);
	if (status == PAGED_OK) {
		pthread_mutex_lock(&lock);
		status = marks_device_acquire(cuda, &why);
		if (status == PAGED_OK)
			status = marks_event_acquire(cuda, &why);
		pthread_mutex_unlock(&lock);
	}
	if (status != PAGED_OK)
		return marks_fail(batch, status, &why, error);
	status = map_cuda_check(&batch->pool->mapping, cuda->gpu->driver.event_record(cuda->mark->event, cuda->stream),
				error, "cuEventRecord");
	if (status != PAGED_OK)
		return status;
	mark->kind = MARK_EVENT;
	mark->device = cuda->gpu->uuid;
	mark->event = cuda->mark->number;
	mark->handle = cuda->mark->handle;
	return PAGED_OK;
}

/* Waiting */

static enum paged_status
marks_event_find(const struct marks_device *device, const struct mark *mark, cuda_event *event_p,
		 struct paged_error *error)
{
	const struct marks_event *event;

	LIST_FOREACH(event, &device->events, link)
		if (event->number == mark->event)
			break;
	if (event == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "this process made no such mark");
	*event_p = event->event;
	return PAGED_OK;
}

/*
 * Called without the lock, because the driver opens an event slowly.  Checks again that the process lives, because CUDA
 * does not define how opening an event of a dead process fails.
 */
static enum paged_status
marks_import_open(const struct marks_device *device, const struct mark *mark, cuda_event *event_p, int *pidfd_p,
		  struct paged_error *error)
{
	const struct cuda_driver *driver = &device->gpu.driver;
	enum paged_status status = process_watch(&mark->process, pidfd_p, error);

	if (status != PAGED_OK)
		return status;
	status = cuda_gpu_check(&device->gpu, driver->ipc_open_event(event_p, mark->handle), "cuIpcOpenEventHandle",
				error);
	if (status == PAGED_OK && !process_ended(*pidfd_p))
		return PAGED_OK;
	if (status == PAGED_OK)
		driver->event_destroy(*event_p);
	if (process_ended(*pidfd_p))
		status = paged_fail(error, PAGED_ERR_GONE, "process %d has ended", (int)mark->process.pid);
	close(*pidfd_p);
	return status;
}

/*
 * Open a mark's event and add it to the list.  The import is in the list from the beginning, so that no other thread
 * opens the same event; the calling batch's reference keeps the device.
 */
static enum paged_status
marks_import_add(struct marks_device *device, const struct mark *mark, struct marks_import **import_p,
		 struct paged_error *error)
{
	struct marks_import *import = calloc(1, sizeof(*import));
	enum paged_status status;
	cuda_event event = NULL;
	int pidfd = -1;

	if (import == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for an event");
	import->process = mark->process;
	import->number = mark->event;
	import->handle = mark->handle;
	import->opening = true;
	LIST_INSERT_HEAD(&device->imports, import, link);
	pthread_mutex_unlock(&lock);
	status = marks_import_open(device, mark, &event, &pidfd, error);
	pthread_mutex_lock(&lock);
	import->event = event;
	import->pidfd = pidfd;
	import->opening = false;
	pthread_cond_broadcast(&opened);
	if (status == PAGED_OK) {
		*import_p = import;
		return PAGED_OK;
	}
	LIST_REMOVE(import, link);
	explicit_bzero(import, sizeof(*import));
	free(import);
	return status;
}

/* Find the mark's event among those that are open; wait while another thread opens it. */
static struct marks_import *
marks_import_search(const struct marks_device *device, const struct mark *mark)
{
	struct marks_import *import;

	for (;;) {
		LIST_FOREACH(import, &device->imports, link)
			if (memcmp(&import->process, &mark->process, sizeof(import->process)) == 0 &&
			    import->number == mark->event &&
			    memcmp(&import->handle, &mark->handle, sizeof(import->handle)) == 0)
				break;
		if (import == NULL || !import->opening)
			return import;
		pthread_cond_wait(&opened, &lock);
	}
}

/* Releases the lock while it opens an event, or waits for a thread that does. */
static enum paged_status
marks_import_find(struct marks_device *device, const struct mark *mark, cuda_event *event_p, struct paged_error *error)
{
	struct marks_import *import, *next;
	enum paged_status status = PAGED_OK;

	for (import = LIST_FIRST(&device->imports); import != NULL; import = next) {
		next = LIST_NEXT(import, link);
		if (!import->opening && process_ended(import->pidfd))
			marks_import_close(device, import);
	}
	import = marks_import_search(device, mark);
	if (import == NULL)
		status = marks_import_add(device, mark, &import, error);
	if (status == PAGED_OK)
		*event_p = import->event;
	return status;
}

static enum paged_status
marks_check_device(const struct cuda_batch *cuda, const struct mark *mark, struct paged_error *error)
{
	if (mark->kind == MARK_EVENT && memcmp(&mark->device, &cuda->gpu->uuid, sizeof(mark->device)) == 0)
		return PAGED_OK;
	if (mark->kind == MARK_EVENT)
		return paged_fail(error, PAGED_ERR_INVALID, "the mark is of another GPU than %s", cuda->gpu->uuid_text);
	return paged_fail(error, PAGED_ERR_INVALID, "the mark is not of a GPU's memory");
}

/*
 * Once the event is found, the lock is held until the wait is on the stream, so no
 * other thread closes the event before that.  The wait is for the event's last
 * record at the time of the call.  That record may be later than the mark, but it
 * covers the mark's work: it is after the mark on the same stream, or it is of
 * another batch that took the event when the marking batch was destroyed, with all
 * its work done.
 */
static enum paged_status
marks_wait_event(struct cuda_batch *cuda, const struct mark *mark, const struct process_name *self,
		 struct paged_error *error)
{
	cuda_event event = NULL;
	enum paged_status status;

	pthread_mutex_lock(&lock);
	status = marks_device_acquire(cuda, error);
	if (status == PAGED_OK) {
		if (mark->process.random == self->random && mark->process.pid == self->pid)
			status = marks_event_find(cuda->marks, mark, &event, error);
		else
			status = marks_import_find(cuda->marks, mark, &event, error);
	}
	if (status == PAGED_OK)
		status = cuda_gpu_check(cuda->gpu, cuda->gpu->driver.stream_wait(cuda->stream, event, 0),
					"cuStreamWaitEvent", error);
	pthread_mutex_unlock(&lock);
	return status;
}

enum paged_status
compute_cuda_wait(struct paged_batch *batch, const struct mark *mark, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	struct process_name self;
	struct paged_error why;
	enum paged_status status = marks_check_device(cuda, mark, &why);

	if (status == PAGED_OK)
		status = process_self(&self, &why);
	if (status != PAGED_OK)
		return marks_fail(batch, status, &why, error);
	status = compute_cuda_refuse_capture(batch, ", and a graph waits for no marks: wait before each replay", error);
	if (status != PAGED_OK)
		return status;
	status = marks_wait_event(cuda, mark, &self, &why);
	return marks_fail(batch, status, &why, error);
}

enum paged_status
compute_cuda_finish(struct paged_batch *batch, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status =
		compute_cuda_refuse_capture(batch, ", and a graph has not begun: wait for its replay", error);

	if (status != PAGED_OK)
		return status;
	return map_cuda_check(&batch->pool->mapping, cuda->gpu->driver.stream_synchronize(cuda->stream), error,
			      "cuStreamSynchronize");
}
