/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_prefill.h - the loops of attention_prefill over work items and their tiles, and the results of an item
 *
 * Keys and values have one buffer each: the values of a tile are copied while
 * its scores are computed, and the keys of the next tile while the values are
 * added.
 *
 * Items are taken from the last one on, back and forth: causal attention has
 * its longest items last, and so each block has about the same work.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_PREFILL_H
#define PAGED_KERNELS_CUDA_ATTENTION_PREFILL_H

#include "kernels/cuda/attention_prefill_math.h"

/* The loop over tiles */

/* The products of a tile are in `weight`: convert them to weights, and add the tile's values. */
template <class S>
SIMT_FUNCTION void
prefill_tile_finish(const cuda_attention_params &p, prefill_shared<S> &shared, prefill_state<S> &state, uint32_t begin,
		    float weight[PREFILL_M_TILES][S::BLOCKS][4])
{
	bool full = prefill_tile_is_full(shared, begin);
	uint32_t rounded[PREFILL_M_TILES][S::TOKENS / 16][4];

	if (!full)
		prefill_non_finite_find(shared);
	ATTENTION_UNROLL
	for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
		uint32_t visible = UINT32_MAX;
		float rescale[2];

		if (!full)
			visible = mma_elements_visible<S>(p, shared.item, shared.mask_bitmap,
							  prefill_q_rows_make<S>(p, shared.item, m).at,
							  begin + simt_lane() % 4 * 2);
		prefill_scores<S>(p, shared.item, m, begin, visible, weight[m]);
		prefill_weights<S>(state.row_max[m], state.row_sum[m], weight[m], rescale);
		prefill_rescale<S>(state.values[m], rescale);
		if (!full && prefill_any_non_finite(shared))
			prefill_non_finite_add(shared, weight[m], state.values[m]);
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n++) {
			rounded[m][n / 2][n % 2 * 2] = round_to_halves<S::F16>(weight[m][n][0], weight[m][n][1]);
			rounded[m][n / 2][n % 2 * 2 + 1] = round_to_halves<S::F16>(weight[m][n][2], weight[m][n][3]);
		}
	}
	if (!full && prefill_any_non_finite(shared))
		prefill_non_finite_zero(shared);
	prefill_add_pv(shared, state, rounded);
}

/* The end of the tokens from `begin` on that are in one bitmap, if there is a block mask. */
SIMT_FUNCTION uint32_t
prefill_bitmap_end(const cuda_attention_params &p, const attention_work_item &item, uint32_t begin)
{
	uint32_t end = (begin / CUDA_MASK_BITMAP_TOKENS + 1) * CUDA_MASK_BITMAP_TOKENS;

	return p.blocks.first_list != 0 && end < item.end ? end : item.end;
}

/* Attend to tokens from `begin` on, to the end of the bitmap. */
template <class S>
SIMT_FUNCTION void
prefill_tiles_attend(const cuda_attention_params &p, prefill_shared<S> &shared, prefill_state<S> &state,
		     uint32_t begin)
{
	uint32_t end = prefill_bitmap_end(p, shared.item, begin), entry;

	begin = prefill_next_tile(p, shared, begin, end);
	if (begin >= end)
		return;
	entry = prefill_entry_load(p, shared, begin);
	prefill_copy_keys(p, shared, begin, entry);
	ATTENTION_ROLL
	for (uint32_t next;; begin = next) {
		float weight[PREFILL_M_TILES][S::BLOCKS][4] = {};
		bool last;

		end = prefill_bitmap_end(p, shared.item, begin);
		next = prefill_next_tile(p, shared, begin + S::TOKENS, end);
		last = next >= end;
		simt_copy_async_wait<0>();
		simt_sync(); /* the queries and keys are there; all warps have read the values of the tile before */
		prefill_copy_values(p, shared);
		if (!last)
			entry = prefill_entry_load(p, shared, next);
		prefill_add_qk(shared, weight);
		simt_copy_async_wait<0>();
		simt_sync(); /* the values are there; all warps have read the keys */
		if (!last)
			prefill_copy_keys(p, shared, next, entry);
		prefill_tile_finish(p, shared, state, begin, weight);
		if (last)
			break;
	}
}

/* Results */

/* Store a pair of adjacent elements. */
SIMT_FUNCTION void
prefill_pair_store(uint64_t to, uint32_t dtype, uint32_t pair, const simt_vec2 &values)
{
	float a = bits_as_float(values.x), b = bits_as_float(values.y);

	if (dtype == CUDA_F32 && to % 8 == 0) {
		pointer_to<simt_vec2>(to)[pair] = values;
	} else if (dtype != CUDA_F32 && to % 4 == 0) {
		pointer_to<uint32_t>(to)[pair] = dtype == CUDA_F16 ? simt_pack_f16(a, b) : simt_pack_bf16(a, b);
	} else {
		element_store(to, dtype, pair * 2, a);
		element_store(to, dtype, pair * 2 + 1, b);
	}
}

/* Store the softmax states of an M tile's q_rows; put their results, and where these go, into shared memory. */
template <class S>
SIMT_FUNCTION void
prefill_results_share(const cuda_attention_params &p, prefill_shared<S> &shared, uint32_t m, const float row_max[2],
		      const float row_sum[2], const float values[S::DIM / 8][4])
{
	const attention_work_item &item = shared.item;
	uint32_t lane = simt_lane(), w = simt_warp();

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t at = lane / 4 + i * 8, q_row = prefill_first_q_row<S>(m) + at;
		float sum = row_sum[i], factor = 1;

		sum += simt_shuffle_xor(sum, 1);
		sum += simt_shuffle_xor(sum, 2);
		if (q_row < item.n_q_rows) {
			factor = softmax_state_store(p, item, q_row, row_max[i], sum, lane % 4 == 0);
			if (lane % 4 == 0)
				shared.to[w][at] = q_row_values_address(p, item, q_row);
		}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n++)
			shared.values[w][at][n * 4 + lane % 4] = { float_as_bits(values[n][i * 2] * factor),
								   float_as_bits(values[n][i * 2 + 1] * factor) };
	}
}

template <class S>
SIMT_FUNCTION void
prefill_results_store(const cuda_attention_params &p, prefill_shared<S> &shared, const prefill_state<S> &state)
{
	const attention_work_item &item = shared.item;
	uint32_t w = simt_warp(), dtype = item.n_kv_chunks == 1 ? p.out.dtype : (uint32_t)CUDA_F32;

	simt_sync(); /* all warps have read the tiles; `values` reuses their memory */
	ATTENTION_UNROLL
	for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
		uint32_t first = prefill_first_q_row<S>(m);

		simt_warp_sync(); /* the results of the M tile before were read */
		prefill_results_share(p, shared, m, state.row_max[m], state.row_sum[m], state.values[m]);
		simt_warp_sync();
		ATTENTION_ROLL
		for (uint32_t at = 0; at < 16 && first + at < item.n_q_rows; at++)
			ATTENTION_ROLL
			for (uint32_t pair = simt_lane(); pair < p.pages.plane[CUDA_V].dim / 2; pair += 32)
				prefill_pair_store(shared.to[w][at], dtype, pair, shared.values[w][at][pair]);
	}
}

/* Work items */

template <class S>
SIMT_FUNCTION void
prefill_item_attend(const cuda_attention_params &p, prefill_shared<S> &shared)
{
	const attention_work_item &item = shared.item;
	prefill_state<S> state;

	q_rows_copy<S>(p, item, shared.queries, S::Q_ROWS);
	prefill_state_init(state);
	ATTENTION_ROLL
	for (uint32_t begin = item.begin; begin < item.end; begin = prefill_bitmap_end(p, item, begin)) {
		if (p.blocks.first_list != 0)
			mask_bitmap_build(p, item, begin / CUDA_MASK_BITMAP_TOKENS * CUDA_MASK_BITMAP_TOKENS,
					  shared.mask_bitmap);
		prefill_tiles_attend(p, shared, state, begin);
	}
	simt_copy_async_wait<0>();
	prefill_results_store(p, shared, state);
}

/*
 * Take the block's next item; false if there is none.  Rounds count from the last item on, odd ones backwards.
 * Thread 0 calls; what it needs is in shared memory because the registers are full.
 */
template <class S>
SIMT_FUNCTION bool
prefill_item_take(const cuda_attention_params &p, prefill_shared<S> &shared)
{
	attention_work_item &item = shared.item;
	uint32_t blocks = simt_n_blocks(), first_end;

	ATTENTION_ROLL
	for (;;) {
		uint32_t block = shared.round % 2 == 0 ? simt_block() : blocks - 1 - simt_block();
		uint32_t from_last = shared.round++ * blocks + block;

		if (from_last >= shared.n_items)
			return false;
		if (work_item_find(p, shared.n_items - 1 - from_last, &item))
			break;
	}
	first_end = query_kv_end(p, item, work_item_query(p, item, 0));
	first_end = first_end < item.end ? first_end : item.end;
	shared.full_end = attention_mod::has_mask || p.blocks.first_list != 0 ? 0 : first_end;
	return true;
}

template <class S>
SIMT_FUNCTION void
prefill_attend(const cuda_attention_params &p)
{
	prefill_shared<S> &shared = SIMT_SHARED(prefill_shared<S>);

	if (simt_thread() == 0) {
		shared.round = 0;
		shared.n_items = plan_head(p.plan)->n_prefill_items;
	}
	ATTENTION_ROLL
	for (;;) {
		simt_sync();
		if (simt_thread() == 0)
			shared.valid = prefill_item_take(p, shared);
		simt_sync();
		if (!shared.valid)
			break;
		prefill_item_attend(p, shared);
		if (shared.item.n_kv_chunks > 1 && work_item_is_last(p, shared.item, &shared.last))
			work_item_combine<1>(p, shared.item, shared.combine);
	}
}

#endif
