/* SPDX-License-Identifier: Apache-2.0 */
/**
 * share_memory.h - share one process's device memory with others
 *
 * Memory is exported to another process in one of two ways:
 *
 *   vmm     cuMemCreate() and a file descriptor.  The memory lives as long as a
 *           descriptor, an import or the process that made it.
 *   legacy  cuMemAlloc() and an IPC handle of 64 bytes.  Importers must close
 *           the memory before its maker frees it; its contents after the
 *           maker's death are undefined.  The handle is a bearer secret: never
 *           print it.
 *
 * The maker writes random bytes, the canary, to the last CUDA_CANARY_SIZE bytes
 * of the memory.  An importer reads them to verify that it has opened the right
 * memory.  Sizes are multiples of CUDA_GRANULE: CUDA packs smaller allocations
 * into one granule, and a handle would open all of them.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_SHARE_MEMORY_H
#define PAGED_KERNELS_CUDA_HOST_SHARE_MEMORY_H

#include "kernels/cuda/host/gpu.h"

#define CUDA_GRANULE ((uint64_t)2 << 20)
#define CUDA_CANARY_SIZE 32

enum cuda_export { CUDA_EXPORT_VMM = 1, CUDA_EXPORT_LEGACY = 2 };

/** "vmm", "legacy" */
const char *cuda_export_name(enum cuda_export kind);

/** Everything that an importer needs, except the descriptor of vmm. */
struct cuda_share {
	enum cuda_export kind;
	struct cuda_uuid device;
	uint64_t size;                 /* bytes, including the canary */
	uint64_t offset;               /* legacy: offset of the memory in the allocation that the handle opens */
	struct cuda_ipc_handle handle; /* legacy */
	uint8_t canary[CUDA_CANARY_SIZE];
};

/** Memory in the process that made it; all zero: none. */
struct cuda_memory {
	enum cuda_export kind;
	cuda_address address;
	cuda_allocation allocation; /* vmm */
	uint64_t size;
};

/** Memory in a process that opened it; all zero: none. */
struct cuda_import {
	enum cuda_export kind;
	cuda_address address;
	cuda_address opened;        /* legacy: address of the allocation that the handle opens */
	cuda_allocation allocation; /* vmm */
	uint64_t size;
};

/**
 * cuda_share_alloc - allocate device memory that can be exported
 *
 * @param[in]     size   bytes without the canary
 * @param[in,out] share  the caller has set the canary; the call sets the other fields
 * @param[out]    fd_p   vmm: the caller closes it; legacy: -1
 * @retval PAGED_ERR_NOMEM        the device has too little free memory
 * @retval PAGED_ERR_UNSUPPORTED  this device does not support this kind of export
 */
enum paged_status cuda_share_alloc(const struct cuda_gpu *gpu, enum cuda_export kind, uint64_t size,
				   struct cuda_memory *memory, struct cuda_share *share, int *fd_p,
				   struct paged_error *error);

/** cuda_share_free - also valid for a struct of zeros */
void cuda_share_free(const struct cuda_gpu *gpu, struct cuda_memory *memory);

/**
 * cuda_import_open - open memory that another process made
 *
 * A process cannot open its own legacy handle.  A second import of legacy
 * memory gets the same address and is reference-counted by CUDA; a second
 * import of vmm memory gets another address.
 *
 * @param[in] gpu  the device share->device
 * @param[in] fd   vmm; remains the caller's
 * @retval PAGED_ERR_BACKEND  the error text has the call that failed and, if known, the obstacle on this machine
 */
enum paged_status cuda_import_open(const struct cuda_gpu *gpu, const struct cuda_share *share, int fd,
				   struct cuda_import *import, struct paged_error *error);

/** cuda_import_close - no launched work may still use the memory; also valid for a struct of zeros */
void cuda_import_close(const struct cuda_gpu *gpu, struct cuda_import *import);

#endif
