/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map_cuda.h - pools whose pages are in a GPU's memory
 */
#ifndef PAGED_CLIENT_MAP_CUDA_H
#define PAGED_CLIENT_MAP_CUDA_H

#include "client/owner/owner.h"
#include "kernels/cuda/host/gpu.h"

/** map_cuda_gpu - the pool's device; valid while the pool is open */
const struct cuda_gpu *map_cuda_gpu(const struct owner_pool *pool);

/** map_cuda_check - convert a driver call's result to a status; the error text begins with the pool and `what` */
enum paged_status map_cuda_check(const struct owner_pool *pool, int result, struct paged_error *error, const char *what,
				 ...) __attribute__((format(printf, 4, 5)));

static inline enum paged_status
map_cuda_leave(const struct cuda_gpu *gpu, enum paged_status status)
{
	cuda_gpu_leave(gpu);
	return status;
}

/** MAP_CUDA_RUN - evaluate `call` between cuda_gpu_enter() and cuda_gpu_leave(); the value is the status */
#define MAP_CUDA_RUN(gpu, error, call) \
	(cuda_gpu_enter(gpu, error) == PAGED_OK ? map_cuda_leave(gpu, call) : (error)->status)

/**
 * map_cuda_make - allocate unshared device memory for the pool of an embedded owner
 *
 * @param[in] device  as for cuda_gpu_open()
 */
enum paged_status map_cuda_make(const char *device, uint64_t size, struct map_cuda **map_p, struct paged_error *error);

/** map_cuda_free - free the memory of map_cuda_make(); takes NULL */
void map_cuda_free(struct map_cuda *map, bool in_child);

/** map_cuda_base - the memory's device address, in the form of owner_pool.base; the host must not dereference it */
uint8_t *map_cuda_base(const struct map_cuda *map);

#endif
