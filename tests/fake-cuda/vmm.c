/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuMemCreate and cuMemMap: memory, address ranges and mappings have separate lifetimes.
 * Memory that was exported as a descriptor outlives the process that created it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake-cuda/fake_cuda.h"

#define GRANULARITY ((size_t)2 << 20)

struct vmm {
	struct vmm *next;
	cuda_allocation handle;
	unsigned int n_handles, n_maps;
	bool exportable, imported;
	cuda_device device;
	struct backing backing;
};

struct reservation {
	struct reservation *next;
	cuda_address address;
	size_t size;
};

static struct vmm *allocations;
static struct reservation *reservations;
static cuda_allocation last_handle;

size_t
vmm_used(cuda_device device)
{
	size_t used = 0;

	for (const struct vmm *vmm = allocations; vmm != NULL; vmm = vmm->next)
		if (vmm->device == device && !vmm->imported)
			used += vmm->backing.size;
	return used;
}

bool
vmm_rdma_capable(const struct vmm *vmm)
{
	return vmm->backing.control->rdma_capable != 0;
}

static struct vmm *
vmm_find(cuda_allocation handle)
{
	struct vmm *vmm = allocations;

	while (vmm != NULL && (vmm->handle != handle || vmm->n_handles == 0))
		vmm = vmm->next;
	return vmm;
}

static void
vmm_drop(struct vmm *vmm)
{
	struct vmm **at = &allocations;

	if (vmm->n_handles > 0 || vmm->n_maps > 0)
		return;
	while (*at != vmm)
		at = &(*at)->next;
	*at = vmm->next;
	backing_close(&vmm->backing);
	free(vmm);
}

static int
vmm_add(const struct backing *backing, cuda_device device, bool exportable, bool imported, cuda_allocation *allocation)
{
	struct vmm *vmm = calloc(1, sizeof(*vmm));

	if (vmm == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*vmm = (struct vmm){ .next = allocations,
			     .handle = ++last_handle,
			     .n_handles = 1,
			     .exportable = exportable,
			     .imported = imported,
			     .device = device,
			     .backing = *backing };
	allocations = vmm;
	*allocation = vmm->handle;
	return CUDA_SUCCESS;
}

static int
properties_check(const struct cuda_allocation_properties *properties)
{
	if (properties->type != CUDA_ALLOCATION_PINNED || properties->location.type != CUDA_LOCATION_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(properties->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	if (device_attribute_of(properties->location.id, CUDA_DEVICE_VMM) != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((properties->handle_types & ~CUDA_HANDLE_POSIX_FD) != 0 ||
	    (properties->handle_types != 0 &&
	     device_attribute_of(properties->location.id, CUDA_DEVICE_POSIX_FD_HANDLES) != 1))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (properties->rdma_capable != 0 &&
	    device_attribute_of(properties->location.id, CUDA_DEVICE_RDMA_WITH_VMM) != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

static int
vmm_granularity(size_t *size, const struct cuda_allocation_properties *properties, int option)
{
	int result = properties_check(properties);

	if (result == CUDA_SUCCESS && (option < 0 || option > CUDA_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	*size = GRANULARITY;
	return result;
}

static int
vmm_create(cuda_allocation *allocation, size_t size, const struct cuda_allocation_properties *properties,
	   unsigned long long flags)
{
	int result = properties_check(properties);
	cuda_device device = properties->location.id;
	struct backing backing;

	if (result != CUDA_SUCCESS)
		return result;
	if (size == 0 || size % GRANULARITY != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > device_memory_size() || vmm_used(device) > device_memory_size() - size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!backing_make(&backing, BACKING_CREATED, size, device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	backing.control->rdma_capable = properties->rdma_capable;
	return vmm_add(&backing, device, properties->handle_types == CUDA_HANDLE_POSIX_FD, false, allocation);
}

static int
vmm_release(cuda_allocation allocation)
{
	struct vmm *vmm = vmm_find(allocation);

	if (vmm == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	vmm->n_handles--;
	vmm_drop(vmm);
	return CUDA_SUCCESS;
}

static int
vmm_export(void *handle, cuda_allocation allocation, int handle_type, unsigned long long flags)
{
	struct vmm *vmm = vmm_find(allocation);
	int fd;

	if (vmm == NULL || handle_type != CUDA_HANDLE_POSIX_FD || flags != 0 || !vmm->exportable)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(vmm->backing.fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}

static int
vmm_import(cuda_allocation *allocation, void *handle, int handle_type)
{
	int fd = handle_type == CUDA_HANDLE_POSIX_FD ? fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 3) : -1;
	struct backing backing;
	cuda_device device;

	if (fd < 0 || !backing_open(&backing, fd, BACKING_CREATED))
		return CUDA_ERROR_INVALID_VALUE;
	device = device_by_uuid(&backing.control->device);
	if (device < 0) {
		backing_close(&backing);
		return CUDA_ERROR_INVALID_DEVICE;
	}
	return vmm_add(&backing, device, true, true, allocation);
}

ENTRY(cuMemGetAllocationGranularity, (size_t * size, const struct cuda_allocation_properties *properties, int option),
      ENTRY_DRIVER, vmm_granularity(size, properties, option))
ENTRY(cuMemCreate,
      (cuda_allocation * allocation, size_t size, const struct cuda_allocation_properties *properties,
       unsigned long long flags),
      ENTRY_DRIVER, vmm_create(allocation, size, properties, flags))
ENTRY(cuMemRelease, (cuda_allocation allocation), ENTRY_DRIVER, vmm_release(allocation))
ENTRY(cuMemExportToShareableHandle,
      (void *handle, cuda_allocation allocation, int handle_type, unsigned long long flags), ENTRY_DRIVER,
      vmm_export(handle, allocation, handle_type, flags))
ENTRY(cuMemImportFromShareableHandle, (cuda_allocation * allocation, void *handle, int handle_type), ENTRY_DRIVER,
      vmm_import(allocation, handle, handle_type))

/* Addresses */

static int
vmm_reserve(cuda_address *address, size_t size, size_t alignment, unsigned long long flags)
{
	struct reservation *reservation;
	void *at;

	if (size == 0 || size % GRANULARITY != 0 || (alignment & (alignment - 1)) != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	reservation = malloc(sizeof(*reservation));
	at = memory_reserve(size, alignment > GRANULARITY ? alignment : GRANULARITY);
	if (reservation == NULL || at == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*reservation = (struct reservation){ reservations, (cuda_address)(uintptr_t)at, size };
	reservations = reservation;
	*address = reservation->address;
	return CUDA_SUCCESS;
}

static bool
range_mapped(cuda_address address, size_t size)
{
	for (size_t i = 0; i < size; i += GRANULARITY)
		if (memory_find(address + i) != NULL)
			return true;
	return false;
}

static int
vmm_unreserve(cuda_address address, size_t size)
{
	struct reservation **at = &reservations, *gone;

	while (*at != NULL && ((*at)->address != address || (*at)->size != size))
		at = &(*at)->next;
	gone = *at;
	if (gone == NULL || range_mapped(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	*at = gone->next;
	munmap((void *)(uintptr_t)address, size);
	free(gone);
	return CUDA_SUCCESS;
}

static bool
range_reserved(cuda_address address, size_t size)
{
	for (const struct reservation *each = reservations; each != NULL; each = each->next)
		if (address >= each->address && address - each->address < each->size &&
		    each->size - (address - each->address) >= size)
			return true;
	return false;
}

static int
vmm_map(cuda_address address, size_t size, size_t offset, cuda_allocation allocation, unsigned long long flags)
{
	struct vmm *vmm = vmm_find(allocation);
	struct memory *memory;

	if (vmm == NULL || size == 0 || size % GRANULARITY != 0 || address % GRANULARITY != 0 || offset != 0 ||
	    flags != 0 || size > vmm->backing.size || !range_reserved(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (range_mapped(address, size))
		return CUDA_ERROR_ALREADY_MAPPED;
	memory = memory_map(&vmm->backing, address, offset, size);
	if (memory == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->kind = MEMORY_MAPPED;
	memory->device = vmm->device;
	memory->readable = memory->writable = false;
	memory->vmm = vmm;
	vmm->n_maps++;
	return CUDA_SUCCESS;
}

static struct memory *
mapping_find(cuda_address address, size_t size)
{
	struct memory *memory = memory_find(address);

	if (memory == NULL || memory->kind != MEMORY_MAPPED || memory->address != address || memory->size != size)
		return NULL;
	return memory;
}

static int
vmm_unmap(cuda_address address, size_t size)
{
	struct memory *memory = mapping_find(address, size);
	struct vmm *vmm;

	if (memory == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	vmm = memory->vmm;
	memory_unmap(memory);
	vmm->n_maps--;
	vmm_drop(vmm);
	return CUDA_SUCCESS;
}

static int
vmm_access(cuda_address address, size_t size, const struct cuda_access *access, size_t n)
{
	struct memory *memory = mapping_find(address, size);

	if (memory == NULL || n != 1 || access->location.type != CUDA_LOCATION_DEVICE ||
	    (access->flags != CUDA_ACCESS_READ && access->flags != CUDA_ACCESS_READ_WRITE && access->flags != 0))
		return CUDA_ERROR_INVALID_VALUE;
	if (access->location.id != memory->device)
		return CUDA_ERROR_INVALID_DEVICE;
	memory->readable = access->flags != 0;
	memory->writable = access->flags == CUDA_ACCESS_READ_WRITE;
	return CUDA_SUCCESS;
}

ENTRY(cuMemAddressReserve,
      (cuda_address * address, size_t size, size_t alignment, __attribute__((unused)) cuda_address hint,
       unsigned long long flags),
      ENTRY_DRIVER, vmm_reserve(address, size, alignment, flags))
ENTRY(cuMemAddressFree, (cuda_address address, size_t size), ENTRY_DRIVER, vmm_unreserve(address, size))
ENTRY(cuMemMap,
      (cuda_address address, size_t size, size_t offset, cuda_allocation allocation, unsigned long long flags),
      ENTRY_DRIVER, vmm_map(address, size, offset, allocation, flags))
ENTRY(cuMemUnmap, (cuda_address address, size_t size), ENTRY_DRIVER, vmm_unmap(address, size))
ENTRY(cuMemSetAccess, (cuda_address address, size_t size, const struct cuda_access *access, size_t n), ENTRY_DRIVER,
      vmm_access(address, size, access, n))
