/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores over pools of bytes: e4m3, e5m2 and i8, with
 * queries of f16 or bf16 and dims that are multiples of 16.
 *
 * A block does with its items what attention_items.h says; here is what bytes
 * change.  Tiles lie in shared memory as bytes, and become halves in registers.
 * ldmatrix moves pairs of bytes as if they were halves:
 *
 * - of keys a thread gets four dims of a token where it would have two.  Sums
 *   do not care for the order of dims, so queries lie in the order in which
 *   keys come: of each 16 first the pairs of even number, then the odd ones;
 * - of values, transposed, it gets two dims of two tokens.  Even and odd dims
 *   of 16 are two products, and a thread has four neighbouring sums of them.
 *
 * Products are exact, keys being widened to the queries' dtype.  Values meet
 * weights in f16 (e4m3, e5m2) or, because a token's scale is multiplied into its
 * weight, in bf16 (i8), to which weights are rounded; sums of weights have
 * neither scale nor rounding.
 */
#include "kernels/cuda/attention_items.h"
#include "kernels/cuda/bytes.h"

/* Of a kernel: padded dim and the queries' dtype; of a tile: its lines and tokens. */
template <uint32_t DIM_, bool F16_, bool NARROW_> struct bytes_shape {
	static constexpr uint32_t DIM = DIM_;
	static constexpr bool F16 = F16_, NARROW = NARROW_;
	static constexpr uint32_t CHUNKS = DIM / 16, Q_CHUNKS = DIM / 8;
	static constexpr uint32_t LINES = NARROW ? CUDA_TILE_LINES : CUDA_MAX_TILE_LINES;
	static constexpr uint32_t TOKENS = DIM == 256 && !NARROW ? 32 : 64;
	static constexpr uint32_t STAGES = DIM == 64 ? 4 : 3;
	static constexpr uint32_t WARP_TOKENS = NARROW ? TOKENS / ATTENTION_WARPS : TOKENS;
	static constexpr uint32_t BLOCKS = WARP_TOKENS / 8;
	/* Of 16 bytes: queries, tiles, and the scales of their tokens. */
	static constexpr uint32_t MEMORY =
		LINES * Q_CHUNKS + STAGES * CUDA_N_PLANES * (TOKENS * CHUNKS + TOKENS * 4 / 16);
};

template <uint32_t DIM_, bool F16_> struct bytes_shapes {
	using narrow = bytes_shape<DIM_, F16_, true>;
	using wide = bytes_shape<DIM_, F16_, false>;
	static constexpr uint32_t DIM = DIM_, STAGES = narrow::STAGES;
	static constexpr uint32_t CHUNKS = narrow::CHUNKS, Q_CHUNKS = narrow::Q_CHUNKS;
	static constexpr uint32_t MEMORY = narrow::MEMORY > wide::MEMORY ? narrow::MEMORY : wide::MEMORY;
};

/* Where chunk c of row r of a tile lies, so that a matrix's eight rows lie in eight banks. */
template <class S>
SIMT_FUNCTION uint32_t
bytes_swizzle(uint32_t r, uint32_t c)
{
	return r * S::CHUNKS + (c ^ (S::CHUNKS < 8 ? r / 2 & 3 : r & 7));
}

template <class S>
SIMT_FUNCTION uint32_t
bytes_q_swizzle(uint32_t r, uint32_t c)
{
	return r * S::Q_CHUNKS + (c ^ (r & 7));
}

/* Queries, then [stage][plane] tiles, then [stage][plane] scales. */
template <class K>
SIMT_FUNCTION simt_vec4 *
bytes_tile(attention_mma_shared<K> &shared, uint32_t stage, uint32_t plane)
{
	uint32_t lines = item_narrow(shared.item) ? K::narrow::LINES : K::wide::LINES;

	return shared.chunks + lines * K::Q_CHUNKS +
	       (stage * CUDA_N_PLANES + plane) * item_tokens<K>(shared.item) * K::CHUNKS;
}

template <class K>
SIMT_FUNCTION float *
bytes_scales(attention_mma_shared<K> &shared, uint32_t stage, uint32_t plane)
{
	return reinterpret_cast<float *>(bytes_tile(shared, K::STAGES, CUDA_K)) +
	       (stage * CUDA_N_PLANES + plane) * item_tokens<K>(shared.item);
}

/* A factor of all of an item's tokens; those of i8 have their own. */
SIMT_FUNCTION float
bytes_head_scale(const cuda_attention_params &p, const attention_item &item, uint32_t plane)
{
	uint64_t heads = plane == CUDA_K || p.pages.v_in_k ? p.k_scale : p.v_scale;

	return heads == 0 ? 1 : pointer_to<const float>(heads)[item.kv_head];
}

/* Queries of n lines, zeros past their dim and the tile's lines: two chunks at a time, whose pairs take turns. */
template <uint32_t DIM, bool F16>
SIMT_FUNCTION void
queries_fetch(const cuda_attention_params &p, attention_mma_shared<bytes_shapes<DIM, F16>> &shared, uint32_t n)
{
	using K = bytes_shapes<DIM, F16>;
	const attention_item &item = shared.item;

	ATTENTION_ROLL
	for (uint32_t i = simt_thread(); i < n * K::CHUNKS; i += simt_n_threads()) {
		uint32_t line = i / K::CHUNKS, chunk = i % K::CHUNKS * 2;
		simt_vec4 a = { 0, 0, 0, 0 }, b = a;

		if (line < item.n_lines) {
			uint64_t from =
				tensor_address(p.q, item.q_start + line_query(p, item, line), line_head(p, item, line));

			a = query_chunk(from, p.q.dim, chunk);
			b = query_chunk(from, p.q.dim, chunk + 1);
		}
		shared.chunks[bytes_q_swizzle<K>(line, chunk)] = { a.x, a.z, b.x, b.z };
		shared.chunks[bytes_q_swizzle<K>(line, chunk + 1)] = { a.y, a.w, b.y, b.w };
	}
}

/* Begin to fetch the tokens' scales. */
template <class K>
SIMT_FUNCTION void
bytes_scales_fetch(const cuda_attention_params &p, attention_mma_shared<K> &shared, uint32_t stage)
{
	uint32_t token = simt_thread() / CUDA_N_PLANES, plane = simt_thread() % CUDA_N_PLANES;
	const cuda_plane &from = p.pages.scale[plane];
	uint64_t at = from.address;
	uint32_t page;

	static_assert(K::narrow::TOKENS * CUDA_N_PLANES <= CUDA_ATTENTION_THREADS, "a thread has one of them");
	if (from.address == 0 || token >= item_tokens<K>(shared.item))
		return;
	page = shared.page[token];
	if (page != UINT32_MAX)
		at = plane_address(from, page, shared.item.kv_head, shared.slot[token]);
	simt_copy_async4(bytes_scales(shared, stage, plane) + token, pointer_to<const void>(at), page != UINT32_MAX);
}

/* Begin to fetch a tile into a stage; what is not to be read becomes zeros.  Ends a group in any case. */
template <uint32_t DIM, bool F16>
SIMT_FUNCTION void
tile_fetch(const cuda_attention_params &p, attention_mma_shared<bytes_shapes<DIM, F16>> &shared, uint32_t stage,
	   uint32_t begin, uint32_t end)
{
	using K = bytes_shapes<DIM, F16>;

	if (begin < end && tile_wanted(p, shared, begin, item_tokens<K>(shared.item))) {
		simt_vec4 *to[CUDA_N_PLANES] = { bytes_tile(shared, stage, CUDA_K), bytes_tile(shared, stage, CUDA_V) };

		tokens_locate(p, shared, begin);
		simt_sync();
		bytes_scales_fetch(p, shared, stage);
		for (uint32_t i = simt_thread(); i < item_tokens<K>(shared.item) * K::CHUNKS; i += simt_n_threads()) {
			uint32_t token = i / K::CHUNKS, chunk = i % K::CHUNKS, page = shared.page[token];

			ATTENTION_UNROLL
			for (uint32_t plane = 0; plane < CUDA_N_PLANES; plane++) {
				const cuda_plane &from = p.pages.plane[plane];
				bool valid = page != UINT32_MAX && chunk * 16 < from.dim;
				uint64_t at = from.address;

				if (valid)
					at = plane_address(from, page, shared.item.kv_head, shared.slot[token]) +
					     chunk * 16;
				simt_copy_async16(&to[plane][bytes_swizzle<K>(token, chunk)],
						  pointer_to<const void>(at), valid);
			}
		}
	}
	simt_copy_async_commit();
}

template <class S>
SIMT_FUNCTION void
bytes_widen(uint32_t bytes, uint32_t dtype, uint32_t pairs[2])
{
	if (S::F16)
		bytes_to_f16(bytes, dtype, pairs);
	else
		bytes_to_bf16(bytes, dtype, pairs);
}

/* Products of the warp's lines with its tokens of a tile. */
template <class S>
SIMT_FUNCTION void
bytes_products(const simt_vec4 *q, const simt_vec4 *keys, uint32_t dtype, float product[S::BLOCKS][4])
{
	uint32_t lane = simt_lane(), line = (S::NARROW ? 0 : simt_warp() * 16) + lane % 16;
	uint32_t first = S::NARROW ? simt_warp() * S::WARP_TOKENS : 0;

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		product[n][0] = product[n][1] = product[n][2] = product[n][3] = 0;
	ATTENTION_UNROLL_2
	for (uint32_t k = 0; k < S::CHUNKS; k += 2) {
		uint32_t a[2][4];

		simt_ldmatrix_x4(a[0], &q[bytes_q_swizzle<S>(line, k * 2 + lane / 16)]);
		simt_ldmatrix_x4(a[1], &q[bytes_q_swizzle<S>(line, k * 2 + 2 + lane / 16)]);
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n += 2) {
			uint32_t b[4], pairs[2], token = first + n * 8 + lane / 16 * 8 + lane % 8;

			simt_ldmatrix_x4(b, &keys[bytes_swizzle<S>(token, k + lane / 8 % 2)]);
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 4; i++) {
				bytes_widen<S>(b[i], dtype, pairs);
				mma<S>(product[n + i / 2], a[i % 2], pairs);
			}
		}
	}
}

/* What this thread's first token has; the others' lie after it, as elements do. */
template <class S>
SIMT_FUNCTION const float *
bytes_own_scales(const float *scales)
{
	return scales + (S::NARROW ? simt_warp() * S::WARP_TOKENS : 0) + simt_lane() % 4 * 2;
}

/* Products times their tokens' scales (i8) or the head's. */
template <class S>
SIMT_FUNCTION void
bytes_products_scale(const float *scales, bool i8, float head, float product[S::BLOCKS][4])
{
	const float *from = bytes_own_scales<S>(scales);

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
	for (uint32_t i = 0; i < 4; i++)
		product[n][i] *= i8 ? from[n * 8 + i % 2] : head;
}

/* Weights times their tokens' scales, which may be NaN under a weight of 0. */
template <class S>
SIMT_FUNCTION void
bytes_weights_scale(const float *scales, float weight[S::BLOCKS][4])
{
	const float *from = bytes_own_scales<S>(scales);

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		ATTENTION_UNROLL
	for (uint32_t i = 0; i < 4; i++)
		weight[n][i] = weight[n][i] == 0 ? 0 : weight[n][i] * from[n * 8 + i % 2];
}

/* A bit for each of 32 tokens from `first` on, of which there are n, whose values have a NaN or infinity. */
template <class S>
SIMT_FUNCTION uint32_t
bytes_wild_tokens(const simt_vec4 *values, uint32_t dtype, uint32_t first, uint32_t n)
{
	uint32_t wild = 0;

	ATTENTION_ROLL
	for (uint32_t c = 0; simt_lane() < n && c < S::CHUNKS; c++) {
		simt_vec4 v = values[bytes_swizzle<S>(first + simt_lane(), c)];

		wild |= bytes_wild(v.x, dtype) | bytes_wild(v.y, dtype) | bytes_wild(v.z, dtype) |
			bytes_wild(v.w, dtype);
	}
	return simt_ballot(wild != 0);
}

/* As wild_token_add(): one token whose values are wild, for the lines that give it weight. */
template <class S, class K>
SIMT_FUNCTION void
bytes_wild_add(attention_mma_state<K> &state, const simt_vec4 *values, uint32_t dtype, uint32_t first, uint32_t token,
	       const float weight[S::BLOCKS][4])
{
	const uint8_t *row = reinterpret_cast<const uint8_t *>(values);
	float mine[2];

	token_weights<S>(weight, token, mine);
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::DIM / 8; n++)
		ATTENTION_UNROLL
	for (uint32_t i = 0; i < 4; i++) {
		uint8_t byte =
			row[bytes_swizzle<S>(first + token, n / 2) * 16 + simt_lane() % 4 * 4 + i % 2 * 2 + n % 2];

		if (mine[i / 2] != 0)
			state.values[n][i] = simt_fma(mine[i / 2], byte_widen(byte, dtype), state.values[n][i]);
	}
}

/* Sixteen tokens' weights with their values, which are f16 or bf16 both; `low` and `high` keep tokens' pairs. */
template <class S, class K, bool I8>
SIMT_FUNCTION void
bytes_values_product(attention_mma_state<K> &state, const simt_vec4 *values, uint32_t dtype, uint32_t token,
		     const uint32_t a[4], uint32_t low, uint32_t high)
{
	ATTENTION_UNROLL
	for (uint32_t c = 0; c < S::CHUNKS; c += 2) {
		uint32_t b[4], pairs[4][2];

		simt_ldmatrix_x4_trans(b, &values[bytes_swizzle<S>(token, c + simt_lane() / 16)]);
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			/* Dims of both tokens side by side: bytes 0 and 2, bytes 1 and 3. */
			b[i] = simt_permute(b[i] & (i % 2 == 0 ? low : high), 0, 0x3120);
			if (I8)
				bytes_to_bf16(b[i], CUDA_I8, pairs[i]);
			else
				bytes_to_f16(b[i], dtype == CUDA_E4M3 ? CUDA_E4M3 : CUDA_E5M2, pairs[i]);
		}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < 4; n++) {
			const uint32_t pair[2] = { pairs[n / 2 * 2][n % 2], pairs[n / 2 * 2 + 1][n % 2] };

			if (I8)
				simt_mma_bf16(state.values[c * 2 + n], a, pair);
			else
				simt_mma_f16(state.values[c * 2 + n], a, pair);
		}
	}
}

template <class S, class K, bool I8>
SIMT_FUNCTION void
bytes_values_add(attention_mma_state<K> &state, const simt_vec4 *values, uint32_t dtype, bool whole,
		 const float weight[S::BLOCKS][4], const float rescale[2])
{
	uint32_t lane = simt_lane(), first = S::NARROW ? simt_warp() * S::WARP_TOKENS : 0;
	uint64_t wild = 0;

	if (!I8 && !whole) {
		wild = bytes_wild_tokens<S>(values, dtype, first, S::WARP_TOKENS);
		if (S::WARP_TOKENS > 32)
			wild |= (uint64_t)bytes_wild_tokens<S>(values, dtype, first + 32, 32) << 32;
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::DIM / 8; n++)
		ATTENTION_UNROLL
	for (uint32_t i = 0; i < 4; i++)
		state.values[n][i] *= rescale[i / 2];
	ATTENTION_UNROLL
	for (uint32_t k = 0; k < S::WARP_TOKENS / 16; k++) {
		uint32_t a[4];

		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			const float *from = &weight[k * 2 + i / 2][i % 2 * 2];

			a[i] = I8 ? simt_pack_bf16(from[0], from[1]) : simt_pack_f16(from[0], from[1]);
		}
		bytes_values_product<S, K, I8>(state, values, dtype, first + k * 16 + lane % 16, a,
					       pair_mask(wild, k * 16 + lane % 4 * 2),
					       pair_mask(wild, k * 16 + 8 + lane % 4 * 2));
	}
	for (; wild != 0; wild &= wild - 1) {
		uint32_t token = 0;

		while (!(wild >> token & 1))
			token++;
		bytes_wild_add<S>(state, values, dtype, first, token, weight);
	}
}

template <class S, uint32_t DIM, bool F16>
SIMT_FUNCTION void
tile_attend(const cuda_attention_params &p, attention_mma_shared<bytes_shapes<DIM, F16>> &shared,
	    attention_mma_state<bytes_shapes<DIM, F16>> &state, uint32_t stage, uint32_t begin)
{
	using K = bytes_shapes<DIM, F16>;
	const simt_vec4 *values = bytes_tile(shared, stage, CUDA_V);
	uint32_t dtype = p.pages.plane[CUDA_K].dtype;
	bool i8 = dtype == CUDA_I8, whole = tile_whole(p, shared.item, begin + S::TOKENS);
	float weight[S::BLOCKS][4], rescale[2];

	bytes_products<S>(shared.chunks, bytes_tile(shared, stage, CUDA_K), dtype, weight);
	bytes_products_scale<S>(bytes_scales(shared, stage, CUDA_K), i8, bytes_head_scale(p, shared.item, CUDA_K),
				weight);
	weights_make<S>(p, shared, state, begin + (S::NARROW ? simt_warp() * S::WARP_TOKENS : 0), whole, weight,
			rescale);
	if (i8) {
		bytes_weights_scale<S>(bytes_scales(shared, stage, CUDA_V), weight);
		bytes_values_add<S, K, true>(state, values, dtype, whole, weight, rescale);
	} else {
		bytes_values_add<S, K, false>(state, values, dtype, whole, weight, rescale);
	}
}

/* Of 16 dims a thread has four neighbours, in the order of two products. */
template <uint32_t DIM, bool F16>
SIMT_FUNCTION uint32_t
sums_dim(const attention_mma_state<bytes_shapes<DIM, F16>> &, uint32_t n, uint32_t i)
{
	return n / 2 * 16 + simt_lane() % 4 * 4 + i % 2 * 2 + n % 2;
}

template <uint32_t DIM, bool F16>
SIMT_FUNCTION float
sums_factor(const cuda_attention_params &p, const attention_mma_shared<bytes_shapes<DIM, F16>> &shared)
{
	return p.pages.plane[CUDA_V].dtype == CUDA_I8 ? 1 : bytes_head_scale(p, shared.item, CUDA_V);
}

static_assert(sizeof(attention_mma_shared<bytes_shapes<64, true>>) <= CUDA_BYTES_SHARED_64, "as launchers are told");
static_assert(sizeof(attention_mma_shared<bytes_shapes<128, true>>) <= CUDA_BYTES_SHARED_128, "as launchers are told");
static_assert(sizeof(attention_mma_shared<bytes_shapes<256, true>>) <= CUDA_BYTES_SHARED_256, "as launchers are told");

#if ATTENTION_HAS(attention_bytes_f16_64)
ATTENTION_KERNEL(ATTENTION_NAME(attention_bytes_f16_64), 2)
{
	attend<bytes_shapes<64, true>>(p);
}
#endif

#if ATTENTION_HAS(attention_bytes_f16_128)
ATTENTION_KERNEL(ATTENTION_NAME(attention_bytes_f16_128), 2)
{
	attend<bytes_shapes<128, true>>(p);
}
#endif

#if ATTENTION_HAS(attention_bytes_f16_256)
ATTENTION_KERNEL(ATTENTION_NAME(attention_bytes_f16_256), 1)
{
	attend<bytes_shapes<256, true>>(p);
}
#endif

#if ATTENTION_HAS(attention_bytes_bf16_64)
ATTENTION_KERNEL(ATTENTION_NAME(attention_bytes_bf16_64), 2)
{
	attend<bytes_shapes<64, false>>(p);
}
#endif

#if ATTENTION_HAS(attention_bytes_bf16_128)
ATTENTION_KERNEL(ATTENTION_NAME(attention_bytes_bf16_128), 2)
{
	attend<bytes_shapes<128, false>>(p);
}
#endif

#if ATTENTION_HAS(attention_bytes_bf16_256)
ATTENTION_KERNEL(ATTENTION_NAME(attention_bytes_bf16_256), 1)
{
	attend<bytes_shapes<256, false>>(p);
}
#endif
