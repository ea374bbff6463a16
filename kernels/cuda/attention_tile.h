/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_tile.h - what attention kernels on tensor cores are made of
 *
 * All but the way of a block through its items: shapes and their memory, tiles
 * that come from pages by cp.async into swizzled rows, products, weights, sums
 * of values, and what lines leave in the end.
 *
 * Functions are templates of a shape S with the members of attention_shape,
 * or of a kernel's shapes K as attention_shapes has them.
 * A warp has 16 lines, and a thread of them what mma gives it: element [n][i]
 * of an array is of line lane / 4 + i / 2 * 8 and of column (a token, or a dim)
 * n * 8 + lane % 4 * 2 + i % 2.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_TILE_H
#define PAGED_KERNELS_CUDA_ATTENTION_TILE_H

#include "kernels/cuda/attention.h"

#define ATTENTION_WARPS (CUDA_ATTENTION_THREADS / 32)

/* Of a kernel: padded dim and dtype; of a tile: its lines and tokens. */
template <uint32_t DIM_, bool F16_, bool NARROW_> struct attention_shape {
	static constexpr uint32_t DIM = DIM_;
	static constexpr bool F16 = F16_, NARROW = NARROW_;
	static constexpr uint32_t CHUNKS = DIM / 8;
	static constexpr uint32_t LINES = NARROW ? CUDA_TILE_LINES : CUDA_MAX_TILE_LINES;
	static constexpr uint32_t TOKENS = DIM == 256 && !NARROW ? 32 : 64;
	static constexpr uint32_t STAGES = DIM == 64 ? 4 : 2;
	static constexpr uint32_t WARP_TOKENS = NARROW ? TOKENS / ATTENTION_WARPS : TOKENS;
	static constexpr uint32_t BLOCKS = WARP_TOKENS / 8; /* of eight tokens */
	static constexpr uint32_t MEMORY = (LINES + STAGES * CUDA_N_PLANES * TOKENS) * CHUNKS;
};

/* A kernel has narrow and wide tiles, and one code for all that does not depend on the tile's shape. */
template <uint32_t DIM_, bool F16_> struct attention_shapes {
	using narrow = attention_shape<DIM_, F16_, true>;
	using wide = attention_shape<DIM_, F16_, false>;
	static constexpr uint32_t DIM = DIM_, CHUNKS = narrow::CHUNKS, STAGES = narrow::STAGES;
	static constexpr uint32_t MEMORY = narrow::MEMORY > wide::MEMORY ? narrow::MEMORY : wide::MEMORY;
};

template <class K> struct attention_mma_shared : attention_block {
	uint32_t page[K::narrow::TOKENS]; /* of the tile that is being fetched; UINT32_MAX: not to be read */
	uint32_t slot[K::narrow::TOKENS];
	float maximum[ATTENTION_WARPS][CUDA_TILE_LINES];
	float sum[ATTENTION_WARPS][CUDA_TILE_LINES];
	union {
		alignas(128) simt_vec4 chunks[K::MEMORY]; /* of the tile's queries, then [stage][plane][token] */
		float values[ATTENTION_WARPS][CUDA_TILE_LINES][K::DIM + 4]; /* in the end, of each warp's lines */
	};
};

/* What a thread holds: of its two lines the running softmax, and its part of their sums. */
template <class K> struct attention_mma_state {
	attention_line line[2];
	float maximum[2];
	float sum[2];
	float values[K::DIM / 8][4];
};

SIMT_FUNCTION bool
item_narrow(const attention_item &item)
{
	return item.tile_lines == CUDA_TILE_LINES;
}

template <class K>
SIMT_FUNCTION uint32_t
item_tokens(const attention_item &item)
{
	return item_narrow(item) ? K::narrow::TOKENS : K::wide::TOKENS;
}

/* The tile of a plane in a stage. */
template <class K>
SIMT_FUNCTION simt_vec4 *
tile_at(attention_mma_shared<K> &shared, uint32_t stage, uint32_t plane)
{
	uint32_t lines = item_narrow(shared.item) ? K::narrow::LINES : K::wide::LINES;

	return shared.chunks + (lines + (stage * CUDA_N_PLANES + plane) * item_tokens<K>(shared.item)) * K::CHUNKS;
}

/* Where chunk c of row r lies. */
template <class S>
SIMT_FUNCTION uint32_t
swizzle(uint32_t r, uint32_t c)
{
	return r * S::CHUNKS + (c ^ (r & 7));
}

template <class S>
SIMT_FUNCTION void
mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	if (S::F16)
		simt_mma_f16(d, a, b);
	else
		simt_mma_bf16(d, a, b);
}

template <class S>
SIMT_FUNCTION uint32_t
pack(float low, float high)
{
	return S::F16 ? simt_pack_f16(low, high) : simt_pack_bf16(low, high);
}

/* Eight elements of a query row, whose bytes may lie anywhere, zeros past its dim. */
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

/* Begin to fetch n lines' queries, zeros past their dim and the tile's lines, as a group of copies of its own. */
template <class S>
SIMT_FUNCTION void
queries_copy(const cuda_attention_params &p, const attention_item &item, simt_vec4 *q, uint32_t n)
{
	ATTENTION_ROLL
	for (uint32_t i = simt_thread(); i < n * S::CHUNKS; i += simt_n_threads()) {
		uint32_t line = i / S::CHUNKS, chunk = i % S::CHUNKS;
		simt_vec4 *to = &q[swizzle<S>(line, chunk)];
		uint64_t from = 0;

		if (line < item.n_lines)
			from = tensor_address(p.q, item.q_start + line_query(p, item, line), line_head(p, item, line));
		if (from == 0 || chunk * 8 >= p.q.dim)
			*to = { 0, 0, 0, 0 };
		else if (from % 16 == 0)
			simt_copy_async16(to, pointer_to<const void>(from + chunk * 16), true);
		else
			*to = query_chunk(from, p.q.dim, chunk);
	}
	simt_copy_async_commit();
}

template <class K>
SIMT_FUNCTION void
queries_fetch(const cuda_attention_params &p, attention_mma_shared<K> &shared, uint32_t n)
{
	queries_copy<K>(p, shared.item, shared.chunks, n);
}

template <class K>
SIMT_FUNCTION void
state_begin(const cuda_attention_params &p, const attention_item &item, attention_mma_state<K> &state)
{
	uint32_t first = item_narrow(item) ? 0 : simt_warp() * 16;

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		state.line[i] = line_make(p, item, first + simt_lane() / 4 + i * 8);
		state.maximum[i] = -infinity();
		state.sum[i] = 0;
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < K::DIM / 8; n++)
		state.values[n][0] = state.values[n][1] = state.values[n][2] = state.values[n][3] = 0;
}

template <class K>
SIMT_FUNCTION void
tokens_locate(const cuda_attention_params &p, attention_mma_shared<K> &shared, uint32_t begin)
{
	const attention_item &item = shared.item;
	uint32_t token = begin + simt_thread(), page = UINT32_MAX;

	if (simt_thread() >= item_tokens<K>(item))
		return;
	if (token_wanted(p, shared, token, item.end))
		page = plan_page(p.plan, item.row, token / p.pages.page_size, p.pages.n_pages);
	shared.page[simt_thread()] = page;
	shared.slot[simt_thread()] = token % p.pages.page_size;
}

/* Begin to fetch a tile into a stage; what is not to be read becomes zeros.  Ends a group in any case. */
template <class K>
SIMT_FUNCTION void
tile_fetch(const cuda_attention_params &p, attention_mma_shared<K> &shared, uint32_t stage, uint32_t begin,
	   uint32_t end)
{
	if (begin < end && tile_wanted(p, shared, begin, item_tokens<K>(shared.item))) {
		simt_vec4 *to[CUDA_N_PLANES] = { tile_at(shared, stage, CUDA_K), tile_at(shared, stage, CUDA_V) };

		tokens_locate(p, shared, begin);
		simt_sync();
		for (uint32_t i = simt_thread(); i < item_tokens<K>(shared.item) * K::CHUNKS; i += simt_n_threads()) {
			uint32_t token = i / K::CHUNKS, chunk = i % K::CHUNKS, page = shared.page[token];

			ATTENTION_UNROLL
			for (uint32_t plane = 0; plane < CUDA_N_PLANES; plane++) {
				const cuda_plane &from = p.pages.plane[plane];
				bool valid = page != UINT32_MAX && chunk * 8 < from.dim;
				uint64_t at = from.address;

				if (valid)
					at = plane_address(from, page, shared.item.kv_head, shared.slot[token]) +
					     chunk * 16;
				simt_copy_async16(&to[plane][swizzle<K>(token, chunk)], pointer_to<const void>(at),
						  valid);
			}
		}
	}
	simt_copy_async_commit();
}

/* Products of the warp's lines with its tokens of a tile. */
template <class S>
SIMT_FUNCTION void
products(const simt_vec4 *q, const simt_vec4 *keys, float product[S::BLOCKS][4])
{
	uint32_t lane = simt_lane(), line = (S::NARROW ? 0 : simt_warp() * 16) + lane % 16;
	uint32_t first = S::NARROW ? simt_warp() * S::WARP_TOKENS : 0;

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		product[n][0] = product[n][1] = product[n][2] = product[n][3] = 0;
	ATTENTION_UNROLL_4
	for (uint32_t k = 0; k < S::DIM / 16; k++) {
		uint32_t a[4];

		simt_ldmatrix_x4(a, &q[swizzle<S>(line, k * 2 + lane / 16)]);
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n += 2) {
			uint32_t b[4], token = first + n * 8 + lane / 16 * 8 + lane % 8;

			simt_ldmatrix_x4(b, &keys[swizzle<S>(token, k * 2 + lane / 8 % 2)]);
			mma<S>(product[n], a, b);
			mma<S>(product[n + 1], a, b + 2);
		}
	}
}

/* Which of this thread's elements of a tile are seen: bit 4 * n + i. */
template <class S, class K>
SIMT_FUNCTION uint32_t
elements_seen(const cuda_attention_params &p, const attention_mma_shared<K> &shared,
	      const attention_mma_state<K> &state, uint32_t first)
{
	uint32_t seen = 0;

	ATTENTION_ROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			if (line_sees(p, shared.item, shared.marks, state.line[i / 2], first + n * 8 + i % 2))
				seen |= 1u << (n * 4 + i);
	return seen;
}

/*
 * Products become scores, -inf where nothing is seen.  A mod is in the code for
 * two blocks, or a wide tile's 32 copies of it would take most of the time to
 * compile; elements then go round, for an index would put them into memory.
 */
template <class S, class K>
SIMT_FUNCTION void
scores_make(const cuda_attention_params &p, const attention_item &item, const attention_mma_state<K> &state,
	    uint32_t first, uint32_t seen, float score[S::BLOCKS][4])
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
				if (seen >> (n * 4 + i) & 1)
					front[n][i] = line_score(p, item, state.line[i / 2],
								 first + (done + n) * 8 + i % 2, score[n][i]);
			}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n++)
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 4; i++)
				score[n][i] = n + AT_ONCE < S::BLOCKS ? score[n + AT_ONCE][i] :
									front[n + AT_ONCE - S::BLOCKS][i];
		if constexpr (AT_ONCE < S::BLOCKS)
			seen >>= AT_ONCE * 4;
	}
}

/* Products become weights; maximum and sum follow.  `whole`: every line sees every token. */
template <class S, class K>
SIMT_FUNCTION void
weights_make(const cuda_attention_params &p, const attention_mma_shared<K> &shared, attention_mma_state<K> &state,
	     uint32_t begin, bool whole, float weight[S::BLOCKS][4], float rescale[2])
{
	uint32_t first = begin + simt_lane() % 4 * 2;
	uint32_t seen = whole ? UINT32_MAX : elements_seen<S>(p, shared, state, first);
	float top[2] = { -infinity(), -infinity() };

	scores_make<S>(p, shared.item, state, first, seen, weight);
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			top[i / 2] = softmax_larger(top[i / 2], weight[n][i]);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		top[i] = softmax_larger(top[i], simt_shuffle_xor(top[i], 1));
		top[i] = softmax_larger(top[i], simt_shuffle_xor(top[i], 2));
		top[i] = softmax_larger(state.maximum[i], top[i]);
		rescale[i] = softmax_weight(state.maximum[i], top[i]);
		state.maximum[i] = top[i];
		state.sum[i] *= rescale[i];
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			weight[n][i] = softmax_weight(weight[n][i], top[i / 2]);
			state.sum[i / 2] += weight[n][i];
		}
}

/* A bit for each of 32 tokens from `first` on, of which there are n, whose values have a NaN or infinity. */
template <class S>
SIMT_FUNCTION uint32_t
wild_tokens(const simt_vec4 *values, uint32_t first, uint32_t n)
{
	const uint32_t exponent = S::F16 ? 0x7c00 : 0x7f80;
	bool wild = false;

	ATTENTION_ROLL
	for (uint32_t c = 0; simt_lane() < n && c < S::CHUNKS; c++) {
		simt_vec4 v = values[swizzle<S>(first + simt_lane(), c)];
		const uint32_t words[4] = { v.x, v.y, v.z, v.w };

		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			wild |= (words[i] & exponent) == exponent || (words[i] >> 16 & exponent) == exponent;
	}
	return simt_ballot(wild);
}

/* The weights of one token, for the thread's two lines. */
template <class S>
SIMT_FUNCTION void
token_weights(const float weight[S::BLOCKS][4], uint32_t token, float mine[2])
{
	uint32_t bits[2] = { 0, 0 };

	/* Or-ed together, for a choice by index would put the weights into memory. */
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			bits[i / 2] |= bits_of(weight[n][i]) & (n * 8 + i % 2 == (token & ~6u) ? UINT32_MAX : 0);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++)
		mine[i] = float_of(simt_shuffle(bits[i], (int)(simt_lane() / 4 * 4 + token % 8 / 2)));
}

/*
 * One token whose values are wild, for the lines that give it weight; tensor
 * cores would multiply it with the other lines' zeros, and make NaN of them.
 */
template <class S, class K>
SIMT_FUNCTION void
wild_token_add(attention_mma_state<K> &state, const simt_vec4 *values, uint32_t first, uint32_t token,
	       const float weight[S::BLOCKS][4])
{
	const uint16_t *row = reinterpret_cast<const uint16_t *>(values);
	float mine[2];

	token_weights<S>(weight, token, mine);
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::DIM / 8; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			uint16_t half = row[swizzle<S>(first + token, n) * 8 + simt_lane() % 4 * 2 + i % 2];

			if (mine[i / 2] != 0)
				state.values[n][i] =
					simt_fma(mine[i / 2], half_widen(half, S::F16 ? CUDA_F16 : CUDA_BF16),
						 state.values[n][i]);
		}
}

/* All ones for a half that is to be kept: the pair of tokens t and t + 1. */
SIMT_FUNCTION uint32_t
pair_mask(uint64_t wild, uint32_t t)
{
	return (wild >> t & 1 ? 0 : 0xffffu) | (wild >> (t + 1) & 1 ? 0 : 0xffff0000u);
}

template <class S, class K>
SIMT_FUNCTION void
values_add(attention_mma_state<K> &state, const simt_vec4 *values, bool whole, const float weight[S::BLOCKS][4],
	   const float rescale[2])
{
	uint32_t lane = simt_lane(), first = S::NARROW ? simt_warp() * S::WARP_TOKENS : 0;
	uint64_t wild = 0;

	if (!whole) {
		wild = wild_tokens<S>(values, first, S::WARP_TOKENS);
		if (S::WARP_TOKENS > 32)
			wild |= (uint64_t)wild_tokens<S>(values, first + 32, 32) << 32;
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::DIM / 8; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			state.values[n][i] *= rescale[i / 2];
	ATTENTION_UNROLL
	for (uint32_t k = 0; k < S::WARP_TOKENS / 16; k++) {
		const uint32_t a[4] = { pack<S>(weight[k * 2][0], weight[k * 2][1]),
					pack<S>(weight[k * 2][2], weight[k * 2][3]),
					pack<S>(weight[k * 2 + 1][0], weight[k * 2 + 1][1]),
					pack<S>(weight[k * 2 + 1][2], weight[k * 2 + 1][3]) };
		uint32_t token = first + k * 16 + lane % 16;
		uint32_t low = pair_mask(wild, k * 16 + lane % 4 * 2),
			 high = pair_mask(wild, k * 16 + 8 + lane % 4 * 2);

		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n += 2) {
			uint32_t b[4];

			simt_ldmatrix_x4_trans(b, &values[swizzle<S>(token, n + lane / 16)]);
			if (wild != 0) {
				b[0] &= low, b[1] &= high;
				b[2] &= low, b[3] &= high;
			}
			mma<S>(state.values[n], a, b);
			mma<S>(state.values[n + 1], a, b + 2);
		}
	}
	for (; wild != 0; wild &= wild - 1) {
		uint32_t token = 0;

		while (!(wild >> token & 1))
			token++;
		wild_token_add<S>(state, values, first, token, weight);
	}
}

/* Two neighbouring elements of a line's result or partial result. */
SIMT_FUNCTION void
pair_store(const cuda_attention_params &p, const attention_item &item, uint32_t line, uint32_t d, float factor, float a,
	   float b)
{
	uint32_t v_dim = p.pages.plane[CUDA_V].dim;

	if (d >= v_dim)
		return;
	if (item.n_splits == 1) {
		element_store(line_out(p, item, line), p.out.dtype, d, a * factor);
		element_store(line_out(p, item, line), p.out.dtype, d + 1, b * factor);
	} else {
		float *to = pointer_to<float>(p.partial_values) + line_partial(p, item, line, item.split) * v_dim + d;

		to[0] = a;
		to[1] = b;
	}
}

#endif
