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
tile_attend(const cuda_attention_params &p, attention_mma_shared<K> &shared, attention_mma_state<K> &state,
	    uint32_t stage, uint32_t begin)
{
	bool whole = tile_whole(p, shared.item, begin + S::TOKENS);
	float weight[S::BLOCKS][4], rescale[2];

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		weight[n][0] = weight[n][1] = weight[n][2] = weight[n][3] = 0;
	K::elements::template products_add<S>(p, shared, stage, weight);
	weights_make<S>(p, shared, state, begin + warp_token<S>(), whole, weight, rescale);
	K::elements::template values_add<S>(p, shared, state, stage, whole, weight, rescale);
}

/*
 * Attend to tokens [begin, end), which lie in one segment if there is a block mask.  Tiles are prefetched STAGES - 1
 * iterations ahead.
 */
template <class K>
SIMT_FUNCTION void
span_attend(const cuda_attention_params &p, attention_mma_shared<K> &shared, attention_mma_state<K> &state,
	    uint32_t begin, uint32_t end)
{
	uint32_t tokens = item_tokens<K>(shared.item), n = (end - begin + tokens - 1) / tokens + K::STAGES - 1;

	ATTENTION_ROLL
	for (uint32_t ahead = 0; ahead < n; ahead++) {
		uint32_t i = ahead - (K::STAGES - 1);

		simt_copy_async_wait<(int)K::STAGES - 2>();
		simt_sync(); /* all warps have read the stage's previous tile, and page[] */
		tile_fetch(p, shared, ahead % K::STAGES, begin + ahead * tokens, end);
		if (ahead < K::STAGES - 1 || !tile_wanted(p, shared, begin + i * tokens, tokens))
			continue;
		if (item_narrow(shared.item))
			tile_attend<typename K::narrow>(p, shared, state, i % K::STAGES, begin + i * tokens);
		else
			tile_attend<typename K::wide>(p, shared, state, i % K::STAGES, begin + i * tokens);
	}
}

/* Copy the state of the warp's 16 lines to shared memory, so that few instructions can store it to global memory. */
template <class K>
SIMT_FUNCTION void
state_share(attention_mma_shared<K> &shared, const attention_mma_state<K> &state)
{
	constexpr uint32_t CHUNK = K::elements::CHUNK;
	uint32_t w = simt_warp();

	simt_sync(); /* all warps have read the tiles; `values` reuses their memory */
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t line = simt_lane() / 4 + i * 8;
		float sum = state.sum[i];

		sum += simt_shuffle_xor(sum, 1);
		sum += simt_shuffle_xor(sum, 2);
		if (simt_lane() % 4 == 0) {
			shared.maximum[w][line] = state.maximum[i];
			shared.sum[w][line] = sum;
		}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < K::DIM / 8; n++)
			ATTENTION_UNROLL
			for (uint32_t j = i * 2; j < i * 2 + 2; j++)
				shared.values[w][line][n * 8 / CHUNK * CHUNK + K::elements::sums_place(n, j)] =
					state.values[n][j];
	}
	simt_sync();
}

/* The result of a line, which a warp stores; `values` is in shared memory. */
struct attention_mma_line {
	float maximum, sum;
	const float *values;
};

/* Combine the warps' softmax states of a line of a narrow tile in the order of warps, which is that of tokens. */
template <class K>
SIMT_FUNCTION attention_mma_line
narrow_line_merge(attention_mma_shared<K> &shared, uint32_t line)
{
	attention_mma_line to = { -infinity(), 0, shared.values[0][line] };
	float weight[ATTENTION_WARPS];

	ATTENTION_UNROLL
	for (uint32_t w = 0; w < ATTENTION_WARPS; w++)
		to.maximum = softmax_larger(to.maximum, shared.maximum[w][line]);
	ATTENTION_UNROLL
	for (uint32_t w = 0; w < ATTENTION_WARPS; w++) {
		weight[w] = softmax_weight(shared.maximum[w][line], to.maximum);
		to.sum = simt_fma(shared.sum[w][line], weight[w], to.sum);
	}
	ATTENTION_ROLL
	for (uint32_t d = simt_lane() * 2; d < K::DIM; d += 64) {
		float a = 0, b = 0;

		ATTENTION_UNROLL
		for (uint32_t w = 0; w < ATTENTION_WARPS; w++) {
			a = simt_fma(shared.values[w][line][d], weight[w], a);
			b = simt_fma(shared.values[w][line][d + 1], weight[w], b);
		}
		shared.values[0][line][d] = a;
		shared.values[0][line][d + 1] = b;
	}
	return to;
}

template <class K>
SIMT_FUNCTION void
line_store(const cuda_attention_params &p, attention_mma_shared<K> &shared, uint32_t line)
{
	uint32_t w = line / 16, at = line % 16;
	attention_mma_line from = { shared.maximum[w][at], shared.sum[w][at], shared.values[w][at] };
	float factor, scale = K::elements::sums_factor(p, shared.item);

	if (item_narrow(shared.item))
		from = narrow_line_merge(shared, line);
	factor = state_store(p, shared.item, line, from.maximum, from.sum, simt_lane() == 0);
	ATTENTION_ROLL
	for (uint32_t d = simt_lane() * 2; d < K::DIM; d += 64)
		pair_store(p, shared.item, line, d, factor, from.values[d] * scale, from.values[d + 1] * scale);
}

template <class K>
SIMT_FUNCTION void
item_attend(const cuda_attention_params &p, attention_mma_shared<K> &shared)
{
	const attention_item &item = shared.item;
	bool blocks = p.blocks.first_list != 0;
	attention_mma_state<K> state;

	K::elements::queries_fetch(p, shared, item_narrow(item) ? K::narrow::LINES : K::wide::LINES);
	state_begin(p, item, state);
	ATTENTION_ROLL
	for (uint32_t begin = item.begin, end; begin < item.end; begin = end) {
		uint32_t segment = begin / CUDA_SEGMENT * CUDA_SEGMENT;

		end = blocks && segment + CUDA_SEGMENT < item.end ? segment + CUDA_SEGMENT : item.end;
		if (blocks)
			segment_mark(p, item, segment, shared.marks);
		span_attend(p, shared, state, begin, end);
	}
	simt_copy_async_wait<0>();
	state_share(shared, state);
	ATTENTION_ROLL
	for (uint32_t line = simt_warp(); line < item.n_lines; line += ATTENTION_WARPS)
		line_store(p, shared, line);
}

template <class K>
SIMT_FUNCTION void
attend(const cuda_attention_params &p)
{
	attention_mma_shared<K> &shared = SIMT_SHARED(attention_mma_shared<K>);

	items_attend(p, shared, [&] { item_attend(p, shared); });
}

#endif
