/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations: cuMemAlloc and related calls, IPC handles, pinned host memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake-cuda/simt_run.h"
#include "tests/fake-cuda/fake_cuda.h"

#define BLOCK_SIZE ((size_t)2 << 20)
#define FILL_LIMIT ((size_t)16 << 20) /* larger ones begin as zeros: filling takes time */

struct pinned {
	struct pinned *next;
	unsigned char *at;
	size_t size;
};

static struct memory *memories;
static struct pinned *pinned;

static bool
memory_alive(const struct memory *memory)
{
	return memory->kind != MEMORY_IMPORTED || (memory->backing.control->alive && !process_gone(memory->owner));
}

struct memory *
memory_find(cuda_address address)
{
	struct memory *memory = memories;

	while (memory != NULL && address - memory->address >= memory->size)
		memory = memory->next;
	return memory;
}

unsigned char *
memory_host(cuda_address address, size_t size, bool writes)
{
	struct memory *memory = memory_find(address);

	if (memory == NULL || memory->size - (address - memory->address) < size || !memory_alive(memory) ||
	    !memory->readable || (writes && !memory->writable))
		return NULL;
	return memory->alias + (address - memory->address);
}

void *
memory_reserve(size_t size, size_t alignment)
{
	size_t whole = size + alignment;
	unsigned char *at, *start;

	if (whole < size)
		return NULL;
	at = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	start = (unsigned char *)(((uintptr_t)at + alignment - 1) / alignment * alignment);
	if (start > at)
		munmap(at, (size_t)(start - at));
	if (at + whole > start + size)
		munmap(start + size, (size_t)(at + whole - start - size));
	return start;
}

static bool
map_fixed(const struct backing *backing, void *at, size_t offset, size_t size)
{
	if (mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, backing->fd, (off_t)offset) == MAP_FAILED)
		return false;
	return madvise(at, size, MADV_DONTFORK) == 0;
}

struct memory *
memory_map(const struct backing *backing, cuda_address address, size_t offset, size_t size)
{
	size_t mapped = (size + 4095) / 4096 * 4096;
	void *at = address != 0 ? (void *)address : memory_reserve(mapped, BLOCK_SIZE); /* NOLINT */
	struct memory *memory = calloc(1, sizeof(*memory));
	void *alias = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, backing->fd, (off_t)offset);

	if (memory == NULL || at == NULL || alias == MAP_FAILED || !map_fixed(backing, at, offset, mapped) ||
	    !simt_region_add(at, size, true, "device memory")) {
		free(memory);
		return NULL;
	}
	*memory = (struct memory){ .next = memories,
				   .address = (cuda_address)(uintptr_t)at,
				   .size = size,
				   .mapped = mapped,
				   .alias = alias,
				   .readable = true,
				   .writable = true,
				   .owner = -1 };
	simt_region_allow(at, false, false);
	memories = memory;
	return memory;
}

void
memory_unmap(struct memory *memory)
{
	struct memory **at = &memories;
	void *start = (void *)(uintptr_t)memory->address;

	while (*at != memory)
		at = &(*at)->next;
	*at = memory->next;
	simt_region_remove(start);
	munmap(memory->alias, memory->mapped);
	if (memory->kind == MEMORY_MAPPED) /* the reservation stays */
		mmap(start, memory->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else
		munmap(start, memory->mapped);
	if (memory->kind == MEMORY_ALLOCATED)
		memory->backing.control->alive = 0;
	if (memory->kind != MEMORY_MAPPED)
		backing_close(&memory->backing);
	if (memory->owner >= 0)
		close(memory->owner);
	free(memory);
}

void
memory_open(cuda_device device)
{
	for (struct memory *memory = memories; memory != NULL; memory = memory->next) {
		void *at = (void *)(uintptr_t)memory->address;

		if (memory->device != device || !memory->readable || !memory_alive(memory))
			continue;
		mprotect(at, memory->mapped, memory->writable ? PROT_READ | PROT_WRITE : PROT_READ);
		simt_region_allow(at, true, memory->writable);
	}
}

void
memory_close(cuda_device device)
{
	for (struct memory *memory = memories; memory != NULL; memory = memory->next) {
		if (memory->device != device)
			continue;
		mprotect((void *)(uintptr_t)memory->address, memory->mapped, PROT_NONE);
		simt_region_allow((void *)(uintptr_t)memory->address, false, false);
	}
}

void
memory_forget(cuda_device device)
{
	struct memory *next;

	for (struct memory *memory = memories; memory != NULL; memory = next) {
		next = memory->next;
		if (memory->device == device && memory->kind != MEMORY_MAPPED)
			memory_unmap(memory);
	}
}

static size_t
memory_used(cuda_device device)
{
	size_t used = vmm_used(device);

	for (const struct memory *memory = memories; memory != NULL; memory = memory->next)
		if (memory->device == device && memory->kind == MEMORY_ALLOCATED)
			used += memory->mapped;
	return used;
}

/* Allocating */

static int
memory_alloc(cuda_address *address, size_t size)
{
	cuda_device device = context_now()->device;
	struct backing backing;
	struct memory *memory;

	if (size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > device_memory_size() - memory_used(device) || memory_used(device) > device_memory_size())
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!backing_make(&backing, BACKING_ALLOCATED, size, device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory = memory_map(&backing, 0, 0, size);
	if (memory == NULL) {
		backing_close(&backing);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->kind = MEMORY_ALLOCATED;
	memory->backing = backing;
	memory->device = device;
	memory->backing.control->address = memory->address;
	if (size <= FILL_LIMIT)
		memset(memory->alias, 0xff, memory->mapped); /* NaN: unwritten memory must not look like zeros */
	*address = memory->address;
	return CUDA_SUCCESS;
}

static int
memory_free(cuda_address address)
{
	struct memory *memory = memory_find(address);

	if (memory == NULL || memory->address != address || memory->kind != MEMORY_ALLOCATED)
		return CUDA_ERROR_INVALID_VALUE;
	memory_unmap(memory);
	return CUDA_SUCCESS;
}

static int
memory_info(size_t *available, size_t *total)
{
	size_t used = memory_used(context_now()->device);

	*total = device_memory_size();
	*available = used < *total ? *total - used : 0;
	return CUDA_SUCCESS;
}

static int
memory_attribute(void *value, int attribute, cuda_address address)
{
	const struct memory *memory = memory_find(address);

	if (memory == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CUDA_POINTER_CONTEXT:
		*(struct CUctx_st **)value = context_now();
		return CUDA_SUCCESS;
	case CUDA_POINTER_DEVICE_ORDINAL:
		*(int *)value = memory->device;
		return CUDA_SUCCESS;
	case CUDA_POINTER_IS_RDMA_CAPABLE:
		*(unsigned int *)value = memory->vmm == NULL || vmm_rdma_capable(memory->vmm);
		return CUDA_SUCCESS;
	case CUDA_POINTER_IS_LEGACY_IPC_CAPABLE:
		*(unsigned int *)value = memory->kind == MEMORY_ALLOCATED;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

ENTRY(cuMemAlloc_v2, (cuda_address * address, size_t size), ENTRY_UNSAFE, memory_alloc(address, size))
ENTRY(cuMemFree_v2, (cuda_address address), ENTRY_UNSAFE, memory_free(address))
ENTRY(cuMemGetInfo_v2, (size_t * available, size_t *total), ENTRY_CONTEXT, memory_info(available, total))
ENTRY(cuPointerGetAttribute, (void *value, int attribute, cuda_address address), ENTRY_CONTEXT,
      memory_attribute(value, attribute, address))

/* Pinned host memory, which kernels may touch too */

static int
host_alloc(void **p, size_t size)
{
	struct pinned *new = malloc(sizeof(*new));
	void *at = size == 0 ? NULL : aligned_alloc(4096, (size + 4095) / 4096 * 4096);

	if (new == NULL || at == NULL || !simt_region_add(at, size, true, "pinned host memory")) {
		free(new);
		free(at);
		return size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	}
	*new = (struct pinned){ .next = pinned, .at = at, .size = size };
	pinned = new;
	*p = at;
	return CUDA_SUCCESS;
}

static int
host_free(void *p)
{
	struct pinned **at = &pinned, *gone;

	while (*at != NULL && (*at)->at != p)
		at = &(*at)->next;
	gone = *at;
	if (gone == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*at = gone->next;
	simt_region_remove(p);
	free(p);
	free(gone);
	return CUDA_SUCCESS;
}

bool
memory_pinned(const void *at, size_t size)
{
	for (const struct pinned *each = pinned; each != NULL; each = each->next) {
		size_t offset = (size_t)((uintptr_t)at - (uintptr_t)each->at);

		if (offset < each->size && each->size - offset >= size)
			return true;
	}
	return false;
}

ENTRY(cuMemHostAlloc, (void **p, size_t size, __attribute__((unused)) unsigned int flags), ENTRY_UNSAFE,
      host_alloc(p, size))
ENTRY(cuMemFreeHost, (void *p), ENTRY_UNSAFE, host_free(p))

/* IPC handles */

static int
ipc_export(struct cuda_ipc_handle *handle, cuda_address address)
{
	const struct memory *memory = memory_find(address);

	if (memory == NULL || memory->kind != MEMORY_ALLOCATED || memory->address != address)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = backing_export(&memory->backing);
	return CUDA_SUCCESS;
}

/* The import of this very memory; ALREADY_MAPPED if one of what its owner freed lies in the same place there. */
static int
import_find(const struct backing *backing, int owner_id, struct memory **found)
{
	uint64_t address = backing->control->address;

	*found = NULL;
	for (struct memory *memory = memories; memory != NULL; memory = memory->next) {
		if (memory->kind != MEMORY_IMPORTED || memory->owner_id != owner_id)
			continue;
		if (memory->backing.control->id == backing->control->id)
			*found = memory;
		else if (address < memory->backing.control->address + memory->backing.size &&
			 memory->backing.control->address < address + backing->size)
			return CUDA_ERROR_ALREADY_MAPPED;
	}
	return CUDA_SUCCESS;
}

static int
import_add(const struct backing *backing, int owner, int owner_id, cuda_address *address)
{
	cuda_device device = device_by_uuid(&backing->control->device);
	struct memory *memory;

	if (device != context_now()->device)
		return CUDA_ERROR_INVALID_DEVICE;
	memory = memory_map(backing, 0, 0, backing->size);
	if (memory == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->kind = MEMORY_IMPORTED;
	memory->backing = *backing;
	memory->device = device;
	memory->owner = owner;
	memory->owner_id = owner_id;
	memory->n_opens = 1;
	*address = memory->address;
	return CUDA_SUCCESS;
}

static int
ipc_open(cuda_address *address, struct cuda_ipc_handle handle, unsigned int flags)
{
	struct backing_handle inside;
	struct backing backing;
	struct memory *memory;
	int owner, result;

	if (flags != CUDA_IPC_LAZY_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	result = backing_import(&backing, &handle, BACKING_ALLOCATED, &owner);
	if (result != CUDA_SUCCESS)
		return result;
	memcpy(&inside, &handle, sizeof(inside));
	result = import_find(&backing, inside.pid, &memory);
	if (result == CUDA_SUCCESS && memory == NULL) {
		result = import_add(&backing, owner, inside.pid, address);
		if (result == CUDA_SUCCESS)
			return result;
	} else if (result == CUDA_SUCCESS) {
		memory->n_opens++;
		*address = memory->address;
	}
	backing_close(&backing);
	close(owner);
	return result;
}

static int
ipc_close(cuda_address address)
{
	struct memory *memory = memory_find(address);

	if (memory == NULL || memory->kind != MEMORY_IMPORTED || memory->address != address)
		return CUDA_ERROR_INVALID_VALUE;
	if (--memory->n_opens == 0)
		memory_unmap(memory);
	return CUDA_SUCCESS;
}

ENTRY(cuIpcGetMemHandle, (struct cuda_ipc_handle * handle, cuda_address address), ENTRY_CONTEXT,
      ipc_export(handle, address))
ENTRY(cuIpcOpenMemHandle_v2, (cuda_address * address, struct cuda_ipc_handle handle, unsigned int flags), ENTRY_UNSAFE,
      ipc_open(address, handle, flags))
ENTRY(cuIpcCloseMemHandle, (cuda_address address), ENTRY_UNSAFE, ipc_close(address))
