/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_tile.h - building blocks of the attention kernels on tensor cores
 *
 * Contents: shapes and their shared memory, copying queries, softmax weights,
 * sums of values.  attention_fetch.h copies K and V; the loop over work items is
 * in attention_mma.h.
 *
 * Functions are templates of a tile shape S (attention_shape) or of a kernel's
 * two shapes K (attention_shapes).  Code that depends on the elements of a
 * pool is in static members of K::elements: half_elements of
 * attention_halves.h, or byte_elements of attention_bytes.cu.
 *
 * A warp has 16 q_rows.  Registers have the layout of mma's accumulators:
 * element [n][i] of a thread's array is of q_row lane / 4 + i / 2 * 8 and of
 * column (a token, or a dim for half_elements) n * 8 + lane % 4 * 2 + i % 2.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_H

#include "kernels/cuda/attention/attention_combine.h"

#define ATTENTION_WARPS (CUDA_ATTENTION_THREADS / 32)

struct mma_prefetch; /* attention_fetch.h */

/* Index of chunk c of row r, swizzled so that ldmatrix reads eight rows without bank conflicts. */
template <uint32_t CHUNKS>
SIMT_FUNCTION uint32_t
swizzle(uint32_t r, uint32_t c)
{
	return r * CHUNKS + (c ^ (CHUNKS < 8 ? r / 2 & 3 : r & 7));
}

/* The index of chunk c + n of row r, where `at` is that of chunk c: c is 0 or 1, n an even number. */
template <uint32_t CHUNKS>
SIMT_FUNCTION uint32_t
swizzle_step(uint32_t at, uint32_t n)
{
	constexpr uint32_t MASK = CHUNKS < 8 ? 3 : 7;

	return (at ^ (n & MASK)) + (n & ~MASK);
}

/*
 * Where a tile's tokens are.  `position` counts the tile's columns of products, in the order of the warps.  From a
 * block of eight columns to the next are BLOCK tokens, and from a column to the next are COLUMN.
 */
struct adjacent_tokens {
	static constexpr uint32_t BLOCK = 8, COLUMN = 1;

	/* The token in the tile at a position, which is also its row in shared memory. */
	SIMT_MEMBER uint32_t
	token(uint32_t position)
	{
		return position;
	}
};

/* Rows of CHUNKS chunks, swizzled. */
template <uint32_t CHUNKS> struct swizzled_rows : adjacent_tokens {
	/* The index of a chunk of a row. */
	SIMT_MEMBER uint32_t
	at(uint32_t row, uint32_t chunk)
	{
		return swizzle<CHUNKS>(row, chunk);
	}

	/* The index of chunk c + n, where `at` is that of chunk c: c is 0 or 1, n an even number. */
	SIMT_MEMBER uint32_t
	step(uint32_t at, uint32_t n)
	{
		return swizzle_step<CHUNKS>(at, n);
	}
};

/*
 * The shape of a tile: a kernel's elements and padded dim, and the tile's q_rows and tokens.  In a narrow tile each
 * warp has all q_rows and a part of the tokens; in a wide tile each warp has 16 q_rows and all tokens.
 */
template <class ELEMENTS, uint32_t DIM_, bool NARROW_> struct attention_shape {
	using elements = ELEMENTS;
	static constexpr uint32_t DIM = DIM_;
	static constexpr bool F16 = ELEMENTS::F16, NARROW = NARROW_;
	static constexpr uint32_t CHUNKS = DIM / ELEMENTS::CHUNK, Q_CHUNKS = DIM / 8;
	using layout = swizzled_rows<CHUNKS>;
	static constexpr uint32_t Q_ROWS = NARROW ? CUDA_TILE_Q_ROWS : CUDA_MAX_TILE_Q_ROWS;
	static constexpr uint32_t TOKENS = DIM == 256 && !NARROW ? 32 : 64;
	static constexpr uint32_t STAGES = ELEMENTS::template stages<DIM, NARROW>();
	static constexpr uint32_t LEAST_STAGES = ELEMENTS::template least_stages<DIM, NARROW>(); /* mma_stages() */
	static constexpr uint32_t WARP_TOKENS = NARROW ? TOKENS / ATTENTION_WARPS : TOKENS;
	static constexpr uint32_t BLOCKS = WARP_TOKENS / 8; /* of eight tokens */
	static constexpr uint32_t SCALE_CHUNKS = ELEMENTS::SCALES ? TOKENS / 4 : 0;
	static constexpr uint32_t FACTOR_CHUNKS = ELEMENTS::Q_FACTORS ? Q_ROWS / 4 : 0;
	/* A plane of the tile as halves. */
	static constexpr bool UNPACKS = ELEMENTS::template unpacks<DIM, NARROW>();
	static constexpr uint32_t UNPACKED_CHUNKS = UNPACKS ? TOKENS * Q_CHUNKS : 0;
	static constexpr uint32_t STAGE_CHUNKS = CUDA_N_PLANES * (TOKENS * CHUNKS + SCALE_CHUNKS);
	/* The chunks before those of UNPACKED_CHUNKS. */
	static constexpr uint32_t PACKED_CHUNKS = Q_ROWS * Q_CHUNKS + STAGES * STAGE_CHUNKS + FACTOR_CHUNKS;
	static constexpr uint32_t MEMORY = PACKED_CHUNKS + UNPACKED_CHUNKS;
	static constexpr uint32_t LEAST_MEMORY = MEMORY - (STAGES - LEAST_STAGES) * STAGE_CHUNKS;
};

/* A kernel's shapes, narrow and wide.  Code that does not depend on the tile's shape is a template of this struct. */
template <class ELEMENTS, uint32_t DIM_> struct attention_shapes {
	using elements = ELEMENTS;
	using narrow = attention_shape<ELEMENTS, DIM_, true>;
	using wide = attention_shape<ELEMENTS, DIM_, false>;
	static constexpr uint32_t DIM = DIM_;
	static constexpr uint32_t STAGES = narrow::STAGES > wide::STAGES ? narrow::STAGES : wide::STAGES;
	static constexpr uint32_t CHUNKS = narrow::CHUNKS, Q_CHUNKS = narrow::Q_CHUNKS;
	/* Rows that the block and that a warp copies in a step (mma_rows_copy()). */
	static constexpr uint32_t STEP_ROWS = CUDA_ATTENTION_THREADS / CHUNKS, WARP_ROWS = 32 / CHUNKS;
	static constexpr uint32_t MEMORY = narrow::MEMORY > wide::MEMORY ? narrow::MEMORY : wide::MEMORY;
	static constexpr uint32_t LEAST_MEMORY =
		narrow::LEAST_MEMORY > wide::LEAST_MEMORY ? narrow::LEAST_MEMORY : wide::LEAST_MEMORY;
	/* A warp's q_rows whose sums of values are in attention_results at once. */
	static constexpr uint32_t RESULT_Q_ROWS =
		sizeof(attention_results::values) / sizeof(float) / ATTENTION_WARPS / DIM;
};

/* A block's current item, with what a thread looks up of its q_rows. */
struct attention_mma_block : attention_block {
	attention_q_row q_row[CUDA_MAX_TILE_Q_ROWS];
};

/* The chunks follow (mma_chunks()), as many as the launch has memory for. */
template <class K> struct alignas(128) attention_mma_shared : attention_mma_block {
	attention_work_item next; /* the item after this one, if has_next; known from the item's second tile on */
	bool has_next;
	/* Rows of the tile being fetched, in the order of the threads that computed them (mma_own_row()); 0: zeros. */
	uint64_t row_address[CUDA_ATTENTION_THREADS];
};

/* Bytes of shared memory for all stages, and for as few as there may be. */
template <class K>
constexpr uint32_t mma_shared_size = sizeof(attention_mma_shared<K>) + K::MEMORY * sizeof(simt_vec4);
template <class K>
constexpr uint32_t mma_least_shared_size = sizeof(attention_mma_shared<K>) + K::LEAST_MEMORY * sizeof(simt_vec4);

/*
 * Queries, then [stage][plane][token], then the tokens' scales in the same order, factors of the q_rows, and a plane
 * that was unpacked.
 */
template <class K>
SIMT_FUNCTION simt_vec4 *
mma_chunks(attention_mma_shared<K> &shared)
{
	return reinterpret_cast<simt_vec4 *>(&shared + 1);
}

/* A thread's registers: the online softmax state of its two q_rows, and its part of their sums of values. */
template <class K> struct attention_mma_state {
	float row_max[2];
	float row_sum[2];
	float values[K::DIM / 8][4];
};

SIMT_FUNCTION bool
work_item_is_narrow(const attention_work_item &item)
{
	return item.tile_q_rows == CUDA_TILE_Q_ROWS;
}

template <class K>
SIMT_FUNCTION uint32_t
work_item_tile_tokens(const attention_work_item &item)
{
	return work_item_is_narrow(item) ? K::narrow::TOKENS : K::wide::TOKENS;
}

template <class K>
SIMT_FUNCTION uint32_t
work_item_stages(const attention_work_item &item)
{
	return work_item_is_narrow(item) ? K::narrow::STAGES : K::wide::STAGES;
}

/* The stages that the launch's shared memory has room for; devices differ in what a block may have. */
template <class K>
SIMT_FUNCTION uint32_t
mma_stages(const cuda_attention_params &p, const attention_mma_shared<K> &shared)
{
	if (K::LEAST_MEMORY < K::MEMORY && p.shared_size < mma_shared_size<K>)
		return work_item_is_narrow(shared.item) ? K::narrow::LEAST_STAGES : K::wide::LEAST_STAGES;
	return work_item_stages<K>(shared.item);
}

/* Address of a plane's tile in a stage. */
template <class K>
SIMT_FUNCTION simt_vec4 *
mma_tile_at(attention_mma_shared<K> &shared, uint32_t stage, uint32_t plane)
{
	uint32_t q_rows = work_item_is_narrow(shared.item) ? K::narrow::Q_ROWS : K::wide::Q_ROWS;
	uint32_t queries = q_rows * (K::Q_CHUNKS / K::CHUNKS);

	return mma_chunks(shared) +
	       (queries + (stage * CUDA_N_PLANES + plane) * work_item_tile_tokens<K>(shared.item)) * K::CHUNKS;
}

template <bool F16>
SIMT_FUNCTION void
mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	if (F16)
		simt_mma_f16(d, a, b);
	else
		simt_mma_bf16(d, a, b);
}

/* Rounds two softmax weights to f16 or bf16, for the product with V; attention_mma, _bytes and _mla call this. */
template <bool F16>
SIMT_FUNCTION uint32_t
round_to_halves(float low, float high)
{
	return F16 ? simt_pack_f16(low, high) : simt_pack_bf16(low, high);
}

/* Load eight elements of a q_row of any alignment; elements past its dim are zeros. */
SIMT_FUNCTION simt_vec4
query_chunk(uint64_t from, uint32_t dim, uint32_t chunk)
{
	uint32_t words[4] = { 0, 0, 0, 0 };
	const uint16_t *at = pointer_to<const uint16_t>(from) + chunk * 8;

	if (chunk * 8 >= dim)
		return { 0, 0, 0, 0 };
	if (from % 16 == 0)
		return *reinterpret_cast<const simt_vec4 *>(at);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		words[i / 2] |= (uint32_t)at[i] << i % 2 * 16;
	return { words[0], words[1], words[2], words[3] };
}

/* Start copying the queries of n q_rows as one cp.async group; elements past the dim and q_rows past the tile are 0. */
template <class S>
SIMT_FUNCTION void
q_rows_copy(const cuda_attention_params &p, const attention_work_item &item, simt_vec4 *q, uint32_t n)
{
	ATTENTION_ROLL
	for (uint32_t i = simt_thread(); i < n * S::CHUNKS; i += simt_n_threads()) {
		uint32_t q_row = i / S::CHUNKS, chunk = i % S::CHUNKS;
		simt_vec4 *to = &q[swizzle<S::CHUNKS>(q_row, chunk)];
		uint64_t from = 0;

		if (q_row < item.n_q_rows)
			from = tensor_address(p.q, item.q_start + work_item_query(p, item, q_row),
					      work_item_head(p, item, q_row));
		if (from == 0 || chunk * 8 >= p.q.dim)
			*to = { 0, 0, 0, 0 };
		else if (from % 16 == 0)
			simt_copy_async16(to, pointer_to<const void>(from + chunk * 16), true);
		else
			*to = query_chunk(from, p.q.dim, chunk);
	}
	simt_copy_async_commit();
}

/* Begin an item: the state of its q_rows, to shared memory what a thread looks up of them. */
template <class K>
SIMT_FUNCTION void
mma_state_init(const cuda_attention_params &p, attention_mma_block &shared, const attention_work_item &item,
	       attention_mma_state<K> &state)
{
	if (simt_thread() < (work_item_is_narrow(item) ? K::narrow::Q_ROWS : K::wide::Q_ROWS))
		shared.q_row[simt_thread()] = q_row_make(p, item, simt_thread());
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		state.row_max[i] = -infinity();
		state.row_sum[i] = 0;
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < K::DIM / 8; n++)
		state.values[n][0] = state.values[n][1] = state.values[n][2] = state.values[n][3] = 0;
}

/* The warp's first q_row in a tile, and its first token. */
template <class S>
SIMT_FUNCTION uint32_t
warp_q_row()
{
	return S::NARROW ? 0 : simt_warp() * 16;
}

template <class S>
SIMT_FUNCTION uint32_t
warp_token()
{
	return S::NARROW ? simt_warp() * S::WARP_TOKENS : 0;
}

/* A mask of this thread's elements of a tile that their q_rows see: bit 4 * n + i. */
template <class S, uint32_t Q_ROWS>
SIMT_FUNCTION uint32_t
mma_elements_visible(const cuda_attention_params &p, const attention_work_item &item,
		     const attention_mask_bitmap_of<Q_ROWS> &mask_bitmap, const attention_q_row q_row[2],
		     uint32_t first)
{
	uint32_t visible = 0;

	ATTENTION_ROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			if (q_row_sees(p, item, mask_bitmap, q_row[i / 2],
				       first + n * S::layout::BLOCK + i % 2 * S::layout::COLUMN))
				visible |= 1u << (n * 4 + i);
	return visible;
}

/*
 * Convert products to scores, -inf where the q_row does not see the token.  The
 * code has copies of a score mod for two blocks only: with the 32 copies of a
 * wide tile, the mod would dominate compile time.  The elements rotate through
 * the two blocks, because a variable index would put the array into local
 * memory.
 */
template <class S>
SIMT_FUNCTION void
mma_scores(const cuda_attention_params &p, const attention_work_item &item, const attention_q_row q_row[2],
	   uint32_t first, uint32_t visible, float score[S::BLOCKS][4])
{
	constexpr uint32_t AT_ONCE = attention_mod::has_score && S::BLOCKS > 2 ? 2 : S::BLOCKS;

	ATTENTION_ROLL
	for (uint32_t done = 0; done < S::BLOCKS; done += AT_ONCE) {
		float front[AT_ONCE][4];

		ATTENTION_UNROLL
		for (uint32_t n = 0; n < AT_ONCE; n++)
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 4; i++) {
				front[n][i] = -infinity();
				if (visible >> (n * 4 + i) & 1)
					front[n][i] = q_row_score(p, item, q_row[i / 2],
								  first + (done + n) * S::layout::BLOCK +
									  i % 2 * S::layout::COLUMN,
								  score[n][i]);
			}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n++)
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 4; i++)
				score[n][i] = n + AT_ONCE < S::BLOCKS ? score[n + AT_ONCE][i]
								      : front[n + AT_ONCE - S::BLOCKS][i];
		if constexpr (AT_ONCE < S::BLOCKS)
			visible >>= AT_ONCE * 4;
	}
}

/*
 * Convert scores to softmax weights and update the running maximum and sum of the thread's two q_rows.  rescale[i] is
 * the factor for earlier sums of q_row i.
 */
template <class S>
SIMT_FUNCTION void
scores_to_weights(float row_max[2], float row_sum[2], float weight[S::BLOCKS][4], float rescale[2])
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

/* Convert products of the tile from `begin` on to softmax weights, by scores.  `full`: every q_row sees every token. */
template <class S, class K>
SIMT_FUNCTION void
mma_weights(const cuda_attention_params &p, const attention_mma_block &shared, attention_mma_state<K> &state,
	    uint32_t begin, bool full, float weight[S::BLOCKS][4], float rescale[2])
{
	uint32_t lane = simt_opaque(simt_lane()), first = begin + S::layout::token(warp_token<S>() + lane % 4 * 2);
	const attention_q_row *own = &shared.q_row[warp_q_row<S>() + lane / 4];
	const attention_q_row q_row[2] = { own[0], own[8] };
	uint32_t visible =
		full ? UINT32_MAX : mma_elements_visible<S>(p, shared.item, shared.mask_bitmap, q_row, first);

	mma_scores<S>(p, shared.item, q_row, first, visible, weight);
	scores_to_weights<S>(state.row_max, state.row_sum, weight, rescale);
}

/* A bit for each of n <= 32 positions from `first` on: do its token's values have a NaN or infinity? */
template <class S, class V>
SIMT_FUNCTION uint32_t
non_finite_tokens(const simt_vec4 *values, uint32_t first, uint32_t n)
{
	bool non_finite = false;

	ATTENTION_ROLL
	for (uint32_t c = 0; simt_lane() < n && c < S::CHUNKS; c++)
		non_finite |= V::non_finite(values[S::layout::at(S::layout::token(first + simt_lane()), c)]);
	return simt_ballot(non_finite);
}

/* Get the weights of one token, by its position in the warp's, for the thread's two q_rows. */
template <class S>
SIMT_FUNCTION void
token_weights(const float weight[S::BLOCKS][4], uint32_t token, float mine[2])
{
	uint32_t bits[2] = { 0, 0 };

	/* Selected by OR: a variable index would put the weights into local memory. */
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			bits[i / 2] |= float_as_bits(weight[n][i]) & (n * 8 + i % 2 == (token & ~6u) ? UINT32_MAX : 0);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++)
		mine[i] = bits_as_float(simt_shuffle(bits[i], (int)(simt_lane() / 4 * 4 + token % 8 / 2)));
}

/*
 * Add the values of one token that has a NaN or infinity, for q_rows that give
 * it a nonzero weight.  The tensor cores would multiply it by the zero weights
 * of the other q_rows, which gives NaN.
 */
template <class S, class V, class K>
SIMT_FUNCTION void
non_finite_token_add(attention_mma_state<K> &state, const simt_vec4 *values, uint32_t token,
		     const float weight[S::BLOCKS][4])
{
	const auto *elements = reinterpret_cast<const typename V::element *>(values);
	constexpr uint32_t CHUNK = K::elements::CHUNK;
	float mine[2];

	token_weights<S>(weight, token, mine);
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::DIM / 8; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t chunk = S::layout::at(S::layout::token(warp_token<S>() + token), n * 8 / CHUNK);
			typename V::element value = elements[chunk * CHUNK + K::elements::sum_index(n, i)];

			if (mine[i / 2] != 0)
				state.values[n][i] = simt_fma(mine[i / 2], V::to_f32(value), state.values[n][i]);
		}
}

/* A mask for the halves of tokens t and t + 1: ones for a token that is not in `non_finite`. */
SIMT_FUNCTION uint32_t
pair_mask(uint64_t non_finite, uint32_t t)
{
	return (non_finite >> t & 1 ? 0 : 0xffffu) | (non_finite >> (t + 1) & 1 ? 0 : 0xffff0000u);
}

/* Multiply the sums of values by `rescale`, and add the tile's values times their weights.  V::pv_mma() multiplies. */
template <class S, class V, class K>
SIMT_FUNCTION void
mma_pv(attention_mma_state<K> &state, const simt_vec4 *values, bool full, const float weight[S::BLOCKS][4],
       const float rescale[2])
{
	uint32_t lane = simt_opaque(simt_lane()), first = warp_token<S>();
	uint64_t non_finite = 0;

	if (V::MAY_BE_NON_FINITE && !full) {
		non_finite = non_finite_tokens<S, V>(values, first, S::WARP_TOKENS);
		if (S::WARP_TOKENS > 32)
			non_finite |= (uint64_t)non_finite_tokens<S, V>(values, first + 32, 32) << 32;
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::DIM / 8; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			state.values[n][i] *= rescale[i / 2];
	ATTENTION_UNROLL
	for (uint32_t k = 0; k < S::WARP_TOKENS / 16; k++) {
		const uint32_t a[4] = { round_to_halves<V::F16>(weight[k * 2][0], weight[k * 2][1]),
					round_to_halves<V::F16>(weight[k * 2][2], weight[k * 2][3]),
					round_to_halves<V::F16>(weight[k * 2 + 1][0], weight[k * 2 + 1][1]),
					round_to_halves<V::F16>(weight[k * 2 + 1][2], weight[k * 2 + 1][3]) };

		uint32_t low = UINT32_MAX, high = UINT32_MAX;

		if (non_finite != 0) {
			uint32_t token = k * 16 + lane % 4 * 2;

			low = pair_mask(non_finite, token);
			high = pair_mask(non_finite, token + 8);
		}
		V::template pv_mma<S>(state.values, values, first + k * 16 + lane % 16, a, non_finite != 0, low, high);
	}
	for (; non_finite != 0; non_finite &= non_finite - 1) {
		uint32_t token = 0;

		while (!(non_finite >> token & 1))
			token++;
		non_finite_token_add<S, V>(state, values, token, weight);
	}
}

#endif
