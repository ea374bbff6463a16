/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_combine.h - a block's loop over its work items, and the results of items
 *
 * Blocks process items by number, with a grid stride.  If a tile has one KV
 * chunk, the item's block writes the result.  Else (split-KV) each block stores
 * its softmax states and sums of values in the workspace, and the tile's block
 * that ends last combines them in the order of the KV chunks.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_COMBINE_H
#define PAGED_KERNELS_CUDA_ATTENTION_COMBINE_H

#include "kernels/cuda/attention.h"

/*
 * Write a q_row's LSE and maximum to the caller's arrays; returns the factor for the q_row's values.  Only the thread
 * with `write` set writes.
 */
SIMT_FUNCTION float
q_row_finish(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row, float row_max,
	     float row_sum, bool write)
{
	uint32_t head = work_item_head(p, item, q_row);
	uint64_t at = (uint64_t)(item.q_start + work_item_query(p, item, q_row)) * p.n_q_heads + head;
	float sink = p.sink == 0 ? -infinity() : pointer_to<const float>(p.sink)[head];
	softmax_end end = softmax_finish(row_max, row_sum, sink, p.lse_without_sink != 0);

	if (write && p.lse != 0)
		pointer_to<float>(p.lse)[at] = end.lse;
	if (write && p.max_score != 0)
		pointer_to<float>(p.max_score)[at] = end.row_max;
	return end.factor;
}

SIMT_FUNCTION uint64_t
q_row_out(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	return tensor_address(p.out, item.q_start + work_item_query(p, item, q_row), work_item_head(p, item, q_row));
}

/* Index in the workspace of a q_row's state of a KV chunk. */
SIMT_FUNCTION uint64_t
q_row_state(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row, uint32_t kv_chunk)
{
	return item.first_state + (uint64_t)kv_chunk * item.q_len * p.n_q_heads +
	       (uint64_t)work_item_query(p, item, q_row) * p.n_q_heads + work_item_head(p, item, q_row);
}

/* Address of a q_row's values: of the result if there is one KV chunk, else of the KV chunk's sums in the workspace. */
SIMT_FUNCTION uint64_t
q_row_values_address(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	if (item.n_kv_chunks == 1)
		return q_row_out(p, item, q_row);
	return p.workspace_values +
	       q_row_state(p, item, q_row, item.kv_chunk) * p.pages.plane[CUDA_V].dim * sizeof(float);
}

/*
 * Store a q_row's softmax state: as the result if there is one KV chunk, else in the workspace.  Returns the factor for
 * the q_row's values.  Only the thread with `write` set writes.
 */
SIMT_FUNCTION float
softmax_state_store(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row, float row_max,
		    float row_sum, bool write)
{
	if (item.n_kv_chunks == 1)
		return q_row_finish(p, item, q_row, row_max, row_sum, write);
	if (write)
		pointer_to<simt_vec2>(p.workspace_states)[q_row_state(p, item, q_row, item.kv_chunk)] = {
			float_as_bits(row_max), float_as_bits(row_sum)
		};
	return 1;
}

/* Called after the block stored its states: is it the last block of its tile?  `last` is shared memory. */
SIMT_FUNCTION bool
work_item_is_last(const cuda_attention_params &p, const attention_work_item &item, uint32_t *last)
{
	simt_sync();
	if (simt_thread() == 0) {
		uint32_t *counter = pointer_to<uint32_t>(p.counters) + item.counter;

		simt_fence();
		*last = simt_atomic_add(counter, 1) == item.n_kv_chunks - 1;
		simt_fence();
		if (*last)
			*counter = 0; /* for the next launch with this plan */
	}
	simt_sync();
	return *last != 0;
}

/* Combine the states of a q_row's KV chunks in their order.  The whole warp calls. */
SIMT_FUNCTION void
q_row_combine(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	const simt_vec2 *states = pointer_to<const simt_vec2>(p.workspace_states);
	const float *values = pointer_to<const float>(p.workspace_values);
	uint32_t v_dim = p.pages.plane[CUDA_V].dim;
	float row_max = -infinity(), row_sum = 0, factor;

	for (uint32_t s = 0; s < item.n_kv_chunks; s++)
		row_max =
			softmax_max(row_max, bits_as_float(simt_load_fresh(&states[q_row_state(p, item, q_row, s)]).x));
	for (uint32_t s = 0; s < item.n_kv_chunks; s++) {
		simt_vec2 state = simt_load_fresh(&states[q_row_state(p, item, q_row, s)]);

		if (bits_as_float(state.y) != 0)
			row_sum = simt_fma(bits_as_float(state.y), softmax_weight(bits_as_float(state.x), row_max),
					   row_sum);
	}
	factor = q_row_finish(p, item, q_row, row_max, row_sum, simt_lane() == 0);
	for (uint32_t d = simt_lane(); d < v_dim; d += 32) {
		float value = 0;

		for (uint32_t s = 0; s < item.n_kv_chunks; s++) {
			uint64_t at = q_row_state(p, item, q_row, s);
			simt_vec2 state = simt_load_fresh(&states[at]);

			if (bits_as_float(state.y) != 0)
				value = simt_fma(simt_load_fresh(&values[at * v_dim + d]),
						 softmax_weight(bits_as_float(state.x), row_max), value);
		}
		element_store(q_row_out(p, item, q_row), p.out.dtype, d, value * factor);
	}
}

SIMT_FUNCTION void
work_item_combine(const cuda_attention_params &p, const attention_work_item &item)
{
	for (uint32_t q_row = simt_warp(); q_row < item.n_q_rows; q_row += simt_n_threads() / 32)
		q_row_combine(p, item, q_row);
}

/* The block's loop over its work items; `compute()` computes block.item. */
template <class F>
SIMT_FUNCTION void
work_items_for_each(const cuda_attention_params &p, attention_block &block, F compute)
{
	uint32_t n_work_items = plan_head(p.plan)->n_work_items;

	ATTENTION_ROLL
	for (uint32_t number = simt_block(); number < n_work_items; number += simt_n_blocks()) {
		simt_sync();
		if (simt_thread() == 0)
			block.valid = work_item_find(p, number, &block.item);
		simt_sync();
		if (!block.valid)
			continue;
		compute();
		if (block.item.n_kv_chunks > 1 && work_item_is_last(p, block.item, &block.last))
			work_item_combine(p, block.item);
	}
}

#endif
