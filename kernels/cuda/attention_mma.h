/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_mma.h - the loop of a tensor core kernel's block over its work items
 *
 * The functions are templates of a kernel's shapes K (attention_tile.h).
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_MMA_H
#define PAGED_KERNELS_CUDA_ATTENTION_MMA_H

#include "kernels/cuda/attention_tile.h"

template <class S, class K>
SIMT_FUNCTION void
mma_tile_attend(const cuda_attention_params &p, attention_mma_shared<K> &shared, attention_mma_state<K> &state,
		uint32_t stage, uint32_t begin)
{
	bool full = tile_is_full(p, shared.item, begin, begin + S::TOKENS);
	float weight[S::BLOCKS][4], rescale[2];

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		weight[n][0] = weight[n][1] = weight[n][2] = weight[n][3] = 0;
	K::elements::template add_qk<S>(p, shared, stage, weight);
	mma_weights<S>(p, shared, state, begin + warp_token<S>(), full, weight, rescale);
	K::elements::template add_pv<S>(p, shared, state, stage, full, weight, rescale);
}

/* Wait until the oldest of n fetched tiles is there, as far as this thread copied it. */
template <class K>
SIMT_FUNCTION void
mma_tile_wait(uint32_t n)
{
	if (n < K::STAGES - 1)
		simt_copy_async_wait<0>();
	else
		simt_copy_async_wait<(int)K::STAGES - 2>();
}

/*
 * Attend to tokens [begin, end), which lie in one bitmap if there is a block mask.  While a tile is computed, the tiles
 * after it are copied to the other stages.
 */
template <class K>
SIMT_FUNCTION void
mma_tiles_attend(const cuda_attention_params &p, attention_mma_shared<K> &shared, attention_mma_state<K> &state,
		 uint32_t begin, uint32_t end)
{
	uint32_t tokens = work_item_tile_tokens<K>(shared.item), stages = work_item_stages<K>(shared.item), stage = 0;
	mma_prefetch prefetch = { mma_visible_tile(p, shared, begin, end), end, 0, 0, 0, 0 };

	begin = prefetch.begin;
	mma_entry_load(p, shared, prefetch);
	ATTENTION_ROLL
	while (prefetch.n_tiles < stages - 1 && prefetch.begin < end)
		mma_tile_fetch(p, shared, prefetch);
	ATTENTION_ROLL
	for (; begin < end; begin = mma_visible_tile(p, shared, begin + tokens, end)) {
		mma_tile_wait<K>(prefetch.n_tiles);
		simt_sync(); /* the tile is there, and all warps have read the one before it */
		if (prefetch.begin < end)
			mma_tile_fetch(p, shared, prefetch);
		if (work_item_is_narrow(shared.item))
			mma_tile_attend<typename K::narrow>(p, shared, state, stage, begin);
		else
			mma_tile_attend<typename K::wide>(p, shared, state, stage, begin);
		stage = stage + 1 == stages ? 0 : stage + 1;
		prefetch.n_tiles--;
	}
}

/* Copy the state of the warp's 16 q_rows to shared memory, so that few instructions can store it to global memory. */
template <class K>
SIMT_FUNCTION void
mma_state_share(attention_mma_shared<K> &shared, const attention_mma_state<K> &state)
{
	constexpr uint32_t CHUNK = K::elements::CHUNK;
	uint32_t w = simt_opaque(simt_warp()), lane = simt_opaque(simt_lane());

	simt_sync(); /* all warps have read the tiles; `values` reuses their memory */
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t q_row = lane / 4 + i * 8;
		float row_sum = state.row_sum[i];

		row_sum += simt_shuffle_xor(row_sum, 1);
		row_sum += simt_shuffle_xor(row_sum, 2);
		if (lane % 4 == 0) {
			shared.row_max[w][q_row] = state.row_max[i];
			shared.row_sum[w][q_row] = row_sum;
		}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < K::DIM / 8; n++)
			ATTENTION_UNROLL
			for (uint32_t j = i * 2; j < i * 2 + 2; j++)
				shared.values[w][q_row][n * 8 / CHUNK * CHUNK + K::elements::sum_index(n, j)] =
					state.values[n][j];
	}
	simt_sync();
}

/* The softmax state of a q_row, to be stored by one warp; `values` is in shared memory. */
struct mma_q_row_result {
	float row_max, row_sum;
	const float *values;
};

/* Combine the warps' softmax states of a q_row of a narrow tile in the order of warps, which is that of tokens. */
template <class K>
SIMT_FUNCTION mma_q_row_result
mma_narrow_q_row_combine(attention_mma_shared<K> &shared, uint32_t q_row)
{
	mma_q_row_result to = { -infinity(), 0, shared.values[0][q_row] };
	float weight[ATTENTION_WARPS];

	ATTENTION_UNROLL
	for (uint32_t w = 0; w < ATTENTION_WARPS; w++)
		to.row_max = softmax_max(to.row_max, shared.row_max[w][q_row]);
	ATTENTION_UNROLL
	for (uint32_t w = 0; w < ATTENTION_WARPS; w++) {
		weight[w] = softmax_weight(shared.row_max[w][q_row], to.row_max);
		to.row_sum = simt_fma(shared.row_sum[w][q_row], weight[w], to.row_sum);
	}
	ATTENTION_ROLL
	for (uint32_t d = simt_opaque(simt_lane()) * 2; d < K::DIM; d += 64) {
		float a = 0, b = 0;

		ATTENTION_UNROLL
		for (uint32_t w = 0; w < ATTENTION_WARPS; w++) {
			a = simt_fma(shared.values[w][q_row][d], weight[w], a);
			b = simt_fma(shared.values[w][q_row][d + 1], weight[w], b);
		}
		shared.values[0][q_row][d] = a;
		shared.values[0][q_row][d + 1] = b;
	}
	return to;
}

template <class K>
SIMT_FUNCTION void
mma_q_row_store(const cuda_attention_params &p, attention_mma_shared<K> &shared, uint32_t q_row)
{
	uint32_t w = q_row / 16, at = q_row % 16;
	mma_q_row_result from = { shared.row_max[w][at], shared.row_sum[w][at], shared.values[w][at] };
	float factor, scale = K::elements::sum_factor(p, shared.item);

	if (work_item_is_narrow(shared.item))
		from = mma_narrow_q_row_combine(shared, q_row);
	factor = softmax_state_store(p, shared.item, q_row, from.row_max, from.row_sum, simt_lane() == 0);
	ATTENTION_ROLL
	for (uint32_t d = simt_opaque(simt_lane()) * 2; d < K::DIM; d += 64)
		q_row_store_pair(p, shared.item, q_row, d, factor, from.values[d] * scale, from.values[d + 1] * scale);
}

template <class K>
SIMT_FUNCTION void
mma_work_item_attend(const cuda_attention_params &p, attention_mma_shared<K> &shared)
{
	const attention_work_item &item = shared.item;
	bool blocks = p.blocks.first_list != 0;
	attention_mma_state<K> state;

	K::elements::fetch_q_rows(p, shared, work_item_is_narrow(item) ? K::narrow::Q_ROWS : K::wide::Q_ROWS);
	mma_state_init(p, shared, state);
	ATTENTION_ROLL
	for (uint32_t begin = item.begin, end; begin < item.end; begin = end) {
		uint32_t bitmap_begin = begin / CUDA_MASK_BITMAP_TOKENS * CUDA_MASK_BITMAP_TOKENS;

		end = blocks && bitmap_begin + CUDA_MASK_BITMAP_TOKENS < item.end
			      ? bitmap_begin + CUDA_MASK_BITMAP_TOKENS
			      : item.end;
		if (blocks)
			mask_bitmap_build(p, item, bitmap_begin, shared.mask_bitmap);
		mma_tiles_attend(p, shared, state, begin, end);
	}
	simt_copy_async_wait<0>();
	mma_state_share(shared, state);
	ATTENTION_ROLL
	for (uint32_t q_row = simt_warp(); q_row < item.n_q_rows; q_row += ATTENTION_WARPS)
		mma_q_row_store(p, shared, q_row);
}

template <class K>
SIMT_FUNCTION void
mma_attend(const cuda_attention_params &p)
{
	attention_mma_shared<K> &shared = SIMT_SHARED(attention_mma_shared<K>);

	/* With 64 dims, three blocks of byte pools share a multiprocessor's registers. */
	work_items_for_each<K::DIM == 64 ? 4 : 8>(p, shared, [&] { mma_work_item_attend(p, shared); });
}

#endif
