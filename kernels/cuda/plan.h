/* SPDX-License-Identifier: Apache-2.0 */
/**
 * plan.h - what a plan of a batch in GPU memory needs at most
 */
#ifndef PAGED_KERNELS_CUDA_PLAN_H
#define PAGED_KERNELS_CUDA_PLAN_H

#include "common/status.h"
#include "kernels/cuda/kernels.h"

/** No batch of the plan has more than this of anything. */
struct cuda_plan_bounds {
	uint32_t n_rows;
	uint32_t max_total_q;
	uint32_t max_kv_len;
	uint32_t n_q_heads;
	uint32_t n_kv_heads;
	uint32_t v_dim;
	uint32_t max_tile_lines; /* CUDA_TILE_LINES or CUDA_MAX_TILE_LINES, as the attention kernel has it */
	uint32_t target_items;   /* part of what decides a result's bits; 0: CUDA_TARGET_ITEMS */
};

#define CUDA_TARGET_ITEMS 256u

/** Counts for struct cuda_plan_params, and bytes of its arrays and of attention's. */
struct cuda_plan_size {
	uint32_t target_items;
	uint32_t max_items;
	uint32_t max_groups;
	uint32_t max_lines;
	uint64_t rows_bytes;
	uint64_t first_item_bytes;
	uint64_t counters_bytes;
	uint64_t partial_states_bytes;
	uint64_t partial_values_bytes;
};

/**
 * cuda_plan_measure - the memory that serves every batch within bounds
 *
 * @retval PAGED_ERR_LIMIT  more work items or partial results than 31 bits count
 */
enum paged_status cuda_plan_measure(const struct cuda_plan_bounds *bounds, struct cuda_plan_size *size,
				    struct paged_error *error);

#endif
