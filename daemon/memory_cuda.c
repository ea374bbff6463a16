/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages in a GPU's memory: each pool is one allocation, which members open by
 * a descriptor or a handle (kernels/cuda/host/share_memory.h).  Whether that works depends
 * on the driver, the device, and the confinement and user of the processes;
 * so a child process tries it before any member does.
 *
 * The daemon keeps a context on the device for the life of the pool and
 * launches nothing in it.  A fault of a worker's kernel therefore affects only
 * that worker, except under MPS, where it ends all processes on the device.
 */
#include <config.h>

#include "daemon/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log/log.h"
#include "daemon/probe.h"
#include "daemon/random.h"
#include "kernels/layout.h"

struct memory_cuda {
	struct cuda_gpu gpu;
	struct cuda_memory memory;
	struct cuda_share share;
	cuda_event poll_event;
	bool poll_failed; /* the last poll, by a result that is not known to end CUDA in this process */
};

static enum paged_status
memory_cuda_probe(struct paged_error *error)
{
	struct cuda_driver driver;
	enum paged_status status = cuda_driver_open(&driver, error);

	cuda_driver_close(&driver);
	return status;
}

static enum paged_status
memory_cuda_limits(const struct memory_request *request, struct memory_limits *limits, struct paged_error *error)
{
	char uuid[CUDA_UUID_TEXT];
	enum paged_status status;
	size_t available, total;
	struct cuda_gpu gpu;

	status = cuda_gpu_open(&gpu, request->device, error);
	if (status != PAGED_OK)
		return status;
	status = cuda_gpu_enter(&gpu, error);
	if (status != PAGED_OK)
		goto out;
	status = cuda_gpu_check(&gpu, gpu.driver.memory_info(&available, &total), "cuMemGetInfo", error);
	cuda_gpu_leave(&gpu);
	if (status != PAGED_OK)
		goto out;
	limits->total = total;
	limits->available = available;
	snprintf(limits->location, sizeof(limits->location), "%s (%s)", gpu.name, cuda_uuid_format(&gpu.uuid, uuid));
out:
	cuda_gpu_close(&gpu);
	return status;
}

/* Allocates the memory with one kind of export, and tests it in a child process. */
static enum paged_status
memory_cuda_try_alloc(struct memory *memory, enum cuda_export kind, uint64_t size, struct paged_error *error)
{
	struct memory_cuda *own = memory->own;
	enum paged_status status;

	status = cuda_share_alloc(&own->gpu, kind, size, &own->memory, &own->share, &memory->fd, error);
	if (status != PAGED_OK)
		return status;
	status = probe_export(&own->share, memory->fd, error);
	if (status == PAGED_OK)
		return PAGED_OK;
	cuda_share_free(&own->gpu, &own->memory);
	if (memory->fd >= 0)
		close(memory->fd);
	memory->fd = -1;
	return status;
}

/* Prefers descriptors: memory opened by a descriptor stays valid for its users even if the daemon dies. */
static enum paged_status
memory_cuda_alloc_shared(struct memory *memory, const struct memory_request *request, struct paged_error *error)
{
	struct paged_error vmm, legacy;
	enum paged_status status;

	if (request->export == MEMORY_LEGACY)
		return memory_cuda_try_alloc(memory, CUDA_EXPORT_LEGACY, request->size, error);
	status = memory_cuda_try_alloc(memory, CUDA_EXPORT_VMM, request->size, &vmm);
	if (status == PAGED_OK)
		return PAGED_OK;
	/* If there is not enough memory, the other kind of export would fail, too. */
	if (request->export == MEMORY_VMM || status == PAGED_ERR_NOMEM) {
		*error = vmm;
		return status;
	}
	log_write(LOG_LEVEL_INFO, "pool", (struct log_ids){ .pool = request->name },
		  "%s: export = vmm does not work here: %s", request->name, vmm.text);
	if (memory_cuda_try_alloc(memory, CUDA_EXPORT_LEGACY, request->size, &legacy) == PAGED_OK)
		return PAGED_OK;
	return paged_fail(error, legacy.status, "export = vmm: %.*s; export = legacy: %s", 110, vmm.text, legacy.text);
}

static uint64_t
memory_cuda_next_generation(void)
{
	static uint64_t last;

	return ++last;
}

static void
memory_cuda_fill_grant(struct memory *memory)
{
	const struct memory_cuda *own = memory->own;
	struct wire_memory *grant = &memory->grant;

	grant->export = own->share.kind == CUDA_EXPORT_VMM ? WIRE_EXPORT_VMM : WIRE_EXPORT_LEGACY;
	grant->generation = memory_cuda_next_generation();
	_Static_assert(sizeof(grant->device) == sizeof(own->share.device), "both are UUIDs");
	_Static_assert(sizeof(grant->canary) == sizeof(own->share.canary), "both are canaries");
	memcpy(grant->device, &own->share.device, sizeof(grant->device));
	memcpy(grant->canary, own->share.canary, sizeof(grant->canary));
	memory->size = own->share.size;
	snprintf(memory->text, sizeof(memory->text), "CUDA, %s, %.40s", cuda_export_name(own->share.kind),
		 own->gpu.name);
	snprintf(memory->device, sizeof(memory->device), "%s", own->gpu.uuid_text);
}

static void
memory_cuda_destroy_event(struct memory_cuda *own)
{
	struct paged_error error;

	if (own->poll_event == NULL || cuda_gpu_enter(&own->gpu, &error) != PAGED_OK)
		return;
	own->gpu.driver.event_destroy(own->poll_event);
	cuda_gpu_leave(&own->gpu);
}

static enum paged_status
memory_cuda_create_event(struct memory_cuda *own, struct paged_error *error)
{
	enum paged_status status = cuda_gpu_enter(&own->gpu, error);

	if (status != PAGED_OK)
		return status;
	status = cuda_gpu_check(&own->gpu, own->gpu.driver.event_create(&own->poll_event, CUDA_EVENT_DISABLE_TIMING),
				"cuEventCreate", error);
	cuda_gpu_leave(&own->gpu);
	return status;
}

static void
memory_cuda_release(struct memory *memory)
{
	struct memory_cuda *own = memory->own;

	if (memory->fd >= 0)
		close(memory->fd);
	memory->fd = -1;
	if (own == NULL)
		return;
	memory_cuda_destroy_event(own);
	cuda_share_free(&own->gpu, &own->memory);
	cuda_gpu_close(&own->gpu);
	explicit_bzero(&own->share, sizeof(own->share));
	free(own);
	memory->own = NULL;
}

/*
 * MPS runs the kernels of all processes in one, so those of a dead process go on until they are done.  The attribute
 * tells whether this process uses MPS.  Whether workers do is not known here: they may have another pipe directory.
 */
static enum paged_status
memory_cuda_check_mps(const struct cuda_gpu *gpu, const struct memory_request *request, struct paged_error *error)
{
	if (cuda_gpu_attribute(gpu, CUDA_DEVICE_MPS_ENABLED) == 0) {
		if (request->quarantine_ms == 0)
			log_write(LOG_LEVEL_WARNING, "pool", (struct log_ids){ .pool = request->name },
				  "%s: quarantine = 0s: no worker may use %s through MPS, where kernels of a dead "
				  "process go on",
				  request->name, gpu->name);
		return PAGED_OK;
	}
	if (request->quarantine_ms == 0)
		return paged_fail(
			error, PAGED_ERR_INVALID,
			"quarantine = 0s, but %s is shared through MPS, where kernels of a dead process go on: "
			"set at least the time of the longest kernel, 1s for example",
			gpu->name);
	log_write(LOG_LEVEL_WARNING, "pool", (struct log_ids){ .pool = request->name },
		  "%s: %s is shared through MPS: a fault in one process ends all that use it", request->name,
		  gpu->name);
	return PAGED_OK;
}

static enum paged_status
memory_cuda_alloc(struct memory *memory, const struct memory_request *request, struct paged_error *error)
{
	struct memory_cuda *own = calloc(1, sizeof(*own));
	enum paged_status status;

	*memory = (struct memory){ .ops = &memory_ops_cuda, .fd = -1, .own = own };
	if (own == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a CUDA device");
	status = daemon_random(own->share.canary, sizeof(own->share.canary), error);
	if (status == PAGED_OK)
		status = cuda_gpu_open(&own->gpu, request->device, error);
	if (status != PAGED_OK)
		goto err_release;
	status = memory_cuda_check_mps(&own->gpu, request, error);
	if (status != PAGED_OK)
		goto err_release;
	status = memory_cuda_create_event(own, error);
	if (status == PAGED_OK)
		status = memory_cuda_alloc_shared(memory, request, error);
	if (status != PAGED_OK)
		goto err_release;
	memory_cuda_fill_grant(memory);
	return PAGED_OK;

err_release:
	memory_cuda_release(memory);
	return status;
}

static enum paged_status
memory_cuda_handle(const struct memory *memory, struct wire_handle *handle, struct paged_error *error)
{
	const struct memory_cuda *own = memory->own;

	if (own->share.kind != CUDA_EXPORT_LEGACY)
		return memory_no_handle(memory, handle, error);
	_Static_assert(sizeof(handle->bytes) == sizeof(own->share.handle), "both are CUDA's");
	memcpy(handle->bytes, &own->share.handle, sizeof(handle->bytes));
	memcpy(handle->device, &own->share.device, sizeof(handle->device));
	handle->offset = own->share.offset;
	handle->generation = memory->grant.generation;
	return PAGED_OK;
}

/*
 * The daemon launches nothing, so these calls can only report an error of the
 * context: a fault of the device or, under MPS, of another process on it.  The
 * recorded event is work of the stream; the driver may answer the query of an
 * idle stream without looking at the device.  cuda_gpu_enter() would return a
 * status in place of the result.
 *
 * A driver whose device is gone need not return an error that is known to be
 * sticky: CUDA_ERROR_UNKNOWN, for example, after the device has fallen off the
 * bus.  Any other error than lack of memory is therefore taken for a loss when
 * two polls in a row have found one.
 */
static enum paged_status
memory_cuda_poll(const struct memory *memory, struct paged_error *error)
{
	struct memory_cuda *own = memory->own;
	const struct cuda_driver *driver = &own->gpu.driver;
	int result = driver->context_push(own->gpu.context);
	const char *call = "cuCtxPushCurrent";
	bool failed_before = own->poll_failed;
	cuda_context left;

	if (result == CUDA_SUCCESS) {
		call = "cuEventRecord";
		result = driver->event_record(own->poll_event, NULL);
		if (result == CUDA_SUCCESS) {
			call = "cuStreamQuery";
			result = driver->stream_query(NULL);
		}
		driver->context_pop(&left);
	}
	own->poll_failed =
		result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
		return PAGED_OK;
	cuda_fail(driver, result, error, "%s%s", own->poll_failed && failed_before ? "second error in a row: " : "",
		  call);
	if (cuda_is_sticky(result) || (own->poll_failed && failed_before))
		error->status = PAGED_ERR_GONE;
	return error->status;
}

const struct memory_ops memory_ops_cuda = {
	.name = "cuda",
	.alignment = LAYOUT_ALIGNMENT_CUDA,
	.probe = memory_cuda_probe,
	.limits = memory_cuda_limits,
	.alloc = memory_cuda_alloc,
	.handle = memory_cuda_handle,
	.release = memory_cuda_release,
	.poll = memory_cuda_poll,
};
