/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_mla_consumer.h - what consumers of the MLA kernels by wgmma do with a tile and with an item
 *
 * The kernels say in which order they do it.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_MLA_ATTENTION_MLA_CONSUMER_H
#define PAGED_KERNELS_CUDA_ATTENTION_MLA_ATTENTION_MLA_CONSUMER_H

#include "kernels/cuda/attention/mla/attention_mla_wgmma.h"

#if SIMT_HAS_WGMMA

/* A consumer's registers. */
template <class S> struct mla_wgmma_state {
	float row_max[2], row_sum[2]; /* row_sum: over the thread's tokens of the group's tiles */
	float sums[PARTS][COLUMNS / 2];
	uint32_t rounded[S::TOKENS / 16][4]; /* weights, as the A of wgmma */
	uint32_t full_end; /* all q_rows see the item's tokens before this one, with no mask to evaluate */
	uint32_t group;
	uint32_t tile;      /* number of the next tile in the block */
	bool holds_queries; /* the warp has not yet let the producers overwrite the item's queries */
};

/* The consumer's group.  A shuffle, so that the assembler knows that the warp's threads agree and may branch by it. */
SIMT_FUNCTION uint32_t
mla_wgmma_group()
{
	return simt_shuffle(wgmma_consumer_warp() / WGMMA_GROUP_WARPS, 0);
}

/* The warp's number in its group. */
SIMT_FUNCTION uint32_t
mla_wgmma_warp()
{
	return wgmma_consumer_warp() % WGMMA_GROUP_WARPS;
}

SIMT_FUNCTION void
mla_wgmma_group_sync(uint32_t group)
{
	simt_sync_part(2 + (int)group, WGMMA_GROUP_WARPS * 32);
}

/* A part's first dim. */
SIMT_FUNCTION uint32_t
mla_wgmma_part_dim(uint32_t group, uint32_t part)
{
	return (group + part * WGMMA_GROUPS) * COLUMNS;
}

/* Wait until all products are complete. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_sums_wait(mla_wgmma_state<S> &state)
{
	ATTENTION_UNROLL
	for (uint32_t part = 0; part < PARTS; part++)
		simt_wgmma_wait<0>(state.sums[part]);
}

/* Start multiplying the keys of a tile by the queries: 64 dims of each.  Those of matrix 0 come first. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_multiply_matrix(const mla_wgmma_shared<S> &shared, uint32_t tile, uint32_t matrix,
			  float (&product)[S::TOKENS / 2])
{
	uint64_t queries = simt_matrix(shared.queries, 1024, 0);
	uint64_t keys = simt_matrix(&shared.ring[mla_wgmma_first_row<S>(tile) * WGMMA_ROW_CHUNKS], 1024, 0);

	ATTENTION_UNROLL
	for (uint32_t chunk = 0; chunk < WGMMA_ROW_CHUNKS; chunk += 2)
		simt_wgmma_shared<S::F16>(
			product, simt_matrix_after(queries, (matrix * S::Q_ROWS * WGMMA_ROW_CHUNKS + chunk) * 16),
			simt_matrix_after(keys, (matrix * S::RING * WGMMA_ROW_CHUNKS + chunk) * 16),
			matrix != 0 || chunk != 0);
}

/* Start adding the rounded weights times the group's dims of a tile's values. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_add_values(const mla_wgmma_shared<S> &shared, mla_wgmma_state<S> &state, uint32_t tile,
		     const uint32_t (&rounded)[S::TOKENS / 16][4])
{
	uint32_t first = mla_wgmma_part_dim(state.group, 0) / 64 * S::RING + mla_wgmma_first_row<S>(tile);
	uint64_t values = simt_matrix(&shared.ring[first * WGMMA_ROW_CHUNKS], 1024, S::RING * WGMMA_ROW_CHUNKS * 16);

	simt_wgmma_fence();
	ATTENTION_UNROLL
	for (uint32_t part = 0; part < PARTS; part++)
		ATTENTION_UNROLL
		for (uint32_t k = 0; k < S::TOKENS / 16; k++)
			simt_wgmma_registers<S::F16>(
				state.sums[part], rounded[k],
				simt_matrix_after(values, (part * WGMMA_GROUPS * (COLUMNS / 64) * S::RING + k * 16) *
								  WGMMA_ROW_CHUNKS * 16));
	simt_wgmma_commit();
}

template <class S>
SIMT_FUNCTION void
mla_wgmma_queries_leave(mla_wgmma_shared<S> &shared, mla_wgmma_state<S> &state)
{
	if (state.holds_queries)
		warp_arrive(&shared.queries_empty);
	state.holds_queries = false;
}

/* The weights of the lane in a tile, for sixteen tokens from k * 16 on: as many bytes as its A of wgmma. */
template <class S>
SIMT_FUNCTION simt_vec4 &
mla_wgmma_weights_at(mla_wgmma_shared<S> &shared, uint32_t tile, uint32_t k, uint32_t lane)
{
	uint32_t matrix = MOST_V_DIMS / 64; /* of dims that are no values */
	simt_vec4 *weights = &shared.ring[(matrix * S::RING + mla_wgmma_first_row<S>(tile)) * WGMMA_ROW_CHUNKS];

	return weights[(k * WGMMA_GROUP_WARPS + mla_wgmma_warp()) * 32 + lane];
}

/* Give the partner the tile's weights and maxima. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_weights_give(mla_wgmma_shared<S> &shared, const mla_wgmma_state<S> &state, uint32_t tile,
		       const uint32_t (&rounded)[S::TOKENS / 16][4], const float rescale[2])
{
	uint32_t lane = simt_lane();

	ATTENTION_UNROLL
	for (uint32_t k = 0; k < S::TOKENS / 16; k++)
		mla_wgmma_weights_at(shared, tile, k, lane) = { rounded[k][0], rounded[k][1], rounded[k][2],
								rounded[k][3] };
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++)
		if (lane % 4 == 0)
			shared.rows[mla_wgmma_warp() * 16 + lane / 4 + i * 8] = { state.row_max[i], rescale[i] };
	warp_arrive(&shared.weights_full[mla_wgmma_warp()]);
}

/* Take the tile's weights and maxima from the partner. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_weights_take(mla_wgmma_shared<S> &shared, mla_wgmma_state<S> &state, uint32_t tile,
		       uint32_t (&rounded)[S::TOKENS / 16][4], float rescale[2])
{
	uint32_t lane = simt_lane();

	simt_barrier_wait(&shared.weights_full[mla_wgmma_warp()], tile % 2);
	ATTENTION_UNROLL
	for (uint32_t k = 0; k < S::TOKENS / 16; k++) {
		simt_vec4 weights = mla_wgmma_weights_at(shared, tile, k, lane);

		rounded[k][0] = weights.x;
		rounded[k][1] = weights.y;
		rounded[k][2] = weights.z;
		rounded[k][3] = weights.w;
	}
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		mla_wgmma_row row = shared.rows[mla_wgmma_warp() * 16 + lane / 4 + i * 8];

		state.row_max[i] = row.row_max;
		state.row_sum[i] *= row.rescale;
		rescale[i] = row.rescale;
	}
}

/* Note whether a product of the tile is NaN or infinite: a NaN or infinity in a token's values makes all its products so. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_non_finite_note(mla_wgmma_shared<S> &shared, uint32_t tile, const float (&product)[S::TOKENS / 2])
{
	float zero[4] = { 0, 0, 0, 0 }; /* NaN if a product is not finite */

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::TOKENS / 2; i++)
		zero[i % 4] = simt_fma(product[i], 0, zero[i % 4]);
	if (zero[0] + zero[1] + (zero[2] + zero[3]) != 0)
		simt_atomic_max(&shared.non_finite[tile % SLOTS], tile + 1);
}

/* Convert the products of the tile from `begin` on to rounded weights. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_products_convert(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item,
			   mla_wgmma_state<S> &state, uint32_t begin, float (&product)[S::TOKENS / 2],
			   uint32_t (&rounded)[S::TOKENS / 16][4], float rescale[2])
{
	uint32_t first = mla_wgmma_warp() * 16, visible = UINT32_MAX;
	float(*weight)[4] = reinterpret_cast<float(*)[4]>(product);

	if (begin < item.kv_first || begin + S::TOKENS > state.full_end) {
		const q_rows_of_thread q_rows = q_rows_make(p, item, first);

		visible = mma_elements_visible<S>(p, item, shared.mask_bitmap, q_rows.at, begin + simt_lane() % 4 * 2);
	}
	q_rows_scores<S>(p, item, first, begin, visible, weight);
	scores_to_weights<S>(state.row_max, state.row_sum, weight, rescale);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::TOKENS / 4; i++)
		rounded[i / 4][i % 4] = round_to_halves<S::F16>(product[i * 2], product[i * 2 + 1]);
}

/* The group has multiplied the keys of its tile from `begin` on: if it was the item's last, it needs no more queries. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_keys_end(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item,
		   mla_wgmma_state<S> &state, uint32_t begin)
{
	/* With a block mask, the last tile is not known. */
	if (!has_block_mask(p) && begin + WGMMA_GROUPS * S::TOKENS >= item.end)
		mla_wgmma_queries_leave(shared, state);
}

/* Make weights of the products of a tile of the group, from `begin` on, for both groups. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_weights_make(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item,
		       mla_wgmma_state<S> &state, uint32_t tile, uint32_t begin, float (&product)[S::TOKENS / 2],
		       uint32_t (&rounded)[S::TOKENS / 16][4], float rescale[2])
{
	mla_wgmma_non_finite_note(shared, tile, product);
	mla_wgmma_products_convert(p, shared, item, state, begin, product, rounded, rescale);
	mla_wgmma_group_sync(state.group); /* all warps have multiplied the keys, whose memory has the weights */
	mla_wgmma_weights_give(shared, state, tile, rounded, rescale);
}

/* Find the tile's tokens of which the group's dims have a NaN or infinity.  The group calls. */
template <class S>
SIMT_FUNCTION uint64_t
mla_wgmma_non_finite_find(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, uint32_t group, uint32_t tile)
{
	uint32_t *words = shared.non_finite_tokens[group], warp = mla_wgmma_warp();
	uint32_t first = mla_wgmma_part_dim(group, warp / 2), found;
	uint32_t row = mla_wgmma_first_row<S>(tile) + warp % 2 * 32 + simt_lane();
	bool non_finite = false;

	ATTENTION_ROLL
	for (uint32_t dim = first; dim < first + COLUMNS && dim < p.pages.plane[CUDA_V].dim; dim += 8)
		non_finite |= S::elements::non_finite(shared.ring[wgmma_index(S::RING, row, dim / 8)]);
	found = simt_ballot(non_finite);
	if (simt_lane() == 0)
		words[warp] = found;
	mla_wgmma_group_sync(group);
	return (words[0] | words[2]) | (uint64_t)(words[1] | words[3]) << 32;
}

/* The weight of a tile's token for a q_row of the warp, as it was rounded. */
template <class S>
SIMT_FUNCTION float
mla_wgmma_weight(mla_wgmma_shared<S> &shared, uint32_t tile, uint32_t q_row, uint32_t token)
{
	simt_vec4 four = mla_wgmma_weights_at(shared, tile, token / 16, q_row % 8 * 4 + token % 8 / 2);
	uint32_t low = token % 16 < 8 ? four.x : four.z, high = token % 16 < 8 ? four.y : four.w;

	return S::elements::to_f32((uint16_t)((q_row < 8 ? low : high) >> token % 2 * 16));
}

/*
 * If the tile has values that are NaN or infinite, add them to the sums of q_rows with a nonzero weight, and make them
 * zeros: wgmma would multiply them by the zero weights of q_rows that do not see them.  The group calls.
 */
template <class S>
SIMT_FUNCTION void
mla_wgmma_non_finite_add(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, mla_wgmma_state<S> &state,
			 uint32_t tile)
{
	uint16_t *elements = reinterpret_cast<uint16_t *>(shared.ring);
	uint32_t v_dim = p.pages.plane[CUDA_V].dim;
	uint64_t tokens;

	if (shared.non_finite[tile % SLOTS] != tile + 1)
		return;
	tokens = mla_wgmma_non_finite_find(p, shared, state.group, tile);
	ATTENTION_ROLL
	for (uint32_t token = 0; token < S::TOKENS; token++) {
		uint32_t row = mla_wgmma_first_row<S>(tile) + token;
		float weight[2];

		if ((tokens >> token & 1) == 0)
			continue;
		weight[0] = mla_wgmma_weight(shared, tile, simt_lane() / 4, token);
		weight[1] = mla_wgmma_weight(shared, tile, simt_lane() / 4 + 8, token);
		ATTENTION_UNROLL
		for (uint32_t part = 0; part < PARTS; part++)
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < COLUMNS / 2; i++) {
				uint32_t dim = mla_wgmma_part_dim(state.group, part) + i / 4 * 8;
				uint32_t at = wgmma_index(S::RING, row, dim / 8) * 8 + simt_lane() % 4 * 2 + i % 2;

				if (dim < v_dim && weight[i / 2 % 2] != 0)
					state.sums[part][i] = simt_fma(weight[i / 2 % 2], S::elements::to_f32(elements[at]),
								       state.sums[part][i]);
			}
	}
	mla_wgmma_group_sync(state.group); /* all have read the values */
	ATTENTION_ROLL
	for (uint32_t i = simt_thread() % (WGMMA_GROUP_WARPS * 32); i < S::TOKENS * PARTS * COLUMNS / 8;
	     i += WGMMA_GROUP_WARPS * 32) {
		uint32_t token = i % S::TOKENS, chunk = i / S::TOKENS;
		uint32_t dim = mla_wgmma_part_dim(state.group, chunk / (COLUMNS / 8)) + chunk % (COLUMNS / 8) * 8;

		if ((tokens >> token & 1) != 0 && dim < v_dim)
			shared.ring[wgmma_index(S::RING, mla_wgmma_first_row<S>(tile) + token, dim / 8)] = { 0, 0, 0, 0 };
	}
	mla_wgmma_group_sync(state.group);
	simt_proxy_fence();
}

template <class S>
SIMT_FUNCTION void
mla_wgmma_rescale(mla_wgmma_state<S> &state, const float rescale[2])
{
	ATTENTION_UNROLL
	for (uint32_t part = 0; part < PARTS; part++)
		q_rows_rescale<S>(reinterpret_cast<float(*)[4]>(state.sums[part]), rescale);
}

/* Store the group's dims of the thread's q_row i. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_q_row_store(const cuda_attention_params &p, const attention_work_item &item, const mla_wgmma_state<S> &state,
		      uint32_t i, uint64_t to, float factor)
{
	bool chunk = item.n_kv_chunks > 1;

	ATTENTION_UNROLL
	for (uint32_t part = 0; part < PARTS; part++)
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < COLUMNS / 8; n++) {
			uint32_t dim = mla_wgmma_part_dim(state.group, part) + n * 8, pair = dim / 2 + simt_lane() % 4;
			simt_vec2 two = { float_as_bits(state.sums[part][n * 4 + i * 2] * factor),
					  float_as_bits(state.sums[part][n * 4 + i * 2 + 1] * factor) };

			if (dim >= p.pages.plane[CUDA_V].dim)
				continue;
			if (chunk)
				pointer_to<simt_vec2>(to)[pair] = two;
			else
				pair_store(to, p.out.dtype, pair, two);
		}
}

/* Store the group's dims of the results, or of the sums of a KV chunk, and group 0 the softmax states. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_results_store(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item,
			mla_wgmma_state<S> &state)
{
	uint32_t lane = simt_lane(), first = mla_wgmma_warp() * 16 + lane / 4;

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		float sum = state.row_sum[i];

		sum += simt_shuffle_xor(sum, 1);
		sum += simt_shuffle_xor(sum, 2);
		if (lane % 4 == 0)
			shared.row_sum[state.group][first + i * 8] = sum;
	}
	wgmma_consumers::sync();
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t q_row = first + i * 8;
		float factor;

		if (q_row >= item.n_q_rows)
			continue;
		factor = softmax_state_store(p, item, q_row, state.row_max[i],
					     shared.row_sum[0][q_row] + shared.row_sum[1][q_row],
					     state.group == 0 && lane % 4 == 0);
		mla_wgmma_q_row_store(p, item, state, i, q_row_values_address(p, item, q_row), factor);
	}
}

template <class S>
SIMT_FUNCTION void
mla_wgmma_state_init(const cuda_attention_params &p, const attention_work_item &item, mla_wgmma_state<S> &state)
{
	state.full_end = work_item_full_end(p, item);
	state.row_max[0] = state.row_max[1] = -infinity();
	state.row_sum[0] = state.row_sum[1] = 0;
	ATTENTION_UNROLL
	for (uint32_t part = 0; part < PARTS; part++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < COLUMNS / 2; i++)
			state.sums[part][i] = 0;
	state.holds_queries = true;
}

/* Does this thread find the next item?  Its group waits for the weights of the item's first tile. */
template <class S>
SIMT_FUNCTION bool
mla_wgmma_is_finder(const mla_wgmma_state<S> &state)
{
	return state.group != state.tile % WGMMA_GROUPS && simt_thread() % (WGMMA_GROUP_WARPS * 32) == 0;
}

/* Attend to the block's items: attend(item, state, begin, end) attends to tokens [begin, end) of one. */
template <class S, class F>
SIMT_FUNCTION void
mla_wgmma_consume(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, F attend)
{
	mla_wgmma_state<S> state;

	state.group = mla_wgmma_group();
	state.tile = 0;
	ATTENTION_ROLL
	for (uint32_t number = 0; mla_wgmma_item_wait(shared, number); number++) {
		const attention_work_item &item = shared.items[number % 2];

		wgmma_consumers::sync(); /* all have ended the item before */
		simt_barrier_wait(&shared.queries_full, number % 2);
		simt_proxy_fence();
		/* The producers too have ended the item before: they have copied the queries. */
		if (mla_wgmma_is_finder(state))
			mla_wgmma_item_find(p, shared, number + 1);
		mla_wgmma_state_init(p, item, state);
		ATTENTION_ROLL
		for (uint32_t begin = item.begin, end; begin < item.end; begin = end) {
			end = span_begin<wgmma_consumers>(p, shared, item, begin, true);
			attend(item, state, begin, end);
		}
		mla_wgmma_queries_leave(shared, state);
		mla_wgmma_results_store(p, shared, item, state);
	}
}

#endif

#endif
