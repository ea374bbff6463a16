/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_prefill.h - the loops of attention_prefill over work items and their tiles
 *
 * Keys and values have one buffer each: the values of a tile are copied while
 * its scores are computed, and the keys of the next tile while the values are
 * added.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_PREFILL_ATTENTION_PREFILL_H
#define PAGED_KERNELS_CUDA_ATTENTION_PREFILL_ATTENTION_PREFILL_H

#include "kernels/cuda/attention/prefill/attention_prefill_math.h"

/* The loop over tiles */

/* The products of a tile are in `weight`: convert them to weights, and add the tile's values. */
template <class S>
SIMT_FUNCTION void
prefill_tile_finish(const cuda_attention_params &p, prefill_shared<S> &shared, prefill_state<S> &state, uint32_t begin,
		    float weight[PREFILL_M_TILES][S::BLOCKS][4])
{
	bool full = prefill_tile_is_full<S>(shared.items, shared.item, begin);
	uint32_t rounded[PREFILL_M_TILES][S::TOKENS / 16][4];

	if (!full)
		prefill_non_finite_find(shared);
	ATTENTION_UNROLL
	for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
		uint32_t first = prefill_first_q_row<S>(m), visible = UINT32_MAX;
		float rescale[2];

		if (!full)
			visible = mma_elements_visible<S>(p, shared.item, shared.mask_bitmap,
							  q_rows_make(p, shared.item, first).at,
							  begin + simt_lane() % 4 * 2);
		q_rows_scores<S>(p, shared.item, first, begin, visible, weight[m]);
		scores_to_weights<S>(state.row_max[m], state.row_sum[m], weight[m], rescale);
		q_rows_rescale<S>(state.values[m], rescale);
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

/* Attend to tokens from `begin` on, to the end of the bitmap. */
template <class S>
SIMT_FUNCTION void
prefill_tiles_attend(const cuda_attention_params &p, prefill_shared<S> &shared, prefill_state<S> &state,
		     uint32_t begin)
{
	uint32_t end = mask_bitmap_end(p, shared.item, begin), entry;

	begin = next_visible_tile<S::TOKENS>(p, shared, begin, end);
	if (begin >= end)
		return;
	entry = item_entry_load(p, shared, shared.item, prefill_lane_token<S>(begin), shared.item.end);
	prefill_copy_keys(p, shared, begin, entry);
	ATTENTION_ROLL
	for (uint32_t next;; begin = next) {
		float weight[PREFILL_M_TILES][S::BLOCKS][4] = {};
		bool last;

		end = mask_bitmap_end(p, shared.item, begin);
		next = next_visible_tile<S::TOKENS>(p, shared, begin + S::TOKENS, end);
		last = next >= end;
		simt_copy_async_wait<0>();
		simt_sync(); /* the queries and keys are there; all warps have read the values of the tile before */
		prefill_copy_values(p, shared);
		if (!last)
			entry = item_entry_load(p, shared, shared.item, prefill_lane_token<S>(next), shared.item.end);
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

template <class S>
SIMT_FUNCTION void
prefill_item_attend(const cuda_attention_params &p, prefill_shared<S> &shared)
{
	const attention_work_item &item = shared.item;
	prefill_state<S> state;

	q_rows_copy<S>(p, item, shared.queries, S::Q_ROWS);
	prefill_state_init(state);
	ATTENTION_ROLL
	for (uint32_t begin = item.begin; begin < item.end; begin = mask_bitmap_end(p, item, simt_opaque(begin))) {
		if (has_block_mask(p))
			mask_bitmap_build(p, item, begin / CUDA_MASK_BITMAP_TOKENS * CUDA_MASK_BITMAP_TOKENS,
					  shared.mask_bitmap);
		prefill_tiles_attend(p, shared, state, begin);
	}
	simt_copy_async_wait<0>();
	simt_sync(); /* all warps have read the tiles; results reuse their memory */
	ATTENTION_UNROLL
	for (uint32_t m = 0; m < PREFILL_M_TILES; m++)
		prefill_results_store<S::DIM>(p, item, shared.results, simt_warp(), prefill_first_q_row<S>(m),
					      state.row_max[m], state.row_sum[m], state.values[m]);
}

template <class S>
SIMT_FUNCTION void
prefill_attend(const cuda_attention_params &p)
{
	prefill_shared<S> &shared = SIMT_SHARED(prefill_shared<S>);

	if (simt_thread() == 0)
		prefill_items_begin(p, shared.items);
	ATTENTION_ROLL
	for (;;) {
		simt_sync();
		if (simt_thread() == 0)
			shared.valid = prefill_item_take(p, shared.items, shared.item);
		simt_sync();
		if (!shared.valid)
			break;
		prefill_item_attend(p, shared);
		if (work_item_is_last(p, shared.item, &shared.last))
			work_item_combine<1>(p, shared.item, shared.combine);
	}
}

#endif
