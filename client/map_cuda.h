/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map_cuda.h - pools whose pages are in a GPU's memory
 */
#ifndef PAGED_CLIENT_MAP_CUDA_H
#define PAGED_CLIENT_MAP_CUDA_H

#include "client/owner.h"
#include "kernels/cuda/gpu.h"

/** map_cuda_gpu - as long as the pool is open */
const struct cuda_gpu *map_cuda_gpu(const struct owner_pool *pool);

/**
 * map_cuda_make - memory that only this process has, for an embedded owner
 *
 * @param[in] device  as cuda_gpu_open()
 */
enum paged_status map_cuda_make(const char *device, uint64_t size, struct map_cuda **map_p, struct paged_error *error);

/** map_cuda_free - what map_cuda_make() made; takes NULL */
void map_cuda_free(struct map_cuda *map, bool in_child);

/** map_cuda_base - the device address, as a pool's base */
uint8_t *map_cuda_base(const struct map_cuda *map);

/** map_cuda_device - "GPU-8a1b..." */
const char *map_cuda_device(const struct map_cuda *map);

#endif
