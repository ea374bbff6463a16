/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_prefill_item.h - what the kernels for prefill items have in common: items, results
 *
 * A warp's q_rows are M tiles, as in attention_q_rows.h.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_PREFILL_ATTENTION_PREFILL_ITEM_H
#define PAGED_KERNELS_CUDA_ATTENTION_PREFILL_ATTENTION_PREFILL_ITEM_H

#include "kernels/cuda/attention/attention_q_rows.h"

/* Items */

/** In shared memory: what one thread of the block needs to take items, and what it found about the current one. */
struct prefill_items {
	uint32_t round, n;
	uint32_t full_end; /* tokens [kv_first, full_end) are seen by all q_rows, with no mask to evaluate */
};

SIMT_FUNCTION void
prefill_items_begin(const cuda_attention_params &p, prefill_items &items)
{
	items.round = 0;
	items.n = plan_head(p.plan)->n_prefill_items;
}

/*
 * Take the block's next item; false if there is none.  Items are taken from the last one on, back and forth: causal
 * attention has its longest items last, and so each block has about the same work.  One thread calls; what it needs is
 * in shared memory because the registers are full.
 */
SIMT_FUNCTION bool
prefill_item_take(const cuda_attention_params &p, prefill_items &items, attention_work_item &item)
{
	uint32_t blocks = simt_n_blocks();

	ATTENTION_ROLL
	for (;;) {
		uint32_t block = items.round % 2 == 0 ? simt_block() : blocks - 1 - simt_block();
		uint32_t from_last = items.round++ * blocks + block;

		if (from_last >= items.n)
			return false;
		if (work_item_find(p, items.n - 1 - from_last, &item))
			break;
	}
	items.full_end = work_item_full_end(p, item);
	return true;
}

/* Does every q_row see all tokens of the tile, with no mask to evaluate? */
template <class S>
SIMT_FUNCTION bool
prefill_tile_is_full(const prefill_items &items, const attention_work_item &item, uint32_t begin)
{
	return begin >= item.kv_first && begin + S::TOKENS <= items.full_end;
}

/* Results */

/** In shared memory: the results of an M tile of each warp, as pairs of floats, and where they go. */
template <uint32_t DIM, uint32_t WARPS> struct prefill_results {
	simt_vec2 values[WARPS][16][DIM / 2 + 2];
	uint64_t to[WARPS][16];
};

/* Store the softmax states of an M tile's q_rows; put their results, and where these go, into shared memory. */
template <uint32_t DIM, uint32_t WARPS>
SIMT_FUNCTION void
prefill_results_share(const cuda_attention_params &p, const attention_work_item &item,
		      prefill_results<DIM, WARPS> &results, uint32_t warp, uint32_t first, const float row_max[2],
		      const float row_sum[2], const float values[DIM / 8][4])
{
	uint32_t lane = simt_lane();

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t at = lane / 4 + i * 8;
		float sum = row_sum[i], factor = 1;

		sum += simt_shuffle_xor(sum, 1);
		sum += simt_shuffle_xor(sum, 2);
		if (first + at < item.n_q_rows) {
			factor = softmax_state_store(p, item, first + at, row_max[i], sum, lane % 4 == 0);
			if (lane % 4 == 0)
				results.to[warp][at] = q_row_values_address(p, item, first + at);
		}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < DIM / 8; n++)
			results.values[warp][at][n * 4 + lane % 4] = { float_as_bits(values[n][i * 2] * factor),
								       float_as_bits(values[n][i * 2 + 1] * factor) };
	}
}

/* Store the results of an M tile that begins with q_row `first`.  The whole warp calls; `warp` is its place. */
template <uint32_t DIM, uint32_t WARPS>
SIMT_FUNCTION void
prefill_results_store(const cuda_attention_params &p, const attention_work_item &item,
		      prefill_results<DIM, WARPS> &results, uint32_t warp, uint32_t first, const float row_max[2],
		      const float row_sum[2], const float values[DIM / 8][4])
{
	uint32_t dtype = item.n_kv_chunks == 1 ? p.out.dtype : (uint32_t)CUDA_F32;

	simt_warp_sync(); /* the results of the M tile before were read */
	prefill_results_share(p, item, results, warp, first, row_max, row_sum, values);
	simt_warp_sync();
	ATTENTION_ROLL
	for (uint32_t at = 0; at < 16 && first + at < item.n_q_rows; at++)
		ATTENTION_ROLL
		for (uint32_t pair = simt_lane(); pair < p.pages.plane[CUDA_V].dim / 2; pair += 32)
			pair_store(results.to[warp][at], dtype, pair, results.values[warp][at][pair]);
}

#endif
