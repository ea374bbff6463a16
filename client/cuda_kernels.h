/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cuda_kernels.h - the kernels of a pool in a GPU's memory, loaded
 *
 * Modules belong to the device's context.  A pool's batches share one struct
 * cuda_kernels, which lives from the first batch to the last.
 *
 * Threads: cuda_kernels_take() and cuda_kernels_drop() under the client's mutex,
 * with the context current; the rest by any.
 */
#ifndef PAGED_CLIENT_CUDA_KERNELS_H
#define PAGED_CLIENT_CUDA_KERNELS_H

#include "client/internal.h"
#include "kernels/cuda/choose.h"
#include "kernels/cuda/gpu.h"

struct cuda_kernel {
	const char *name;
	cuda_function function;
	uint32_t n_threads;
	uint32_t shared_size;
	uint32_t n_blocks; /* that fill the device */
};

/** Attention for queries of one dtype. */
struct cuda_attention {
	struct cuda_kernel kernel;
	const char *source;  /* of its module */
	uint32_t tile_lines; /* the most, for the plan */
};

struct cuda_kernels {
	unsigned int n_users;
	const struct cuda_gpu *gpu;
	cuda_module modules[8];
	unsigned int n_modules;
	const char *sources[8]; /* of the modules */
	struct cuda_kernel plan, append, gather, merge;
	struct cuda_attention attention[PAGED_BF16 + 1]; /* by enum paged_dtype */
};

/** cuda_kernels_queries - the dtype that a pool's queries have if nothing is said: the pool's, if tensors have it */
static inline enum paged_dtype
cuda_kernels_queries(const struct layout_params *pool)
{
	return paged_dtype_is_tensor(pool->dtype) ? pool->dtype : PAGED_BF16;
}

/**
 * cuda_kernels_take - the pool's kernels, loaded if this is the first use
 *
 * @retval PAGED_ERR_UNSUPPORTED  no kernels for the pool's dims, for this device, or in this build
 */
enum paged_status cuda_kernels_take(struct paged_pool *pool, struct cuda_kernels **kernels_p,
				    struct paged_error *error);

/** cuda_kernels_drop - nothing that was launched runs any more; in a child memory alone is freed */
void cuda_kernels_drop(struct paged_pool *pool, bool in_child);

/**
 * cuda_kernels_load - a module of an image's, and the kernel of that name in it; the context is current
 *
 * @param[out] refused_p  it failed because this driver takes no such image, or it has no such kernel
 */
enum paged_status cuda_kernels_load(const struct paged_pool *pool, const void *image, struct cuda_kernel *kernel,
				    cuda_module *module_p, bool *refused_p, struct paged_error *error);

/** cuda_kernels_launch - n_blocks at most, fewer where fewer fill the device; params is the kernel's struct */
enum paged_status cuda_kernels_launch(const struct paged_pool *pool, const struct cuda_kernel *kernel,
				      uint64_t n_blocks, const void *params, cuda_stream stream,
				      struct paged_error *error);

#endif
