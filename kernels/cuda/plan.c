/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upper bounds on the plan that plan.cu makes for any batch.  A row is split into
 * at most target_work_items items, or one for each (tile, KV head) if these are more.
 */
#include "kernels/cuda/plan.h"

static uint64_t
plan_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t
ceil_div_u64(uint64_t n, uint64_t by)
{
	return n / by + (n % by != 0);
}

enum paged_status
cuda_plan_measure(const struct cuda_plan_bounds *bounds, struct cuda_plan_size *size, struct paged_error *error)
{
	uint64_t target = bounds->target_work_items == 0 ? CUDA_TARGET_WORK_ITEMS : bounds->target_work_items;
	uint64_t rows = plan_min(bounds->n_rows, bounds->max_total_q);
	uint64_t q_rows = (uint64_t)bounds->max_total_q * bounds->n_q_heads;
	uint64_t tiles = q_rows / bounds->max_tile_q_rows + rows * bounds->n_kv_heads;
	uint64_t kv_chunks = bounds->max_kv_len == 0 ? 1 : ceil_div_u64(bounds->max_kv_len, CUDA_KV_CHUNK_UNIT);
	uint64_t group = ceil_div_u64(bounds->n_q_heads, bounds->n_kv_heads), work_items, states;
	uint64_t tile_q_rows = bounds->prefill_tile_q_rows > bounds->max_tile_q_rows ? bounds->prefill_tile_q_rows
										     : bounds->max_tile_q_rows;

	if (target > CUDA_MAX_KV_CHUNKS)
		return paged_fail(error, PAGED_ERR_LIMIT, "%u work items per row wanted: attention combines up to %u",
				  bounds->target_work_items, CUDA_MAX_KV_CHUNKS);
	if (q_rows > INT32_MAX || tiles > INT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "a batch of %u query rows of %u heads: past what a plan counts", bounds->max_total_q,
				  bounds->n_q_heads);
	work_items = plan_min(tiles * kv_chunks, tiles + rows * target);
	/* A query's q_rows are split into at most target / n_kv_heads KV chunks. */
	states = plan_min(bounds->max_total_q * group * target, rows * target * tile_q_rows);
	states = kv_chunks == 1 ? 0 : plan_min(q_rows * kv_chunks, states);
	if (work_items > INT32_MAX || states > INT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "a batch of %u query rows over %u tokens: past what a plan counts",
				  bounds->max_total_q, bounds->max_kv_len);
	*size = (struct cuda_plan_size){
		.target_work_items = (uint32_t)target,
		.max_work_items = (uint32_t)work_items,
		.max_counters = (uint32_t)tiles,
		.max_states = (uint32_t)states,
		.rows_bytes = bounds->n_rows * sizeof(struct cuda_row),
		.first_work_item_bytes = 2 * (bounds->n_rows + UINT64_C(1)) * sizeof(uint32_t),
		.counters_bytes = tiles * sizeof(uint32_t),
		.workspace_states_bytes = states * 2 * sizeof(float),
		.workspace_values_bytes = states * bounds->v_dim * sizeof(float),
	};
	return PAGED_OK;
}
