/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores, for pools and queries of one half-width dtype and
 * dims that are multiples of 8.
 *
 * A block has four warps.  A wide tile is 64 lines, 16 of each warp, which all
 * see the same keys; a narrow one, for decoding, 16 lines, and each warp has a
 * quarter of the keys and a softmax of its own, merged in the end.  Tiles of
 * keys and values come by cp.async into a ring of stages, rows of 16-byte
 * chunks that are swizzled so that eight rows of a matrix lie in eight banks.
 * Dims are padded with zeros to 64, 128 or 256.
 *
 * Weights are rounded to the pool's dtype before they meet values.
 */
#include "kernels/cuda/attention_tile.h"

template <class S>
SIMT_FUNCTION void
tile_attend(const cuda_attention_params &p, attention_mma_shared<S> &shared, attention_mma_state<S> &state,
	    uint32_t stage, uint32_t begin)
{
	const attention_item &item = shared.common.item;
	/* The tile's first line sees least. */
	bool whole = !attention_mod::has_mask && p.blocks.first_list == 0 && begin + S::TOKENS <= item.end &&
		     begin + S::TOKENS <= row_visible(p, item, line_query(p, item, 0));
	float weight[S::BLOCKS][4], rescale[2];

	products<S>(shared, shared.tile[stage][CUDA_K], weight);
	weights_make<S>(p, shared, state, begin + (S::NARROW ? simt_warp() * S::WARP_TOKENS : 0), whole, weight,
			rescale);
	values_add<S>(p, state, shared.tile[stage][CUDA_V], whole, weight, rescale);
}

/* Tokens [begin, end), all of one segment if there is a block mask. */
template <class S>
SIMT_FUNCTION void
span_attend(const cuda_attention_params &p, attention_mma_shared<S> &shared, attention_mma_state<S> &state,
	    uint32_t begin, uint32_t end)
{
	simt_sync();
	for (uint32_t i = 0; i < S::STAGES - 1; i++) {
		tile_fetch<S>(p, shared, i, begin + i * S::TOKENS, end);
		simt_sync(); /* page[] is read */
	}
	for (uint32_t i = 0; begin + i * S::TOKENS < end; i++) {
		uint32_t ahead = i + S::STAGES - 1;

		simt_copy_async_wait<(int)S::STAGES - 2>();
		simt_sync();
		tile_fetch<S>(p, shared, ahead % S::STAGES, begin + ahead * S::TOKENS, end);
		if (tile_wanted(p, shared, begin + i * S::TOKENS))
			tile_attend<S>(p, shared, state, i % S::STAGES, begin + i * S::TOKENS);
	}
	simt_copy_async_wait<0>();
}

template <class S>
SIMT_FUNCTION void
split_attend(const cuda_attention_params &p, attention_mma_shared<S> &shared, attention_mma_state<S> &state)
{
	const attention_item &item = shared.common.item;

	if (p.blocks.first_list == 0) {
		span_attend<S>(p, shared, state, item.begin, item.end);
		return;
	}
	for (uint32_t begin = item.begin; begin < item.end;) {
		uint32_t segment = begin / CUDA_SEGMENT * CUDA_SEGMENT, end = segment + CUDA_SEGMENT;

		end = end < item.end ? end : item.end;
		segment_mark(p, item, segment, shared.common.marks);
		span_attend<S>(p, shared, state, begin, end);
		begin = end;
	}
}

template <class S>
SIMT_FUNCTION void
wide_store(const cuda_attention_params &p, const attention_item &item, const attention_mma_state<S> &state)
{
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t line = simt_warp() * 16 + simt_lane() / 4 + i * 8;
		float factor;

		if (line >= item.n_lines)
			continue;
		factor = state_store(p, item, line, state.maximum[i], state.sum[i], simt_lane() % 4 == 0);
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n++)
			pair_store(p, item, line, n * 8 + simt_lane() % 4 * 2, factor, state.values[n][i * 2],
				   state.values[n][i * 2 + 1]);
	}
}

/* The warps' softmaxes of one line, in their order, that is by tokens. */
template <class S>
SIMT_FUNCTION void
narrow_line_store(const cuda_attention_params &p, attention_mma_shared<S> &shared, uint32_t line)
{
	const attention_item &item = shared.common.item;
	float maximum = -infinity(), sum = 0, weight[ATTENTION_WARPS], factor;

	ATTENTION_UNROLL
	for (uint32_t w = 0; w < ATTENTION_WARPS; w++)
		maximum = softmax_larger(maximum, shared.maximum[w][line]);
	ATTENTION_UNROLL
	for (uint32_t w = 0; w < ATTENTION_WARPS; w++) {
		weight[w] = softmax_weight(shared.maximum[w][line], maximum);
		sum = simt_fma(shared.sum[w][line], weight[w], sum);
	}
	factor = state_store(p, item, line, maximum, sum, simt_lane() == 0);
	for (uint32_t d = simt_lane() * 2; d < S::DIM; d += 64) {
		float a = 0, b = 0;

		ATTENTION_UNROLL
		for (uint32_t w = 0; w < ATTENTION_WARPS; w++) {
			a = simt_fma(shared.values[w][line][d], weight[w], a);
			b = simt_fma(shared.values[w][line][d + 1], weight[w], b);
		}
		pair_store(p, item, line, d, factor, a, b);
	}
}

template <class S>
SIMT_FUNCTION void
narrow_store(const cuda_attention_params &p, attention_mma_shared<S> &shared, const attention_mma_state<S> &state)
{
	uint32_t w = simt_warp(), column = simt_lane() % 4 * 2;

	simt_sync(); /* the tiles are read; their memory is used anew */
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t line = simt_lane() / 4 + i * 8;

		if (simt_lane() % 4 == 0) {
			shared.maximum[w][line] = state.maximum[i];
			shared.sum[w][line] = state.sum[i];
		}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n++) {
			shared.values[w][line][n * 8 + column] = state.values[n][i * 2];
			shared.values[w][line][n * 8 + column + 1] = state.values[n][i * 2 + 1];
		}
	}
	simt_sync();
	for (uint32_t line = w; line < shared.common.item.n_lines; line += ATTENTION_WARPS)
		narrow_line_store<S>(p, shared, line);
}

template <class S>
SIMT_FUNCTION void
item_attend(const cuda_attention_params &p)
{
	attention_mma_shared<S> &shared = SIMT_SHARED(attention_mma_shared<S>);
	attention_mma_state<S> state;

	queries_load<S>(p, shared, state);
	split_attend<S>(p, shared, state);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		state.sum[i] += simt_shuffle_xor(state.sum[i], 1);
		state.sum[i] += simt_shuffle_xor(state.sum[i], 2);
	}
	if (S::NARROW)
		narrow_store<S>(p, shared, state);
	else
		wide_store<S>(p, shared.common.item, state);
}

template <uint32_t DIM, bool F16>
SIMT_FUNCTION void
attend(const cuda_attention_params &p)
{
	attention_mma_common &common = SIMT_SHARED(attention_mma_common);
	uint32_t n_items = plan_head(p.plan)->n_items;

	for (uint32_t number = simt_block(); number < n_items; number += simt_n_blocks()) {
		simt_sync();
		if (simt_thread() == 0)
			common.taken = item_find(p, number, &common.item);
		simt_sync();
		if (!common.taken)
			continue;
		if (common.item.tile_lines == CUDA_TILE_LINES)
			item_attend<attention_shape<DIM, F16, true>>(p);
		else
			item_attend<attention_shape<DIM, F16, false>>(p);
		if (common.item.n_splits > 1 && item_last(p, common.item, &common.last))
			item_merge(p, common.item);
	}
}

/* No function: NVRTC takes one without __device__ for the host's. */
template <uint32_t DIM, uint32_t SIZE>
constexpr bool shared_fits = sizeof(attention_mma_shared<attention_shape<DIM, true, true>>) <= SIZE &&
			     sizeof(attention_mma_shared<attention_shape<DIM, true, false>>) <= SIZE;

static_assert(shared_fits<64, CUDA_MMA_SHARED_64>, "as launchers are told");
static_assert(shared_fits<128, CUDA_MMA_SHARED_128>, "as launchers are told");
static_assert(shared_fits<256, CUDA_MMA_SHARED_256>, "as launchers are told");

#if ATTENTION_HAS(attention_mma_f16_64)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_f16_64), 2)
{
	attend<64, true>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_f16_128)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_f16_128), 2)
{
	attend<128, true>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_f16_256)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_f16_256), 1)
{
	attend<256, true>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_bf16_64)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_bf16_64), 2)
{
	attend<64, false>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_bf16_128)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_bf16_128), 2)
{
	attend<128, false>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_bf16_256)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_bf16_256), 1)
{
	attend<256, false>(p);
}
#endif
