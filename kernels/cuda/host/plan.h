/* SPDX-License-Identifier: Apache-2.0 */
/**
 * plan.h - upper bounds on the memory of a batch's plan on the device
 */
#ifndef PAGED_KERNELS_CUDA_HOST_PLAN_H
#define PAGED_KERNELS_CUDA_HOST_PLAN_H

#include "common/status.h"
#include "kernels/cuda/kernels.h"

/** The limits of every batch that the plan's memory must serve. */
struct cuda_plan_bounds {
	uint32_t n_rows;
	uint32_t max_total_q;
	uint32_t max_kv_len;
	uint32_t n_q_heads;
	uint32_t n_kv_heads;
	uint32_t v_dim;
	uint32_t max_tile_q_rows;      /* the attention kernel's: CUDA_TILE_Q_ROWS or CUDA_MAX_TILE_Q_ROWS */
	uint32_t prefill_tile_q_rows;  /* of its prefill kernel; 0: it has none */
	uint32_t wide_kv_chunk_factor; /* of struct cuda_plan_params */
	uint32_t target_work_items;    /* affects a result's bits; at most CUDA_MAX_KV_CHUNKS; 0: the default */
};

/** Default split-KV target: the planner cuts rows into about this many work items (plan_row_split() in plan.cu). */
#define CUDA_TARGET_WORK_ITEMS 256u

/** Counts for struct cuda_plan_params, and sizes of the arrays of the plan and of attention. */
struct cuda_plan_size {
	uint32_t target_work_items;
	uint32_t max_work_items;
	uint32_t max_counters;
	uint32_t max_states;
	uint64_t rows_bytes;
	uint64_t first_work_item_bytes;
	uint64_t counters_bytes;
	uint64_t workspace_states_bytes;
	uint64_t workspace_values_bytes;
};

/**
 * cuda_plan_measure - compute the memory that suffices for every batch within bounds
 *
 * @retval PAGED_ERR_LIMIT  the number of work items or softmax states exceeds 31 bits, or target_work_items its limit
 */
enum paged_status cuda_plan_measure(const struct cuda_plan_bounds *bounds, struct cuda_plan_size *size,
				    struct paged_error *error);

#endif
