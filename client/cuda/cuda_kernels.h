/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cuda_kernels.h - load the CUDA kernels for a pool
 *
 * Modules belong to the device's context.  A pool's batches share one
 * reference-counted struct cuda_kernels: the first batch creates it, and the
 * last one frees it.
 *
 * Threads: cuda_kernels_acquire() and cuda_kernels_release() are called with the
 * client's mutex held and the context current; the rest by any thread.
 */
#ifndef PAGED_CLIENT_CUDA_KERNELS_H
#define PAGED_CLIENT_CUDA_KERNELS_H

#include "client/api/objects.h"
#include "kernels/cuda/host/choose_kernel.h"
#include "kernels/cuda/host/gpu.h"

struct cuda_kernel {
	const char *name;
	cuda_function function;
	uint32_t n_threads;
	uint32_t shared_size;
	uint32_t n_blocks; /* as many as run on the device at the same time */
	bool clusters;     /* of struct cuda_choice */
	bool overlaps;     /* programmatic dependent launch: it may start before the kernel before it has ended */
};

/** Modules of a pool: five of other kernels (cuda_kernels_load_all()), and attention's for each dtype of queries. */
#define CUDA_MOST_MODULES (5 + 3 * CUDA_N_PARTS)

/** The attention kernels for queries of one dtype. */
struct cuda_attention {
	struct cuda_choice choices[CUDA_N_PARTS];
	struct cuda_kernel kernels[CUDA_N_PARTS]; /* without mods */
};

struct cuda_kernels {
	unsigned int n_users;
	const struct cuda_gpu *gpu;
	bool wgmma;    /* PAGED_WGMMA=1 */
	bool clusters; /* PAGED_CLUSTERS=1 */
	bool bulk;     /* PAGED_BULK=1 */
	cuda_module modules[CUDA_MOST_MODULES];
	unsigned int n_modules;
	const char *sources[CUDA_MOST_MODULES]; /* names of the modules' sources */
	struct cuda_kernel plan, scatter, append, gather, merge, combine;
	struct cuda_attention attention[PAGED_BF16 + 1]; /* by enum paged_dtype */
};

/** cuda_kernel_of - a kernel that is not loaded yet */
static inline struct cuda_kernel
cuda_kernel_of(const struct cuda_choice *choice)
{
	return (struct cuda_kernel){ .name = choice->kernel,
				     .n_threads = choice->n_threads,
				     .shared_size = choice->shared_size,
				     .clusters = choice->clusters };
}

/** cuda_kernels_queries - the default dtype of queries: the pool's dtype, or bf16 if the pool's elements are bytes */
static inline enum paged_dtype
cuda_kernels_queries(const struct layout_params *pool)
{
	return paged_dtype_is_tensor(pool->dtype) ? pool->dtype : PAGED_BF16;
}

/**
 * cuda_kernels_acquire - take a reference to the pool's kernels; the first one loads them
 *
 * @retval PAGED_ERR_UNSUPPORTED  no kernels for the pool's dims or for this device, or none in this build
 */
enum paged_status cuda_kernels_acquire(struct paged_pool *pool, struct cuda_kernels **kernels_p,
				       struct paged_error *error);

/** cuda_kernels_release - drop a reference; no launched kernel may still run.  In a forked child, free memory only */
void cuda_kernels_release(struct paged_pool *pool, bool in_child);

/**
 * cuda_kernels_load - load an image as a module and find kernel->name in it; the context is current
 *
 * @param[out] refused_p  true if the driver cannot load the image, or the image has no such kernel
 */
enum paged_status cuda_kernels_load(const struct paged_pool *pool, const void *image, struct cuda_kernel *kernel,
				    cuda_module *module_p, bool *refused_p, struct paged_error *error);

/**
 * cuda_kernels_launch - launch at most n_blocks blocks, or as many as fill the device if these are fewer
 *
 * @param[in] params  the kernel's parameter struct
 */
enum paged_status cuda_kernels_launch(const struct paged_pool *pool, const struct cuda_kernel *kernel,
				      uint64_t n_blocks, const void *params, cuda_stream stream,
				      struct paged_error *error);

#endif
