/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores for rows with many q_rows, which the planner makes prefill items: for the pools and queries
 * of attention_mma.cu, of dims of at most 128.
 *
 * A block has four warps and a tile of 128 q_rows.  Each warp has 32 q_rows, as two M tiles of 16, and all keys, so
 * that a fragment of K or V that is read from shared memory is multiplied twice.  A tile has 64 tokens.  Keys and
 * values have one buffer each: the values of a tile are copied while its scores are computed, and the keys of the next
 * tile while the values are added.  So a block of dim 128 needs 81 KiB, and two blocks fit a multiprocessor of every
 * architecture.
 *
 * Each warp copies 16 tokens of a tile.  Lane l knows the address of token l % 16 in plane l / 16, and the lanes that
 * copy the token's chunks get it by shuffles.  Entries of the page table are loaded a tile ahead.
 *
 * Items are taken from the last one on, back and forth: causal attention has its longest items last, and so each block
 * has about the same work.
 */
#include "kernels/cuda/attention_tile.h"

#define PREFILL_WARPS (CUDA_PREFILL_THREADS / 32)
#define PREFILL_M_TILES 2u

/* A tile, with the members that the templates of attention_tile.h use. */
template <class ELEMENTS, uint32_t DIM_> struct prefill_shape {
	using elements = ELEMENTS;
	static constexpr uint32_t DIM = DIM_, CHUNKS = DIM / 8, Q_ROWS = CUDA_PREFILL_TILE_Q_ROWS;
	static constexpr bool F16 = ELEMENTS::F16;
	static constexpr uint32_t TOKENS = 64, BLOCKS = TOKENS / 8;
	static constexpr uint32_t WARP_Q_ROWS = Q_ROWS / PREFILL_WARPS, COPIED_TOKENS = TOKENS / PREFILL_WARPS;
	static_assert(PREFILL_WARPS == 4 && WARP_Q_ROWS == PREFILL_M_TILES * 16 && COPIED_TOKENS * CUDA_N_PLANES == 32,
		      "as the lanes assume");
};

template <class S> struct prefill_shared : attention_block_of<CUDA_PREFILL_TILE_Q_ROWS> {
	uint32_t round, n_items; /* of thread 0: see prefill_item_take() */
	uint32_t full_end; /* tokens [kv_first, full_end) are seen by all q_rows, with no mask to evaluate */
	uint64_t value_address[S::TOKENS]; /* of the tile whose keys are being copied; 0: none */
	uint32_t non_finite[PREFILL_WARPS]; /* a bit for each of the tokens that the warp copies */
	union {
		struct {
			alignas(128) simt_vec4 queries[S::Q_ROWS * S::CHUNKS];
			simt_vec4 tile[CUDA_N_PLANES][S::TOKENS * S::CHUNKS];
		};
		/* Results of an M tile of each warp, as pairs of floats, and where they go. */
		struct {
			simt_vec2 values[PREFILL_WARPS][16][S::DIM / 2 + 2];
			uint64_t to[PREFILL_WARPS][16];
		};
	};
};

/* A thread's registers: the softmax state of its q_rows, [M tile][q_row], and its part of their sums of values. */
template <class S> struct prefill_state {
	float row_max[PREFILL_M_TILES][2];
	float row_sum[PREFILL_M_TILES][2];
	float values[PREFILL_M_TILES][S::DIM / 8][4];
};

/*
 * From the index of chunk c of a row, swizzle(row, c), get that of chunk c + step, for steps that add no bit of c.
 * With this, a lane computes one index of a matrix, not one for each step and row.
 */
SIMT_FUNCTION uint32_t
prefill_step(uint32_t index, uint32_t step)
{
	return (index ^ step % 8) + step / 8 * 8;
}

template <class S>
SIMT_FUNCTION uint32_t
prefill_first_q_row(uint32_t m)
{
	return simt_warp() * S::WARP_Q_ROWS + m * 16;
}

template <class S>
SIMT_FUNCTION void
prefill_state_init(prefill_state<S> &state)
{
	ATTENTION_UNROLL
	for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
		state.row_max[m][0] = state.row_max[m][1] = -infinity();
		state.row_sum[m][0] = state.row_sum[m][1] = 0;
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n++)
			state.values[m][n][0] = state.values[m][n][1] = state.values[m][n][2] = state.values[m][n][3] =
				0;
	}
}

/* Copying tiles */

/* The first tile from `begin` on that the block mask does not hide; `end` or more if there is none. */
template <class S>
SIMT_FUNCTION uint32_t
prefill_next_tile(const cuda_attention_params &p, const prefill_shared<S> &shared, uint32_t begin, uint32_t end)
{
	while (begin < end && !tile_visible(p, shared, begin, S::TOKENS))
		begin += S::TOKENS;
	return begin;
}

template <class S>
SIMT_FUNCTION uint32_t
prefill_lane_token(uint32_t begin)
{
	uint32_t thread = simt_opaque(simt_thread());

	return begin + thread / 32 * S::COPIED_TOKENS + thread % S::COPIED_TOKENS;
}

/* The entry of the page table for the lane's token, or anything if nothing sees the token. */
template <class S>
SIMT_FUNCTION uint32_t
prefill_entry_load(const cuda_attention_params &p, const prefill_shared<S> &shared, uint32_t begin)
{
	uint32_t token = prefill_lane_token<S>(begin);

	if (!token_visible(p, shared, token, shared.item.end))
		return UINT32_MAX;
	return plan_entry(p.plan, shared.item.row, token / p.pages.page_size);
}

/* The address of the lane's token in its plane; 0 if nothing sees the token or it has no page. */
template <class S>
SIMT_FUNCTION uint64_t
prefill_token_address(const cuda_attention_params &p, const prefill_shared<S> &shared, uint32_t begin, uint32_t entry)
{
	uint32_t token = prefill_lane_token<S>(begin);

	if (!token_visible(p, shared, token, shared.item.end) ||
	    !plan_page_check(p.plan, shared.item.row, entry, p.pages.n_pages))
		return 0;
	return plane_address(p.pages.plane[simt_lane() / S::COPIED_TOKENS], entry, shared.item.kv_head,
			     token % p.pages.page_size);
}

/* Start copying the warp's tokens of one plane, as one cp.async group; those without an address become zeros. */
template <class S>
SIMT_FUNCTION void
prefill_copy(const cuda_attention_params &p, uint32_t plane, simt_vec4 *to, uint64_t address)
{
	constexpr uint32_t AT_ONCE = 32 / S::CHUNKS;
	uint32_t lane = simt_opaque(simt_lane()), chunk = lane % S::CHUNKS, first = lane / S::CHUNKS;
	uint32_t index = swizzle<S::CHUNKS>(simt_warp() * S::COPIED_TOKENS + first, chunk);
	uint32_t valid = simt_ballot(address != 0) >> (plane * S::COPIED_TOKENS + first);

	if (chunk * 8 >= p.pages.plane[plane].dim)
		valid = 0;
	if (address == 0)
		address = p.pages.plane[plane].address;
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::COPIED_TOKENS; i += AT_ONCE) {
		int from = (int)(plane * S::COPIED_TOKENS + first + i);
		uint64_t at = simt_shuffle((uint32_t)address, from) |
			      (uint64_t)simt_shuffle((uint32_t)(address >> 32), from) << 32;

		simt_copy_async16(&to[i * S::CHUNKS + prefill_step(index, i % 8)],
				  pointer_to<const void>(at + chunk * 16), (valid >> i & 1) != 0);
	}
	simt_copy_async_commit();
}

/* Start copying a tile's keys, and keep the addresses of its values. */
template <class S>
SIMT_FUNCTION void
prefill_copy_keys(const cuda_attention_params &p, prefill_shared<S> &shared, uint32_t begin, uint32_t entry)
{
	uint64_t address = prefill_token_address(p, shared, begin, entry);

	if (simt_lane() >= S::COPIED_TOKENS)
		shared.value_address[prefill_lane_token<S>(0)] = address;
	prefill_copy<S>(p, CUDA_K, shared.tile[CUDA_K], address);
}

template <class S>
SIMT_FUNCTION void
prefill_copy_values(const cuda_attention_params &p, prefill_shared<S> &shared)
{
	uint64_t address = simt_lane() >= S::COPIED_TOKENS ? shared.value_address[prefill_lane_token<S>(0)] : 0;

	prefill_copy<S>(p, CUDA_V, shared.tile[CUDA_V], address);
}

/* Scores and weights */

template <class S>
SIMT_FUNCTION void
prefill_add_qk(const prefill_shared<S> &shared, float product[PREFILL_M_TILES][S::BLOCKS][4])
{
	uint32_t lane = simt_opaque(simt_lane());
	uint32_t query = swizzle<S::CHUNKS>(prefill_first_q_row<S>(0) + lane % 16, lane / 16);
	uint32_t key = swizzle<S::CHUNKS>(lane / 16 * 8 + lane % 8, lane / 8 % 2);

	ATTENTION_UNROLL_4
	for (uint32_t k = 0; k < S::DIM / 16; k++) {
		uint32_t a[PREFILL_M_TILES][4];

		ATTENTION_UNROLL
		for (uint32_t m = 0; m < PREFILL_M_TILES; m++)
			simt_ldmatrix_x4(a[m], &shared.queries[m * 16 * S::CHUNKS + prefill_step(query, k * 2)]);
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n += 2) {
			uint32_t b[4];

			simt_ldmatrix_x4(b, &shared.tile[CUDA_K][n * 8 * S::CHUNKS + prefill_step(key, k * 2)]);
			ATTENTION_UNROLL
			for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
				mma<S::F16>(product[m][n], a[m], b);
				mma<S::F16>(product[m][n + 1], a[m], b + 2);
			}
		}
	}
}

/* The q_rows of a thread in an M tile. */
struct prefill_q_rows {
	attention_q_row at[2];
};

template <class S>
SIMT_FUNCTION prefill_q_rows
prefill_q_rows_make(const cuda_attention_params &p, const attention_work_item &item, uint32_t m)
{
	uint32_t q_row = prefill_first_q_row<S>(m) + simt_lane() / 4;

	return { { q_row_make(p, item, q_row), q_row_make(p, item, q_row + 8) } };
}

/* Does every q_row see all tokens of the tile, with no mask to evaluate? */
template <class S>
SIMT_FUNCTION bool
prefill_tile_is_full(const prefill_shared<S> &shared, uint32_t begin)
{
	return begin >= shared.item.kv_first && begin + S::TOKENS <= shared.full_end;
}

/* Convert the products of an M tile to scores, -inf where the q_row does not see the token (mma_elements_visible()). */
template <class S>
SIMT_FUNCTION void
prefill_scores(const cuda_attention_params &p, const attention_work_item &item, uint32_t m, uint32_t begin,
	       uint32_t visible, float score[S::BLOCKS][4])
{
	if constexpr (attention_mod::has_score) {
		const prefill_q_rows q_rows = prefill_q_rows_make<S>(p, item, m);

		mma_scores<S>(p, item, q_rows.at, begin + simt_lane() % 4 * 2, visible, score);
		return;
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			score[n][i] *= p.scale;
	if (visible == UINT32_MAX)
		return;
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			score[n][i] = visible >> (n * 4 + i) & 1 ? score[n][i] : -infinity();
}

/* Convert the scores of an M tile to softmax weights and update the running maxima and sums; as mma_weights(). */
template <class S>
SIMT_FUNCTION void
prefill_weights(float row_max[2], float row_sum[2], float weight[S::BLOCKS][4], float rescale[2])
{
	float top[2] = { row_max[0], row_max[1] };

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			top[i / 2] = softmax_max(top[i / 2], weight[n][i]);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		top[i] = softmax_max(top[i], simt_shuffle_xor(top[i], 1));
		top[i] = softmax_max(top[i], simt_shuffle_xor(top[i], 2));
		rescale[i] = softmax_weight(row_max[i], top[i]);
		row_max[i] = top[i];
		row_sum[i] *= rescale[i];
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			weight[n][i] = softmax_weight(weight[n][i], top[i / 2]);
			row_sum[i / 2] += weight[n][i];
		}
}

/* Sums of values */

/* Most tiles change no maximum, so that the sums need no factors. */
template <class S>
SIMT_FUNCTION void
prefill_rescale(float sums[S::DIM / 8][4], const float rescale[2])
{
	if (simt_all(rescale[0] == 1 && rescale[1] == 1))
		return;
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::DIM / 8; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			sums[n][i] *= rescale[i / 2];
}

/*
 * Find the tokens of a tile whose values have a NaN or infinity.  The tensor cores would multiply them by the zero
 * weights of q_rows that do not see them, which gives NaN.  The whole block calls.
 */
template <class S>
SIMT_FUNCTION void
prefill_non_finite_find(prefill_shared<S> &shared)
{
	uint32_t bits = non_finite_tokens<S, typename S::elements>(shared.tile[CUDA_V], simt_warp() * S::COPIED_TOKENS,
								   S::COPIED_TOKENS);

	if (simt_lane() == 0)
		shared.non_finite[simt_warp()] = bits;
	simt_sync();
}

template <class S>
SIMT_FUNCTION bool
prefill_is_non_finite(const prefill_shared<S> &shared, uint32_t token)
{
	return (shared.non_finite[token / S::COPIED_TOKENS] >> token % S::COPIED_TOKENS & 1) != 0;
}

template <class S>
SIMT_FUNCTION bool
prefill_any_non_finite(const prefill_shared<S> &shared)
{
	return (shared.non_finite[0] | shared.non_finite[1] | shared.non_finite[2] | shared.non_finite[3]) != 0;
}

/* Add the values of the tokens that prefill_non_finite_find() found to the sums of q_rows with a nonzero weight. */
template <class S>
SIMT_FUNCTION void
prefill_non_finite_add(const prefill_shared<S> &shared, const float weight[S::BLOCKS][4], float sums[S::DIM / 8][4])
{
	const uint16_t *elements = reinterpret_cast<const uint16_t *>(shared.tile[CUDA_V]);

	ATTENTION_ROLL
	for (uint32_t token = 0; token < S::TOKENS; token++) {
		float mine[2];

		if (!prefill_is_non_finite(shared, token))
			continue;
		token_weights<S>(weight, token, mine);
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n++)
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 4; i++) {
				uint32_t at = swizzle<S::CHUNKS>(token, n) * 8 + simt_lane() % 4 * 2 + i % 2;

				if (mine[i / 2] != 0)
					sums[n][i] = simt_fma(mine[i / 2], S::elements::to_f32(elements[at]), sums[n][i]);
			}
	}
}

/* Make the values of these tokens zeros, after all warps have added them.  The whole block calls. */
template <class S>
SIMT_FUNCTION void
prefill_non_finite_zero(prefill_shared<S> &shared)
{
	simt_sync();
	ATTENTION_ROLL
	for (uint32_t i = simt_thread(); i < S::TOKENS * S::CHUNKS; i += simt_n_threads())
		if (prefill_is_non_finite(shared, i / S::CHUNKS))
			shared.tile[CUDA_V][i] = { 0, 0, 0, 0 };
	simt_sync();
}

/* `a`: the rounded weights, as fragments of mma: [M tile][sixteen tokens]. */
template <class S>
SIMT_FUNCTION void
prefill_add_pv(const prefill_shared<S> &shared, prefill_state<S> &state,
	       const uint32_t a[PREFILL_M_TILES][S::TOKENS / 16][4])
{
	uint32_t lane = simt_opaque(simt_lane()), value = swizzle<S::CHUNKS>(lane % 16, lane / 16);

	ATTENTION_UNROLL
	for (uint32_t k = 0; k < S::TOKENS / 16; k++)
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n += 2) {
			uint32_t b[4];

			simt_ldmatrix_x4_trans(b, &shared.tile[CUDA_V][k * 16 * S::CHUNKS + prefill_step(value, n)]);
			ATTENTION_UNROLL
			for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
				mma<S::F16>(state.values[m][n], a[m][k], b);
				mma<S::F16>(state.values[m][n + 1], a[m][k], b + 2);
			}
		}
}

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

static_assert(sizeof(prefill_shared<prefill_shape<half_elements<true>, 64>>) <= CUDA_PREFILL_SHARED_64,
	      "launchers allocate this much");
static_assert(sizeof(prefill_shared<prefill_shape<half_elements<true>, 128>>) <= CUDA_PREFILL_SHARED_128,
	      "launchers allocate this much");

#if ATTENTION_HAS(attention_prefill_f16_64)
ATTENTION_KERNEL_OF(ATTENTION_NAME(attention_prefill_f16_64), CUDA_PREFILL_THREADS, 2)
{
	prefill_attend<prefill_shape<half_elements<true>, 64>>(p);
}
#endif

#if ATTENTION_HAS(attention_prefill_f16_128)
ATTENTION_KERNEL_OF(ATTENTION_NAME(attention_prefill_f16_128), CUDA_PREFILL_THREADS, 2)
{
	prefill_attend<prefill_shape<half_elements<true>, 128>>(p);
}
#endif

#if ATTENTION_HAS(attention_prefill_bf16_64)
ATTENTION_KERNEL_OF(ATTENTION_NAME(attention_prefill_bf16_64), CUDA_PREFILL_THREADS, 2)
{
	prefill_attend<prefill_shape<half_elements<false>, 64>>(p);
}
#endif

#if ATTENTION_HAS(attention_prefill_bf16_128)
ATTENTION_KERNEL_OF(ATTENTION_NAME(attention_prefill_bf16_128), CUDA_PREFILL_THREADS, 2)
{
	prefill_attend<prefill_shape<half_elements<false>, 128>>(p);
}
#endif
