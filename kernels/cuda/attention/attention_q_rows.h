/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_q_rows.h - q_rows in M tiles: their scores, and factors of their sums
 *
 * A warp's q_rows are M tiles of 16, and registers have the layout of mma's
 * accumulators, as in attention_tile.h.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_Q_ROWS_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_Q_ROWS_H

#include "kernels/cuda/attention/attention_halves.h"

/* The q_rows of a thread in an M tile. */
struct q_rows_of_thread {
	attention_q_row at[2];
};

/* `first`: the M tile's first q_row. */
SIMT_FUNCTION q_rows_of_thread
q_rows_make(const cuda_attention_params &p, const attention_work_item &item, uint32_t first)
{
	uint32_t q_row = first + simt_lane() / 4;

	return { { q_row_make(p, item, q_row), q_row_make(p, item, q_row + 8) } };
}

/* Scores without a mod. */
template <class S>
SIMT_FUNCTION void
q_rows_products_scale(const cuda_attention_params &p, uint32_t visible, float score[S::BLOCKS][4])
{
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

/* Convert the products of an M tile to scores, -inf where the q_row does not see the token (mma_elements_visible()). */
template <class S>
SIMT_FUNCTION void
q_rows_scores(const cuda_attention_params &p, const attention_work_item &item, uint32_t first, uint32_t begin,
	      uint32_t visible, float score[S::BLOCKS][4])
{
	if constexpr (attention_mod::has_score) {
		const q_rows_of_thread q_rows = q_rows_make(p, item, first);

		mma_scores<S>(p, item, q_rows.at, begin + simt_lane() % 4 * 2, visible, score);
	} else {
		q_rows_products_scale<S>(p, visible, score);
	}
}

/* Most tiles change no maximum, so that the sums need no factors. */
template <class S>
SIMT_FUNCTION void
q_rows_rescale(float sums[S::DIM / 8][4], const float rescale[2])
{
	if (simt_all(rescale[0] == 1 && rescale[1] == 1))
		return;
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::DIM / 8; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			sums[n][i] *= rescale[i / 2];
}

#endif
