/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_prefill_math.h - products, softmax weights and sums of values of attention_prefill
 *
 * A warp has 32 q_rows, as two M tiles of 16, and all tokens of a tile.
 * Registers have the layout of mma's accumulators (attention_tile.h), with the
 * M tile as the first index.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_PREFILL_ATTENTION_PREFILL_MATH_H
#define PAGED_KERNELS_CUDA_ATTENTION_PREFILL_ATTENTION_PREFILL_MATH_H

#include "kernels/cuda/attention/prefill/attention_prefill_tile.h"

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
			simt_ldmatrix_x4(a[m], &shared.queries[m * 16 * S::CHUNKS + swizzle_step<S::CHUNKS>(query, k * 2)]);
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n += 2) {
			uint32_t b[4];

			simt_ldmatrix_x4(b, &shared.tile[CUDA_K][n * 8 * S::CHUNKS + swizzle_step<S::CHUNKS>(key, k * 2)]);
			ATTENTION_UNROLL
			for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
				mma<S::F16>(product[m][n], a[m], b);
				mma<S::F16>(product[m][n + 1], a[m], b + 2);
			}
		}
	}
}

/* Sums of values */

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

			simt_ldmatrix_x4_trans(b, &shared.tile[CUDA_V][k * 16 * S::CHUNKS + swizzle_step<S::CHUNKS>(value, n)]);
			ATTENTION_UNROLL
			for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
				mma<S::F16>(state.values[m][n], a[m][k], b);
				mma<S::F16>(state.values[m][n + 1], a[m][k], b + 2);
			}
		}
}

#endif
