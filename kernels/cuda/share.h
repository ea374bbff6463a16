/* SPDX-License-Identifier: Apache-2.0 */
/**
 * share.h - device memory of one process, opened in others
 *
 * Two ways to name it to another process:
 *
 *   vmm     cuMemCreate() and a descriptor.  The memory lives as long as a
 *           descriptor, an import or the maker does.
 *   legacy  cuMemAlloc() and an IPC handle of 64 bytes.  Importers must close
 *           before the maker frees; what they see after its death is
 *           undefined.  The handle is a bearer token: never print it.
 *
 * The last CUDA_CANARY_SIZE bytes of the memory are random and its maker's:
 * who opened it reads them back, and knows that it is the memory meant.
 * Sizes are whole granules, because smaller allocations of CUDA share theirs
 * with others, which would be opened along with them.
 */
#ifndef PAGED_KERNELS_CUDA_SHARE_H
#define PAGED_KERNELS_CUDA_SHARE_H

#include "kernels/cuda/gpu.h"

#define CUDA_GRANULE ((uint64_t)2 << 20)
#define CUDA_CANARY_SIZE 32

enum cuda_export { CUDA_EXPORT_VMM = 1, CUDA_EXPORT_LEGACY = 2 };

/** "vmm", "legacy" */
const char *cuda_export_name(enum cuda_export kind);

/** What an importer must know, besides the descriptor of vmm. */
struct cuda_share {
	enum cuda_export kind;
	struct cuda_uuid device;
	uint64_t size;                 /* bytes, the canary included */
	uint64_t offset;               /* legacy: where it begins in what the handle opens */
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
	cuda_address opened;        /* legacy: what the handle names begins here */
	cuda_allocation allocation; /* vmm */
	uint64_t size;
};

/**
 * cuda_share_alloc - memory that others can be told of
 *
 * @param[in]  size   bytes without the canary
 * @param[in]  share  its canary is set
 * @param[out] share  the rest
 * @param[out] fd_p   vmm: to be closed by the caller; legacy: -1
 * @retval PAGED_ERR_NOMEM        the device has not that much
 * @retval PAGED_ERR_UNSUPPORTED  not this way, on this device
 */
enum paged_status cuda_share_alloc(const struct cuda_gpu *gpu, enum cuda_export kind, uint64_t size,
				   struct cuda_memory *memory, struct cuda_share *share, int *fd_p,
				   struct paged_error *error);

/** cuda_share_free - also of a struct of zeros */
void cuda_share_free(const struct cuda_gpu *gpu, struct cuda_memory *memory);

/**
 * cuda_import_open - memory that another process made
 *
 * A process cannot open its own legacy handle.  Opened twice, legacy memory
 * is at the same address and counts; vmm memory is at another.
 *
 * @param[in] gpu  of share->device
 * @param[in] fd   vmm; stays the caller's
 * @retval PAGED_ERR_BACKEND  says which call failed, and what here is known to prevent it
 */
enum paged_status cuda_import_open(const struct cuda_gpu *gpu, const struct cuda_share *share, int fd,
				   struct cuda_import *import, struct paged_error *error);

/** cuda_import_close - nothing that was launched uses it any more; also of a struct of zeros */
void cuda_import_close(const struct cuda_gpu *gpu, struct cuda_import *import);

#endif
