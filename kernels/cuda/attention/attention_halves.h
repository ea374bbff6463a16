/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_halves.h - elements of f16 and bf16, for the templates of attention_tile.h
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_HALVES_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_HALVES_H

#include "kernels/cuda/attention/attention_tile.h"

/*
 * The elements of an f16 or bf16 pool, with queries of the same dtype.
 *
 * A struct of elements has the members that a kernel's shapes, fetching, scores
 * and results use.  The product with V uses F16 (the weights are f16, else
 * bf16), MAY_BE_NON_FINITE, non_finite(), to_f32() and pv_mma(), which may be in a separate
 * struct.
 */
template <bool F16_> struct half_elements {
	using element = uint16_t;
	static constexpr bool F16 = F16_, MAY_BE_NON_FINITE = true, SCALES = false, Q_FACTORS = false;
	static constexpr uint32_t CHUNK = 8; /* elements in 16 bytes */

	/* The most with which two blocks share a multiprocessor's memory; with 256 dims, one block on sm_80. */
	template <uint32_t DIM, bool NARROW>
	SIMT_MEMBER constexpr uint32_t
	stages()
	{
		return DIM == 64 ? 4 : DIM == 128 && NARROW ? 3 : 2;
	}

	/* The most that fit 99 KiB, which a block may have on sm_86, sm_89 and sm_120. */
	template <uint32_t DIM, bool NARROW>
	SIMT_MEMBER constexpr uint32_t
	least_stages()
	{
		return DIM == 64 ? 4 : DIM == 128 ? 2 : 1;
	}

	/* Is each plane of a tile converted to halves before it is multiplied? */
	template <uint32_t, bool>
	SIMT_MEMBER constexpr bool
	unpacks()
	{
		return false;
	}

	template <class K>
	SIMT_MEMBER void
	fetch_q_rows(const cuda_attention_params &p, attention_mma_shared<K> &shared, const attention_work_item &item,
		     uint32_t n)
	{
		q_rows_copy<K>(p, item, mma_chunks(shared), n);
	}

	template <class K>
	SIMT_MEMBER void
	fetch_scale(const cuda_attention_params &, attention_mma_shared<K> &, const mma_prefetch &, uint32_t, bool)
	{
	}

	/* Add the products of the warp's q_rows with its tokens of a tile to `product`. */
	template <class S, class K>
	SIMT_MEMBER void
	add_qk(const cuda_attention_params &, attention_mma_shared<K> &shared, uint32_t stage,
	       float product[S::BLOCKS][4])
	{
		qk_mma<S>(mma_chunks(shared), mma_tile_at(shared, stage, CUDA_K), product);
	}

	template <class S>
	SIMT_MEMBER void
	qk_mma(const simt_vec4 *queries, const simt_vec4 *keys, float product[S::BLOCKS][4])
	{
		uint32_t lane = simt_lane(), q_row = warp_q_row<S>() + lane % 16;

		ATTENTION_UNROLL_4
		for (uint32_t k = 0; k < S::DIM / 16; k++) {
			uint32_t a[4];

			simt_ldmatrix_x4(a, &queries[swizzle<S::CHUNKS>(q_row, k * 2 + lane / 16)]);
			ATTENTION_UNROLL
			for (uint32_t n = 0; n < S::BLOCKS; n += 2) {
				uint32_t b[4], token = warp_token<S>() + n * 8 + lane / 16 * 8 + lane % 8;

				simt_ldmatrix_x4(b, &keys[swizzle<S::CHUNKS>(token, k * 2 + lane / 8 % 2)]);
				mma<F16>(product[n], a, b);
				mma<F16>(product[n + 1], a, b + 2);
			}
		}
	}

	template <class S, class K>
	SIMT_MEMBER void
	add_pv(const cuda_attention_params &, attention_mma_shared<K> &shared, attention_mma_state<K> &state,
	       uint32_t stage, bool full, float weight[S::BLOCKS][4], const float rescale[2])
	{
		mma_pv<S, half_elements>(state, mma_tile_at(shared, stage, CUDA_V), full, weight, rescale);
	}

	SIMT_MEMBER bool
	non_finite(simt_vec4 v)
	{
		const uint32_t words[4] = { v.x, v.y, v.z, v.w }, exponent = F16 ? 0x7c00 : 0x7f80;
		bool any = false;

		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			any |= (words[i] & exponent) == exponent || (words[i] >> 16 & exponent) == exponent;
		return any;
	}

	SIMT_MEMBER float
	to_f32(element e)
	{
		return half_widen(e, F16 ? CUDA_F16 : CUDA_BF16);
	}

	/*
	 * Add sixteen tokens' weights times their values.  If some are `non_finite`,
	 * masks `low` and `high` zero these.
	 */
	template <class S>
	SIMT_MEMBER void
	pv_mma(float sums[S::DIM / 8][4], const simt_vec4 *values, uint32_t position, const uint32_t a[4],
	       bool non_finite, uint32_t low, uint32_t high)
	{
		uint32_t own = S::layout::at(S::layout::token(position), simt_lane() / 16);

		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n += 2) {
			uint32_t b[4];

			simt_ldmatrix_x4_trans(b, &values[S::layout::step(own, n)]);
			if (non_finite) {
				b[0] &= low, b[1] &= high;
				b[2] &= low, b[3] &= high;
			}
			mma<F16>(sums[n], a, b);
			mma<F16>(sums[n + 1], a, b + 2);
		}
	}

	/* Index in chunk n * 8 / CHUNK of element [n][i] of a thread's sums of values. */
	SIMT_MEMBER uint32_t
	sum_index(uint32_t, uint32_t i)
	{
		return simt_lane() % 4 * 2 + i % 2;
	}

	/* The factor for the final sums of values. */
	SIMT_MEMBER float
	sum_factor(const cuda_attention_params &, const attention_work_item &)
	{
		return 1;
	}
};

#endif
