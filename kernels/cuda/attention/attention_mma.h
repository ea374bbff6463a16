/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_mma.h - the loop of a tensor core kernel's block over its work items
 *
 * The functions are templates of a kernel's shapes K (attention_tile.h).
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_MMA_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_MMA_H

#include "kernels/cuda/attention/attention_fetch.h"

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
	mma_weights<S>(p, shared, state, begin, full, weight, rescale);
	K::elements::template add_pv<S>(p, shared, state, stage, full, weight, rescale);
}

/* Find the item after this one.  The whole block calls. */
template <class SHARED>
SIMT_FUNCTION void
mma_next_find(const cuda_attention_params &p, SHARED &shared, mma_prefetch &prefetch)
{
	if (simt_thread() == 0)
		shared.has_next = work_item_next(p, shared, &shared.next);
	prefetch.found = true;
}

/*
 * Call attend(stage, begin) for each tile of tokens [begin, end), which lie in one bitmap if there is a block mask.
 * While a tile is computed, the tiles after it are copied to the other stages, if there are any.
 */
template <class T, class ATTEND>
SIMT_FUNCTION void
mma_tiles_for_each(const cuda_attention_params &p, typename T::shared_type &shared, mma_prefetch &prefetch,
		   uint32_t begin, uint32_t end, ATTEND attend)
{
	uint32_t tokens = T::n_tokens(shared), stages = T::n_stages(p, shared);
	bool one_stage = T::MAY_HAVE_ONE_STAGE && stages == 1;
	uint32_t ahead = one_stage ? 1 : stages - 1; /* tiles that are fetched before one is attended to */

	begin = T::visible_from(p, shared, begin, end);
	if (!prefetch.in_next) {
		prefetch.begin = begin;
		prefetch.end = end;
		prefetch.stage = 0;
		T::load_entry(p, shared, prefetch);
	}
	prefetch.in_next = false; /* the next item has become this one */
	ATTENTION_ROLL
	while (begin < end) {
		/* First, as many tiles are fetched as are to be on their way; the code has one copy of the fetch. */
		bool filled = prefetch.n_tiles >= ahead || prefetch.begin >= prefetch.end;

		if (filled) {
			/* Queries that were fetched during the item before were fetched after its tiles. */
			T::wait(prefetch.n_tiles, prefetch.has_queries && !prefetch.found);
			simt_sync(); /* the tile is there, and all warps have read the one before it */
		}
		if (!one_stage || !filled)
			mma_prefetch_step<T>(p, shared, prefetch);
		if (!filled)
			continue;
		if (!prefetch.found)
			mma_next_find(p, shared, prefetch);
		attend(prefetch.stage + (prefetch.stage < prefetch.n_tiles ? stages : 0) - prefetch.n_tiles, begin);
		prefetch.n_tiles--;
		if (one_stage)
			simt_sync(); /* all warps have read the tile */
		begin = T::visible_from(p, shared, begin + tokens, end);
	}
}

/*
 * Storing an item's results.  Sums of values go through shared memory, RESULT_Q_ROWS q_rows of each warp at a time, so
 * that threads store vectors, and that a narrow tile's warps can be combined.
 */

/* Index in attention_results.values of a q_row's dim, swizzled against bank conflicts; `at` counts the q_rows there. */
template <class K>
SIMT_FUNCTION uint32_t
mma_result_index(uint32_t at, uint32_t d)
{
	return at * K::DIM + (d ^ at % 4 * 8);
}

template <class K>
SIMT_FUNCTION void
mma_row_states_share(attention_results &results, const attention_mma_state<K> &state)
{
	uint32_t w = simt_opaque(simt_warp()), lane = simt_opaque(simt_lane());

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		float row_sum = state.row_sum[i];

		row_sum += simt_shuffle_xor(row_sum, 1);
		row_sum += simt_shuffle_xor(row_sum, 2);
		if (lane % 4 == 0) {
			results.row_max[w][lane / 4 + i * 8] = state.row_max[i];
			results.row_sum[w][lane / 4 + i * 8] = row_sum;
		}
	}
}

/* Copy the sums of values of RESULT_Q_ROWS of the warp's sixteen q_rows, from `first` on, to shared memory. */
template <class K>
SIMT_FUNCTION void
mma_values_share(attention_results &results, const attention_mma_state<K> &state, uint32_t first)
{
	constexpr uint32_t CHUNK = K::elements::CHUNK;
	uint32_t lane = simt_opaque(simt_lane()), at = lane / 4 - first % 8;
	float *to = results.values[simt_opaque(simt_warp())];

	if (at >= K::RESULT_Q_ROWS)
		return;
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < K::DIM / 8; n++)
		ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++)
		to[mma_result_index<K>(at, n * 8 / CHUNK * CHUNK + K::elements::sum_index(n, i))] =
			first < 8 ? state.values[n][i] : state.values[n][i + 2];
}

/* Four adjacent sums of values of a q_row, and its softmax state. */
struct mma_result {
	float row_max, row_sum, values[4];
};

/* Combine the warps' states of a q_row of a narrow tile in the order of warps, which is that of tokens. */
template <class K>
SIMT_FUNCTION mma_result
mma_narrow_result(const attention_results &results, uint32_t q_row, uint32_t from)
{
	mma_result to = { -infinity(), 0, { 0, 0, 0, 0 } };

	ATTENTION_UNROLL
	for (uint32_t w = 0; w < ATTENTION_WARPS; w++)
		to.row_max = softmax_max(to.row_max, results.row_max[w][q_row]);
	ATTENTION_UNROLL
	for (uint32_t w = 0; w < ATTENTION_WARPS; w++) {
		float weight = softmax_weight(results.row_max[w][q_row], to.row_max);

		to.row_sum = simt_fma(results.row_sum[w][q_row], weight, to.row_sum);
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			to.values[i] = simt_fma(results.values[w][from + i], weight, to.values[i]);
	}
	return to;
}

template <class K>
SIMT_FUNCTION mma_result
mma_wide_result(const attention_results &results, uint32_t q_row, uint32_t from)
{
	uint32_t w = q_row / 16;
	const float *values = &results.values[w][from];

	return { results.row_max[w][q_row % 16],
		 results.row_sum[w][q_row % 16],
		 { values[0], values[1], values[2], values[3] } };
}

/* Store vector `vec` of the q_rows whose sums are in shared memory, the first of which is first_q_row. */
template <class K>
SIMT_FUNCTION void
mma_result_store(const cuda_attention_params &p, attention_mma_block &shared, uint32_t first_q_row, uint32_t vec)
{
	const attention_work_item &item = shared.item;
	uint32_t at = vec * 4 / K::DIM, d = vec * 4 % K::DIM, q_row = first_q_row + at;
	uint32_t from = mma_result_index<K>(at, d);
	float factor, scale = K::elements::sum_factor(p, item);
	mma_result result;

	if (q_row >= item.n_q_rows || d >= p.pages.plane[CUDA_V].dim)
		return;
	result = work_item_is_narrow(item) ? mma_narrow_result<K>(shared.results, q_row, from)
					   : mma_wide_result<K>(shared.results, q_row, from);
	factor = softmax_state_store(p, item, q_row, result.row_max, result.row_sum, d == 0);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 4; i++)
		result.values[i] = result.values[i] * scale * factor;
	vec4_store(q_row_values_address(p, item, q_row), item.n_kv_chunks == 1 ? p.out.dtype : (uint32_t)CUDA_F32,
		   d / 4, result.values);
}

template <class THREADS = attention_threads, class K>
SIMT_FUNCTION void
mma_results_store(const cuda_attention_params &p, attention_mma_block &shared, const attention_mma_state<K> &state)
{
	bool narrow = work_item_is_narrow(shared.item);
	uint32_t n = narrow ? shared.item.n_q_rows : CUDA_TILE_Q_ROWS, n_vecs = K::RESULT_Q_ROWS * K::DIM / 4;

	mma_row_states_share<K>(shared.results, state);
	ATTENTION_ROLL
	for (uint32_t first = 0; first < n; first += K::RESULT_Q_ROWS) {
		if (first != 0)
			THREADS::sync(); /* all warps have read the sums before */
		mma_values_share<K>(shared.results, state, first);
		THREADS::sync();
		ATTENTION_ROLL
		for (uint32_t vec = narrow ? simt_thread() : simt_lane(); vec < n_vecs;
		     vec += narrow ? CUDA_ATTENTION_THREADS : 32)
			mma_result_store<K>(p, shared, (narrow ? 0 : simt_warp() * 16) + first, vec);
	}
}

template <class K>
SIMT_FUNCTION void
mma_queries_fetch(const cuda_attention_params &p, attention_mma_shared<K> &shared, const attention_work_item &item)
{
	K::elements::fetch_q_rows(p, shared, item, work_item_is_narrow(item) ? K::narrow::Q_ROWS : K::wide::Q_ROWS);
}

template <class K>
SIMT_FUNCTION void
mma_work_item_attend(const cuda_attention_params &p, attention_mma_shared<K> &shared, mma_prefetch &prefetch)
{
	const attention_work_item &item = shared.item;
	bool blocks = has_block_mask(p);
	attention_mma_state<K> state;

	if (!prefetch.has_queries)
		mma_queries_fetch(p, shared, item);
	prefetch.found = false;
	mma_state_init(p, shared, item, state);
	ATTENTION_ROLL
	for (uint32_t begin = item.begin, end; begin < item.end; begin = end) {
		/* Not mask_bitmap_end(): with it, ptxas spills registers of two byte kernels. */
		uint32_t bitmap_begin = begin / CUDA_MASK_BITMAP_TOKENS * CUDA_MASK_BITMAP_TOKENS;

		end = blocks && bitmap_begin + CUDA_MASK_BITMAP_TOKENS < item.end
			      ? bitmap_begin + CUDA_MASK_BITMAP_TOKENS
			      : item.end;
		if (blocks)
			mask_bitmap_build(p, item, bitmap_begin, shared.mask_bitmap);
		mma_tiles_for_each<mma_tiles<K>>(p, shared, prefetch, begin, end, [&](uint32_t stage, uint32_t at) {
			if (work_item_is_narrow(item))
				mma_tile_attend<typename K::narrow>(p, shared, state, stage, at);
			else
				mma_tile_attend<typename K::wide>(p, shared, state, stage, at);
		});
	}
	if (!prefetch.found) { /* there was no tile */
		prefetch.in_next = false;
		simt_copy_async_wait<0>();
		mma_next_find(p, shared, prefetch);
	}
	simt_sync(); /* all warps have read the queries, and the block mask's bitmap, whose memory has the results */
	prefetch.has_queries = mma_next_is_alike(p, shared);
	if (prefetch.has_queries)
		mma_queries_fetch(p, shared, shared.next);
	mma_results_store(p, shared, state);
}

/*
 * The block's loop over its work items: as work_items_for_each(), but an item's first tiles are on their way before the
 * item before has ended.
 */
template <class K>
SIMT_FUNCTION void
mma_attend(const cuda_attention_params &p)
{
	attention_mma_shared<K> &shared = SIMT_SHARED(attention_mma_shared<K>);
	mma_prefetch prefetch = {};

	if (simt_thread() == 0) {
		work_items_begin(p, shared);
		shared.has_next = work_item_next(p, shared, &shared.next);
	}
	ATTENTION_ROLL
	for (;;) {
		simt_sync(); /* the next item is known; all warps have read this one */
		if (!shared.has_next)
			break;
		if (simt_thread() == 0)
			shared.item = shared.next;
		simt_sync();
		mma_work_item_attend(p, shared, prefetch);
		/* With 64 dims, three blocks of byte pools share a multiprocessor's registers. */
		if (work_item_is_last(p, shared.item, &shared.last))
			work_item_combine<K::DIM == 64 ? 4 : 8>(p, shared.item, shared.combine);
	}
}

#endif
