/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/host/share_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *
cuda_export_name(enum cuda_export kind)
{
	return kind == CUDA_EXPORT_VMM ? "vmm" : "legacy";
}

/* Reserve addresses for a vmm allocation and map it there. */
static enum paged_status
vmm_map(const struct cuda_gpu *gpu, cuda_allocation allocation, uint64_t size, cuda_address *address_p,
	struct paged_error *error)
{
	const struct cuda_access access = {
		.location = { .type = CUDA_LOCATION_DEVICE, .id = gpu->device },
		.flags = CUDA_ACCESS_READ_WRITE,
	};
	const struct cuda_driver *driver = &gpu->driver;
	enum paged_status status;
	cuda_address address;

	status = cuda_gpu_check(gpu, driver->vmm_reserve(&address, size, CUDA_GRANULE, 0, 0), "cuMemAddressReserve",
				error);
	if (status != PAGED_OK)
		return status;
	status = cuda_gpu_check(gpu, driver->vmm_map(address, size, 0, allocation, 0), "cuMemMap", error);
	if (status != PAGED_OK)
		goto err_unreserve;
	status = cuda_gpu_check(gpu, driver->vmm_access(address, size, &access, 1), "cuMemSetAccess", error);
	if (status != PAGED_OK)
		goto err_unmap;
	*address_p = address;
	return PAGED_OK;

err_unmap:
	driver->vmm_unmap(address, size);
err_unreserve:
	driver->vmm_unreserve(address, size);
	return status;
}

static void
vmm_unmap(const struct cuda_gpu *gpu, cuda_address address, uint64_t size)
{
	gpu->driver.vmm_unmap(address, size);
	gpu->driver.vmm_unreserve(address, size);
}

/*
 * Copy the canary to (or from) the memory's end, on a separate stream: the
 * default stream would wait for other work of this process.
 */
static enum paged_status
canary_copy(const struct cuda_gpu *gpu, cuda_address address, uint64_t size, const uint8_t *in, uint8_t *out,
	    struct paged_error *error)
{
	const struct cuda_driver *driver = &gpu->driver;
	cuda_address at = address + size - CUDA_CANARY_SIZE;
	enum paged_status status;
	cuda_stream stream;

	status = cuda_gpu_check(gpu, driver->stream_create(&stream, CUDA_STREAM_NON_BLOCKING), "cuStreamCreate", error);
	if (status != PAGED_OK)
		return status;
	if (in != NULL)
		status = cuda_gpu_check(gpu, driver->copy_in(at, in, CUDA_CANARY_SIZE, stream), "cuMemcpyHtoDAsync",
					error);
	else
		status = cuda_gpu_check(gpu, driver->copy_out(out, at, CUDA_CANARY_SIZE, stream), "cuMemcpyDtoHAsync",
					error);
	if (status == PAGED_OK)
		status = cuda_gpu_check(gpu, driver->stream_synchronize(stream), "cuStreamSynchronize", error);
	driver->stream_destroy(stream);
	return status;
}

/* Making */

static enum paged_status
vmm_alloc(const struct cuda_gpu *gpu, struct cuda_memory *memory, int *fd_p, struct paged_error *error)
{
	const struct cuda_allocation_properties properties = {
		.type = CUDA_ALLOCATION_PINNED,
		.handle_types = CUDA_HANDLE_POSIX_FD,
		.location = { .type = CUDA_LOCATION_DEVICE, .id = gpu->device },
		/* As memory of cuMemAlloc() is: engines register their pages with network adapters. */
		.rdma_capable = cuda_gpu_attribute(gpu, CUDA_DEVICE_RDMA_WITH_VMM) != 0,
	};
	const struct cuda_driver *driver = &gpu->driver;
	enum paged_status status;
	size_t granule;

	if (cuda_gpu_attribute(gpu, CUDA_DEVICE_VMM) == 0 || cuda_gpu_attribute(gpu, CUDA_DEVICE_POSIX_FD_HANDLES) == 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "%s shares no memory by descriptors", gpu->name);
	status = cuda_gpu_check(gpu, driver->vmm_granularity(&granule, &properties, CUDA_GRANULARITY_RECOMMENDED),
				"cuMemGetAllocationGranularity", error);
	if (status != PAGED_OK)
		return status;
	if (granule == 0 || __builtin_add_overflow(memory->size, granule - 1, &memory->size))
		return paged_fail(error, PAGED_ERR_BACKEND, "cuMemGetAllocationGranularity returns %zu bytes", granule);
	memory->size -= memory->size % granule;
	status = cuda_gpu_check(gpu, driver->vmm_create(&memory->allocation, memory->size, &properties, 0),
				"cuMemCreate", error);
	if (status != PAGED_OK)
		return status;
	status = cuda_gpu_check(gpu, driver->vmm_export(fd_p, memory->allocation, CUDA_HANDLE_POSIX_FD, 0),
				"cuMemExportToShareableHandle", error);
	if (status != PAGED_OK)
		goto err_release;
	status = vmm_map(gpu, memory->allocation, memory->size, &memory->address, error);
	if (status != PAGED_OK)
		goto err_close;
	return PAGED_OK;

err_close:
	close(*fd_p);
	*fd_p = -1;
err_release:
	driver->vmm_release(memory->allocation);
	return status;
}

static enum paged_status
legacy_alloc(const struct cuda_gpu *gpu, struct cuda_memory *memory, struct cuda_share *share,
	     struct paged_error *error)
{
	const struct cuda_driver *driver = &gpu->driver;
	enum paged_status status;

	status = cuda_gpu_check(gpu, driver->alloc(&memory->address, memory->size), "cuMemAlloc", error);
	if (status != PAGED_OK)
		return status;
	status = cuda_gpu_check(gpu, driver->ipc_export(&share->handle, memory->address), "cuIpcGetMemHandle", error);
	if (status != PAGED_OK)
		driver->free(memory->address);
	return status;
}

enum paged_status
cuda_share_alloc(const struct cuda_gpu *gpu, enum cuda_export kind, uint64_t size, struct cuda_memory *memory,
		 struct cuda_share *share, int *fd_p, struct paged_error *error)
{
	struct cuda_memory made = { .kind = kind };
	enum paged_status status;

	*fd_p = -1;
	if (__builtin_add_overflow(size, CUDA_CANARY_SIZE + CUDA_GRANULE - 1, &made.size))
		return paged_fail(error, PAGED_ERR_LIMIT, "%" PRIu64 " bytes exceed 2^64", size);
	made.size -= made.size % CUDA_GRANULE;
	status = cuda_gpu_enter(gpu, error);
	if (status != PAGED_OK)
		return status;
	if (kind == CUDA_EXPORT_VMM)
		status = vmm_alloc(gpu, &made, fd_p, error);
	else
		status = legacy_alloc(gpu, &made, share, error);
	if (status != PAGED_OK)
		goto out;
	status = canary_copy(gpu, made.address, made.size, share->canary, NULL, error);
	if (status != PAGED_OK) {
		cuda_share_free(gpu, &made);
		if (*fd_p >= 0)
			close(*fd_p);
		*fd_p = -1;
		goto out;
	}
	share->kind = kind;
	share->device = gpu->uuid;
	share->size = made.size;
	share->offset = 0;
	*memory = made;
out:
	cuda_gpu_leave(gpu);
	return status;
}

void
cuda_share_free(const struct cuda_gpu *gpu, struct cuda_memory *memory)
{
	struct paged_error error;

	if (memory->size == 0 || cuda_gpu_enter(gpu, &error) != PAGED_OK)
		return;
	if (memory->kind == CUDA_EXPORT_VMM) {
		vmm_unmap(gpu, memory->address, memory->size);
		gpu->driver.vmm_release(memory->allocation);
	} else {
		gpu->driver.free(memory->address);
	}
	cuda_gpu_leave(gpu);
	*memory = (struct cuda_memory){ 0 };
}

/* Opening */

static enum paged_status
vmm_open(const struct cuda_gpu *gpu, int fd, struct cuda_import *import, struct paged_error *error)
{
	const struct cuda_driver *driver = &gpu->driver;
	enum paged_status status;

	/* The driver takes the descriptor's number in the pointer argument. */
	status =
		cuda_gpu_check(gpu, driver->vmm_import(&import->allocation, (void *)(intptr_t)fd, CUDA_HANDLE_POSIX_FD),
			       "cuMemImportFromShareableHandle", error);
	if (status != PAGED_OK)
		return status;
	status = vmm_map(gpu, import->allocation, import->size, &import->address, error);
	if (status != PAGED_OK)
		driver->vmm_release(import->allocation);
	return status;
}

static enum paged_status
legacy_open(const struct cuda_gpu *gpu, const struct cuda_share *share, struct cuda_import *import,
	    struct paged_error *error)
{
	enum paged_status status;

	status = cuda_gpu_check(gpu, gpu->driver.ipc_open(&import->opened, share->handle, CUDA_IPC_LAZY_PEER_ACCESS),
				"cuIpcOpenMemHandle", error);
	if (status == PAGED_OK)
		import->address = import->opened + share->offset;
	return status;
}

static void
import_undo(const struct cuda_gpu *gpu, const struct cuda_import *import)
{
	if (import->kind == CUDA_EXPORT_VMM) {
		vmm_unmap(gpu, import->address, import->size);
		gpu->driver.vmm_release(import->allocation);
	} else {
		gpu->driver.ipc_close(import->opened);
	}
}

static enum paged_status
canary_check(const struct cuda_gpu *gpu, const struct cuda_share *share, cuda_address address,
	     struct paged_error *error)
{
	uint8_t seen[CUDA_CANARY_SIZE];
	enum paged_status status = canary_copy(gpu, address, share->size, NULL, seen, error);

	if (status != PAGED_OK || memcmp(seen, share->canary, sizeof(seen)) == 0)
		return status;
	return paged_fail(error, PAGED_ERR_BACKEND,
			  "the memory opens, and its last %d bytes are not those that its owner wrote: "
			  "it is other memory, or a process wrote past the pages",
			  CUDA_CANARY_SIZE);
}

static void
error_add_obstacle(const struct cuda_gpu *gpu, struct paged_error *error)
{
	const char *obstacle = cuda_gpu_obstacle(gpu);
	size_t length = strlen(error->text);

	if (obstacle != NULL)
		snprintf(error->text + length, sizeof(error->text) - length, "; %s", obstacle);
}

enum paged_status
cuda_import_open(const struct cuda_gpu *gpu, const struct cuda_share *share, int fd, struct cuda_import *import,
		 struct paged_error *error)
{
	struct cuda_import made = { .kind = share->kind, .size = share->size };
	enum paged_status status = cuda_gpu_enter(gpu, error);

	if (status != PAGED_OK)
		return status;
	if (share->kind == CUDA_EXPORT_VMM)
		status = vmm_open(gpu, fd, &made, error);
	else
		status = legacy_open(gpu, share, &made, error);
	if (status == PAGED_OK) {
		status = canary_check(gpu, share, made.address, error);
		if (status != PAGED_OK)
			import_undo(gpu, &made);
	}
	if (status == PAGED_OK)
		*import = made;
	else
		error_add_obstacle(gpu, error);
	cuda_gpu_leave(gpu);
	return status;
}

void
cuda_import_close(const struct cuda_gpu *gpu, struct cuda_import *import)
{
	struct paged_error error;

	if (import->size == 0 || cuda_gpu_enter(gpu, &error) != PAGED_OK)
		return;
	import_undo(gpu, import);
	cuda_gpu_leave(gpu);
	*import = (struct cuda_import){ 0 };
}
