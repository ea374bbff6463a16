/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores for pools of e4m3, e5m2 and i8, with queries of f16
 * or bf16 and dims that are multiples of 16.
 *
 * The loop over work items is that of attention_mma.h; this file has the code
 * for one-byte elements, in a kernel for each of their dtypes.  Tiles are bytes
 * in shared memory and are converted to halves in registers.  ldmatrix moves
 * pairs of bytes as if they were halves:
 *
 * - For keys a thread gets four dims of a token instead of two.  The order of
 *   dims in a dot product is free, so queries are stored in the order of the
 *   keys: of each 16 dims first the even-numbered pairs, then the odd ones.
 * - For values (transposed) a thread gets two dims of two tokens.  The even and
 *   the odd dims of 16 are two mma products, and a thread gets four adjacent
 *   sums of them.
 *
 * Keys are converted to f16, exactly.  Queries of bf16 are converted to f16 too,
 * each q_row times a power of two, so that its largest magnitude is in
 * [2^14, 2^15); the scores are divided by it.  This is exact for elements of at
 * least 2^-31 of the q_row's largest, and strays by at most 2^-39 of that for
 * others.  NaN and infinity stay what they are.
 *
 * The product of weights and values is in f16 for e4m3 and e5m2, and in bf16
 * for i8, because an i8 token's scale is multiplied into its weight.  Weights
 * are rounded to that type; the softmax sum uses unscaled, unrounded weights.
 *
 * A wide tile of i8 is converted once for the block, each plane before it is
 * multiplied: in the registers of each warp, it would take as many instructions
 * as all else.  Conversions of e4m3 and e5m2 take fewer than to store and load
 * halves.
 *
 * Why not mma of e4m3 and e5m2 themselves: only sm_89 and sm_120 have it.  For
 * sm_90 and sm_100, ptxas converts both operands to f16 before each product.
 */
#include "kernels/cuda/attention/attention_halves.h"
#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/device/bytes.h"

template <class K>
SIMT_FUNCTION float *
bytes_scales(attention_mma_shared<K> &shared, uint32_t stage, uint32_t plane)
{
	return reinterpret_cast<float *>(mma_tile_at(shared, work_item_stages<K>(shared.item), CUDA_K)) +
	       (stage * CUDA_N_PLANES + plane) * work_item_tile_tokens<K>(shared.item);
}

/* Factors of the q_rows' products: they undo the scale of the queries, and have that of the KV head's keys. */
template <class K>
SIMT_FUNCTION float *
bytes_q_factors(attention_mma_shared<K> &shared)
{
	return bytes_scales<K>(shared, K::elements::SCALES ? work_item_stages<K>(shared.item) : 0, CUDA_K);
}

/* Address of the scale of this thread's first token; those of its other tokens follow in the layout of elements. */
template <class S, class K>
SIMT_FUNCTION const float *
bytes_own_scales(attention_mma_shared<K> &shared, uint32_t stage, uint32_t plane)
{
	return bytes_scales(shared, stage, plane) + warp_token<S>() + simt_lane() % 4 * 2;
}

/* The scale of the item's KV head for all tokens; 1 for i8, whose tokens have scales. */
SIMT_FUNCTION float
bytes_head_scale(const cuda_attention_params &p, const attention_work_item &item, uint32_t plane)
{
	uint64_t heads = plane == CUDA_K || p.pages.v_in_k ? p.k_scale : p.v_scale;

	return heads == 0 ? 1 : pointer_to<const float>(heads)[item.kv_head];
}

/* The product of weights and one-byte values: in f16, or in bf16 for i8. */
template <uint32_t DTYPE> struct byte_values {
	using element = uint8_t;
	static constexpr bool I8 = DTYPE == CUDA_I8, F16 = !I8, MAY_BE_NON_FINITE = !I8;

	SIMT_MEMBER bool
	non_finite(simt_vec4 v)
	{
		return (bytes_non_finite(v.x, DTYPE) | bytes_non_finite(v.y, DTYPE) | bytes_non_finite(v.z, DTYPE) |
			bytes_non_finite(v.w, DTYPE)) != 0;
	}

	SIMT_MEMBER float
	to_f32(element e)
	{
		return byte_widen(e, DTYPE);
	}

	/* Two dims of two tokens: pairs[0] is the first dim of both. */
	SIMT_MEMBER void
	values_widen(uint32_t bytes, uint32_t pairs[2])
	{
		if (F16)
			bytes_to_f16<2>(bytes, DTYPE, pairs);
		else
			bytes_i8_to_bf16<2>(bytes, pairs);
	}

	template <class S>
	SIMT_MEMBER void
	pv_mma(float sums[S::DIM / 8][4], const simt_vec4 *values, uint32_t token, const uint32_t a[4], bool non_finite,
	       uint32_t low, uint32_t high)
	{
		uint32_t own = swizzle<S::CHUNKS>(token, simt_opaque(simt_lane()) / 16);

		ATTENTION_UNROLL
		for (uint32_t c = 0; c < S::CHUNKS; c += 2) {
			uint32_t b[4];

			simt_ldmatrix_x4_trans(b, &values[swizzle_step<S::CHUNKS>(own, c)]);
			if (MAY_BE_NON_FINITE && non_finite) {
				b[0] &= low, b[1] &= high;
				b[2] &= low, b[3] &= high;
			}
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 4; i += 2) {
				uint32_t first[2], second[2]; /* tokens 0 to 7 and 8 to 15: of even dims, of odd dims */

				values_widen(b[i], first);
				values_widen(b[i + 1], second);
				ATTENTION_UNROLL
				for (uint32_t odd = 0; odd < 2; odd++) {
					const uint32_t pair[2] = { first[odd], second[odd] };

					mma<F16>(sums[c * 2 + i + odd], a, pair);
				}
			}
		}
	}
};

/* A tile of which each row has been unpacked to halves. */
template <class S> struct unpacked_shape : S {
	static constexpr uint32_t CHUNKS = S::Q_CHUNKS;
	using layout = swizzled_rows<CHUNKS>;
};

/* Values of i8, unpacked. */
struct unpacked_values : half_elements<false> {
	static constexpr bool MAY_BE_NON_FINITE = false;
};

template <class S, class K>
SIMT_FUNCTION simt_vec4 *
bytes_unpacked(attention_mma_shared<K> &shared)
{
	return mma_chunks(shared) + S::PACKED_CHUNKS;
}

/*
 * The i-th chunk of a tile that this thread unpacks.  Eight lanes that load or store together use all banks: with eight
 * chunks a row, they have two rows that differ in bits 0 and 2, and four chunks of each.
 */
template <class S>
SIMT_FUNCTION void
bytes_own_chunk(uint32_t i, uint32_t *row, uint32_t *chunk)
{
	uint32_t thread = simt_opaque(simt_thread()), at = i * (CUDA_ATTENTION_THREADS / S::CHUNKS);

	if (S::CHUNKS == 4) {
		*row = at + thread / 4;
		*chunk = thread % 4;
	} else {
		at = at / 2 + thread / 16;
		*row = (at % 4 + at / 4 * 8) ^ thread / 4 % 2 * 5;
		*chunk = thread % 4 + thread / 8 % 2 * 4;
	}
}

/*
 * Unpack a plane of i8 of a stage: keys to f16, in the order of the queries' dims, and values to bf16, of each 16 dims
 * first the even ones, then the odd ones.  The block calls, after all warps have read what was unpacked before.
 */
template <class S, uint32_t PLANE, class K>
SIMT_FUNCTION void
bytes_unpack(attention_mma_shared<K> &shared, uint32_t stage)
{
	const simt_vec4 *from = mma_tile_at(shared, stage, PLANE);
	simt_vec4 *to = bytes_unpacked<S>(shared);

	static_assert(S::CHUNKS == 4 || S::CHUNKS == 8, "bytes_own_chunk()");
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::TOKENS * S::CHUNKS / CUDA_ATTENTION_THREADS; i++) {
		uint32_t row, chunk, pairs[4][2];

		bytes_own_chunk<S>(i, &row, &chunk);
		const simt_vec4 bytes = from[swizzle<S::CHUNKS>(row, chunk)];
		const uint32_t words[4] = { bytes.x, bytes.y, bytes.z, bytes.w };

		ATTENTION_UNROLL
		for (uint32_t w = 0; w < 4; w++)
			if (PLANE == CUDA_K)
				bytes_to_f16<1>(words[w], CUDA_I8, pairs[w]);
			else
				bytes_i8_to_bf16<2>(words[w], pairs[w]);
		ATTENTION_UNROLL
		for (uint32_t h = 0; h < 2; h++)
			to[swizzle<S::Q_CHUNKS>(row, chunk * 2 + h)] = { pairs[0][h], pairs[1][h], pairs[2][h],
									 pairs[3][h] };
	}
}

/* Exponent fields of f32: of the number 1, and the one that a q_row's largest bf16 gets as f16. */
#define BYTES_EXPONENT_OF_1 127u
#define BYTES_EXPONENT_OF_LARGEST (BYTES_EXPONENT_OF_1 + 14)

/*
 * Convert sixteen bf16 of a q_row to f16, in place.  LANES adjacent lanes have the q_row.  Returns the factor that
 * undoes its scale.  Neither that nor the scale is subnormal, so a q_row below 2^-112 gets less than 2^14.
 */
template <uint32_t LANES>
SIMT_FUNCTION float
bytes_queries_to_f16(uint32_t queries[8])
{
	constexpr uint32_t LEAST = BYTES_EXPONENT_OF_LARGEST - BYTES_EXPONENT_OF_1 + 1;
	uint32_t top = 0, exponent;
	float scale;

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t low = queries[i] << 16 & 0x7fff0000, high = queries[i] & 0x7fff0000;

		top = low > top ? low : top;
		top = high > top ? high : top;
	}
	ATTENTION_UNROLL
	for (uint32_t lanes = 1; lanes < LANES; lanes *= 2) {
		uint32_t other = simt_shuffle_xor(top, (int)lanes);

		top = other > top ? other : top;
	}
	exponent = top >> 23 < LEAST ? LEAST : top >> 23;
	scale = bits_as_float((BYTES_EXPONENT_OF_LARGEST + BYTES_EXPONENT_OF_1 - exponent) << 23);
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		queries[i] = simt_pack_f16(bits_as_float(queries[i] << 16) * scale,
					   bits_as_float(queries[i] & 0xffff0000) * scale);
	return bits_as_float((exponent + BYTES_EXPONENT_OF_1 - BYTES_EXPONENT_OF_LARGEST) << 23);
}

/* The elements of a pool of DTYPE, e4m3, e5m2 or i8, with queries of f16 or bf16. */
template <bool F16_, uint32_t DTYPE> struct byte_elements {
	static constexpr bool F16 = F16_, I8 = DTYPE == CUDA_I8, SCALES = I8, Q_FACTORS = !(F16 && I8);
	static constexpr uint32_t CHUNK = 16;

	/*
	 * The most with which two blocks share a multiprocessor's memory, also that of sm_80; with 64 dims, three.  A
	 * plane that is unpacked has the memory of one stage.
	 */
	template <uint32_t DIM, bool NARROW>
	SIMT_MEMBER constexpr uint32_t
	stages()
	{
		return (DIM == 64 ? 4 : DIM == 256 ? 2 : 3) - (unpacks<DIM, NARROW>() ? 1 : 0);
	}

	/* Every device has room for all. */
	template <uint32_t DIM, bool NARROW>
	SIMT_MEMBER constexpr uint32_t
	least_stages()
	{
		return stages<DIM, NARROW>();
	}

	/* Not with 256 dims: one stage would be left. */
	template <uint32_t DIM, bool NARROW>
	SIMT_MEMBER constexpr bool
	unpacks()
	{
		return I8 && !NARROW && DIM < 256;
	}

	/*
	 * Copy the queries of n q_rows, as f16; elements past the dim, and q_rows past the tile, are zeros.  In each two
	 * chunks, even-numbered pairs go to the first and odd-numbered pairs to the second.
	 */
	template <class K>
	SIMT_MEMBER void
	fetch_q_rows(const cuda_attention_params &p, attention_mma_shared<K> &shared, const attention_work_item &item,
		     uint32_t n)
	{
		ATTENTION_ROLL
		for (uint32_t first = 0; first < n * K::CHUNKS; first += CUDA_ATTENTION_THREADS) {
			uint32_t i = first + simt_opaque(simt_thread()), q_row = i / K::CHUNKS;
			uint32_t chunk = i % K::CHUNKS * 2;
			simt_vec4 a = { 0, 0, 0, 0 }, b = a;

			/* Whole warps: a step has room for more than the queries of a narrow tile of 64 dims. */
			if (K::narrow::Q_ROWS * K::CHUNKS < CUDA_ATTENTION_THREADS && q_row >= n)
				break;
			if (q_row < item.n_q_rows) {
				uint64_t from = tensor_address(p.q, item.q_start + work_item_query(p, item, q_row),
							       work_item_head(p, item, q_row));

				a = query_chunk(from, p.q.dim, chunk);
				b = query_chunk(from, p.q.dim, chunk + 1);
			}
			if (Q_FACTORS) {
				uint32_t queries[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
				float factor = I8 ? 1 : bytes_head_scale(p, item, CUDA_K);

				if (!F16)
					factor *= bytes_queries_to_f16<K::CHUNKS>(queries);
				a = { queries[0], queries[1], queries[2], queries[3] };
				b = { queries[4], queries[5], queries[6], queries[7] };
				if (chunk == 0)
					bytes_q_factors(shared)[q_row] = factor;
			}
			mma_chunks(shared)[swizzle<K::Q_CHUNKS>(q_row, chunk)] = { a.x, a.z, b.x, b.z };
			mma_chunks(shared)[swizzle<K::Q_CHUNKS>(q_row, chunk + 1)] = { a.y, a.w, b.y, b.w };
		}
	}

	/* Start copying the scale of an i8 tile's row; 0 if the row is not valid. */
	template <class K>
	SIMT_MEMBER void
	fetch_scale(const cuda_attention_params &p, attention_mma_shared<K> &shared, const mma_prefetch &prefetch,
		    uint32_t row, bool valid)
	{
		const cuda_plane &from = p.pages.scale[row / work_item_tile_tokens<K>(shared.item)];
		uint64_t at = from.address;

		if (!I8)
			return;
		if (valid)
			at = plane_address(from, prefetch.entry, mma_prefetch_item(shared, prefetch).kv_head,
					   prefetch.slot);
		simt_copy_async4(bytes_scales(shared, prefetch.stage, CUDA_K) + row, pointer_to<const void>(at), valid);
	}

	/* Add the products, times the tokens' scales (i8) and the q_rows' factors. */
	template <class S, class K>
	SIMT_MEMBER void
	add_qk(const cuda_attention_params &, attention_mma_shared<K> &shared, uint32_t stage,
	       float product[S::BLOCKS][4])
	{
		if constexpr (S::UNPACKS) {
			bytes_unpack<S, CUDA_K>(shared, stage);
			simt_sync();
			half_elements<true>::qk_mma<unpacked_shape<S>>(mma_chunks(shared), bytes_unpacked<S>(shared),
								       product);
			simt_sync(); /* all warps have read the keys, whose place add_pv() needs */
		} else {
			packed_qk_mma<S>(shared, stage, product);
		}
		products_scale<S>(shared, stage, product);
	}

	template <class S, class K>
	SIMT_MEMBER void
	packed_qk_mma(attention_mma_shared<K> &shared, uint32_t stage, float product[S::BLOCKS][4])
	{
		uint32_t lane = simt_opaque(simt_lane()), token = warp_token<S>() + lane / 16 * 8 + lane % 8;
		const simt_vec4 *keys = mma_tile_at(shared, stage, CUDA_K);
		uint32_t own_key = swizzle<S::CHUNKS>(token, lane / 8 % 2);
		uint32_t own_query = swizzle<S::Q_CHUNKS>(warp_q_row<S>() + lane % 16, lane / 16);

		ATTENTION_UNROLL_4
		for (uint32_t k = 0; k < S::CHUNKS; k += 2) {
			uint32_t a[2][4];

			simt_ldmatrix_x4(a[0], &mma_chunks(shared)[swizzle_step<S::Q_CHUNKS>(own_query, k * 2)]);
			simt_ldmatrix_x4(a[1], &mma_chunks(shared)[swizzle_step<S::Q_CHUNKS>(own_query, k * 2 + 2)]);
			ATTENTION_UNROLL
			for (uint32_t n = 0; n < S::BLOCKS; n += 2) {
				uint32_t b[4], pairs[2];

				simt_ldmatrix_x4(b, &keys[swizzle_step<S::CHUNKS>(own_key, k) + n * 8 * S::CHUNKS]);
				ATTENTION_UNROLL
				for (uint32_t i = 0; i < 4; i++) {
					bytes_to_f16<1>(b[i], DTYPE, pairs);
					simt_mma_f16(product[n + i / 2], a[i % 2], pairs);
				}
			}
		}
	}

	template <class S, class K>
	SIMT_MEMBER void
	products_scale(attention_mma_shared<K> &shared, uint32_t stage, float product[S::BLOCKS][4])
	{
		const float *scale = bytes_own_scales<S>(shared, stage, CUDA_K);
		const float *own_factor = bytes_q_factors(shared) + warp_q_row<S>() + simt_opaque(simt_lane()) / 4;
		float factor[2] = { 1, 1 };

		if (Q_FACTORS) {
			factor[0] = own_factor[0];
			factor[1] = own_factor[8];
		}
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n++)
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 4; i++) {
				if (I8)
					product[n][i] *= scale[n * 8 + i % 2];
				if (Q_FACTORS)
					product[n][i] *= factor[i / 2];
			}
	}

	/* Multiply weights by their tokens' scales (i8), but keep a weight of 0: its token's scale may be NaN. */
	template <class S, class K>
	SIMT_MEMBER void
	add_pv(const cuda_attention_params &, attention_mma_shared<K> &shared, attention_mma_state<K> &state,
	       uint32_t stage, bool full, float weight[S::BLOCKS][4], const float rescale[2])
	{
		const float *scale = bytes_own_scales<S>(shared, stage, CUDA_V);

		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n++)
			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 4; i++)
				if (I8)
					weight[n][i] = weight[n][i] == 0 ? 0 : weight[n][i] * scale[n * 8 + i % 2];
		if constexpr (S::UNPACKS) {
			bytes_unpack<S, CUDA_V>(shared, stage);
			simt_sync();
			mma_pv<unpacked_shape<S>, unpacked_values>(state, bytes_unpacked<S>(shared), full, weight,
								   rescale);
		} else {
			mma_pv<S, byte_values<DTYPE>>(state, mma_tile_at(shared, stage, CUDA_V), full, weight,
						      rescale);
		}
	}

	/* A thread has four adjacent dims of 16; element [n][i] is of product n % 2, even or odd dims. */
	SIMT_MEMBER uint32_t
	sum_index(uint32_t n, uint32_t i)
	{
		return simt_lane() % 4 * 4 + i % 2 * 2 + n % 2;
	}

	SIMT_MEMBER float
	sum_factor(const cuda_attention_params &p, const attention_work_item &item)
	{
		return I8 ? 1 : bytes_head_scale(p, item, CUDA_V);
	}
};

static_assert(mma_shared_size<attention_shapes<byte_elements<true, CUDA_I8>, 64>> <= CUDA_BYTES_SHARED_64,
	      "launchers allocate this much");
static_assert(mma_shared_size<attention_shapes<byte_elements<true, CUDA_I8>, 128>> <= CUDA_BYTES_SHARED_128,
	      "launchers allocate this much");
static_assert(mma_shared_size<attention_shapes<byte_elements<true, CUDA_I8>, 256>> <= CUDA_BYTES_SHARED_256,
	      "launchers allocate this much");

ATTENTION_INSTANCE(attention_bytes_e4m3_f16_64, 3, mma_attend<attention_shapes<byte_elements<true, CUDA_E4M3>, 64>>)
ATTENTION_INSTANCE(attention_bytes_e4m3_f16_128, 2, mma_attend<attention_shapes<byte_elements<true, CUDA_E4M3>, 128>>)
ATTENTION_INSTANCE(attention_bytes_e4m3_f16_256, 2, mma_attend<attention_shapes<byte_elements<true, CUDA_E4M3>, 256>>)
ATTENTION_INSTANCE(attention_bytes_e5m2_f16_64, 3, mma_attend<attention_shapes<byte_elements<true, CUDA_E5M2>, 64>>)
ATTENTION_INSTANCE(attention_bytes_e5m2_f16_128, 2, mma_attend<attention_shapes<byte_elements<true, CUDA_E5M2>, 128>>)
ATTENTION_INSTANCE(attention_bytes_e5m2_f16_256, 2, mma_attend<attention_shapes<byte_elements<true, CUDA_E5M2>, 256>>)
ATTENTION_INSTANCE(attention_bytes_i8_f16_64, 3, mma_attend<attention_shapes<byte_elements<true, CUDA_I8>, 64>>)
ATTENTION_INSTANCE(attention_bytes_i8_f16_128, 2, mma_attend<attention_shapes<byte_elements<true, CUDA_I8>, 128>>)
ATTENTION_INSTANCE(attention_bytes_i8_f16_256, 2, mma_attend<attention_shapes<byte_elements<true, CUDA_I8>, 256>>)
ATTENTION_INSTANCE(attention_bytes_e4m3_bf16_64, 3, mma_attend<attention_shapes<byte_elements<false, CUDA_E4M3>, 64>>)
ATTENTION_INSTANCE(attention_bytes_e4m3_bf16_128, 2, mma_attend<attention_shapes<byte_elements<false, CUDA_E4M3>, 128>>)
ATTENTION_INSTANCE(attention_bytes_e4m3_bf16_256, 2, mma_attend<attention_shapes<byte_elements<false, CUDA_E4M3>, 256>>)
ATTENTION_INSTANCE(attention_bytes_e5m2_bf16_64, 3, mma_attend<attention_shapes<byte_elements<false, CUDA_E5M2>, 64>>)
ATTENTION_INSTANCE(attention_bytes_e5m2_bf16_128, 2, mma_attend<attention_shapes<byte_elements<false, CUDA_E5M2>, 128>>)
ATTENTION_INSTANCE(attention_bytes_e5m2_bf16_256, 2, mma_attend<attention_shapes<byte_elements<false, CUDA_E5M2>, 256>>)
ATTENTION_INSTANCE(attention_bytes_i8_bf16_64, 3, mma_attend<attention_shapes<byte_elements<false, CUDA_I8>, 64>>)
ATTENTION_INSTANCE(attention_bytes_i8_bf16_128, 2, mma_attend<attention_shapes<byte_elements<false, CUDA_I8>, 128>>)
ATTENTION_INSTANCE(attention_bytes_i8_bf16_256, 2, mma_attend<attention_shapes<byte_elements<false, CUDA_I8>, 256>>)
