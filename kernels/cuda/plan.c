/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upper bounds on the plan that plan.cu makes for any batch.  A row is cut into
 * at most target_items items, or one for each (tile, KV head) if these are more.
 */
#include "kernels/cuda/plan.h"

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t
divide_up(uint64_t n, uint64_t by)
{
	return n / by + (n % by != 0);
}

enum paged_status
cuda_plan_measure(const struct cuda_plan_bounds *bounds, struct cuda_plan_size *size, struct paged_error *error)
{
	uint64_t target = bounds->target_items == 0 ? CUDA_TARGET_ITEMS : bounds->target_items;
	uint64_t rows = least(bounds->n_rows, bounds->max_total_q);
	uint64_t lines = (uint64_t)bounds->max_total_q * bounds->n_q_heads;
	uint64_t groups = lines / bounds->max_tile_lines + rows * bounds->n_kv_heads;
	uint64_t splits = bounds->max_kv_len == 0 ? 1 : divide_up(bounds->max_kv_len, CUDA_SPLIT_UNIT);
	uint64_t group = divide_up(bounds->n_q_heads, bounds->n_kv_heads), items, partials;

	if (lines > INT32_MAX || groups > INT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "a batch of %u query rows of %u heads: past what a plan counts", bounds->max_total_q,
				  bounds->n_q_heads);
	items = least(groups * splits, groups + rows * target);
	/* A query row's lines are cut into at most target / n_kv_heads splits. */
	partials = least(bounds->max_total_q * group * target, rows * target * bounds->max_tile_lines);
	partials = splits == 1 ? 0 : least(lines * splits, partials);
	if (items > INT32_MAX || partials > INT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "a batch of %u query rows over %u tokens: past what a plan counts",
				  bounds->max_total_q, bounds->max_kv_len);
	*size = (struct cuda_plan_size){
		.target_items = (uint32_t)target,
		.max_items = (uint32_t)items,
		.max_groups = (uint32_t)groups,
		.max_lines = (uint32_t)partials,
		.rows_bytes = bounds->n_rows * sizeof(struct cuda_row),
		.first_item_bytes = (bounds->n_rows + UINT64_C(1)) * sizeof(uint32_t),
		.counters_bytes = groups * sizeof(uint32_t),
		.partial_states_bytes = partials * 2 * sizeof(float),
		.partial_values_bytes = partials * bounds->v_dim * sizeof(float),
	};
	return PAGED_OK;
}
