/* SPDX-License-Identifier: Apache-2.0 */
/** choose.h - the attention kernel for a pool and a batch's queries */
#ifndef PAGED_KERNELS_CUDA_CHOOSE_H
#define PAGED_KERNELS_CUDA_CHOOSE_H

#include "kernels/cuda/kernels.h"
#include "kernels/layout.h"

struct cuda_choice {
	const char *source; /* of the module: "attention_mma" */
	const char *kernel;
	uint32_t n_threads;
	uint32_t shared_size;    /* past 48 KiB a launcher must ask for it */
	uint32_t max_tile_lines; /* for the plan */
};

/**
 * cuda_choose - tensor cores where they take the pool, else f32
 *
 * They take f16 and bf16, with queries of the same, and dims of at most 256
 * that are multiples of 8; where V lies in K, K of at most 576 dims and V of at
 * most 512, multiples of 16; and e4m3, e5m2 and i8 with queries of f16 or bf16,
 * where dims are multiples of 16.  A choice depends on nothing that changes between
 * batches, so results keep their bits.
 *
 * @param[in] max_shared  bytes that a block may have on the device
 * @retval PAGED_ERR_UNSUPPORTED  the device has too little of it for any
 */
enum paged_status cuda_choose(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared,
			      struct cuda_choice *choice, struct paged_error *error);

#endif
