/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upper bounds on the plan that plan.cu makes for any batch.  A row is split into
 * at most target_work_items items, or one for each (tile, KV head) if these are more.
 */
#include "kernels/cuda/host/plan.h"

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

static uint64_t
plan_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * The most KV chunks of any row of up to max_kv_len tokens whose chunks have a factor.  Those of at least `tokens`
 * tokens are for rows of up to tokens^2 / factor tokens, so there are up to tokens / factor; the longest ones are for
 * rows of up to max_kv_len tokens.
 */
static uint64_t
plan_most_kv_chunks(uint32_t max_kv_len, uint32_t factor)
{
	uint64_t tokens = CUDA_KV_CHUNK_UNIT, most = 0;

	while (tokens * tokens < (uint64_t)max_kv_len * factor) {
		most = ceil_div_u64(tokens, factor);
		tokens *= 2;
	}
	return plan_max(most, ceil_div_u64(max_kv_len, tokens));
}

/*
 * A row with several KV chunks has a state for each (query, query head, KV chunk).  It has at most
 * target / (tiles * KV heads) chunks, and so at most target * tile_q_rows states.  One query of it has at most, in a
 * call with any number of heads up to n_q_heads:
 *
 * - If the row is wide (more than CUDA_TILE_Q_ROWS q_rows for each KV head), n_q_heads times the chunks: target / KV
 *   heads, or those that max_kv_len allows, which are fewer with a wide_kv_chunk_factor.
 * - If it is narrow, the same with other lengths of chunks, but at most CUDA_TILE_Q_ROWS heads for each KV head.
 */
static uint64_t
plan_measure_states(const struct cuda_plan_bounds *bounds, uint64_t target, uint64_t kv_chunks)
{
	uint64_t rows = plan_min(bounds->n_rows, bounds->max_total_q);
	uint64_t group = ceil_div_u64(bounds->n_q_heads, bounds->n_kv_heads);
	uint64_t narrow_group = plan_min(group, CUDA_TILE_Q_ROWS);
	uint64_t narrow_heads = plan_min(bounds->n_q_heads, (uint64_t)bounds->n_kv_heads * CUDA_TILE_Q_ROWS);
	uint64_t wide_kv_chunks = kv_chunks, narrow_kv_chunks = kv_chunks, narrow, wide;
	uint64_t tile_q_rows = plan_max(bounds->prefill_tile_q_rows, bounds->max_tile_q_rows);

	if (kv_chunks == 1)
		return 0;
	if (bounds->wide_kv_chunk_factor != 0) {
		wide_kv_chunks = plan_most_kv_chunks(bounds->max_kv_len, bounds->wide_kv_chunk_factor);
		narrow_kv_chunks = plan_most_kv_chunks(bounds->max_kv_len, CUDA_NARROW_KV_CHUNK_FACTOR);
	}
	narrow = plan_min(narrow_group * target, narrow_heads * narrow_kv_chunks);
	wide = plan_min(group * target, bounds->n_q_heads * wide_kv_chunks);
	return plan_min(bounds->max_total_q * plan_max(narrow, wide), rows * target * tile_q_rows);
}

enum paged_status
cuda_plan_measure(const struct cuda_plan_bounds *bounds, struct cuda_plan_size *size, struct paged_error *error)
{
	uint64_t target = bounds->target_work_items == 0 ? CUDA_TARGET_WORK_ITEMS : bounds->target_work_items;
	uint64_t rows = plan_min(bounds->n_rows, bounds->max_total_q);
	uint64_t q_rows = (uint64_t)bounds->max_total_q * bounds->n_q_heads;
	uint64_t tiles = q_rows / bounds->max_tile_q_rows + rows * bounds->n_kv_heads;
	uint64_t kv_chunks = bounds->max_kv_len == 0 ? 1 : ceil_div_u64(bounds->max_kv_len, CUDA_KV_CHUNK_UNIT);
	uint64_t work_items, states;

	if (target > CUDA_MAX_KV_CHUNKS)
		return paged_fail(error, PAGED_ERR_LIMIT, "%u work items per row wanted: attention combines up to %u",
				  bounds->target_work_items, CUDA_MAX_KV_CHUNKS);
	if (q_rows > INT32_MAX || tiles > INT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "a batch of %u query rows of %u heads: past what a plan counts", bounds->max_total_q,
				  bounds->n_q_heads);
	work_items = plan_min(tiles * kv_chunks, tiles + rows * target);
	states = plan_measure_states(bounds, target, kv_chunks);
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
