/* SPDX-License-Identifier: Apache-2.0 */
/**
 * softmax.h - online softmax: running maximum, sum of exp(score - maximum), and the final factor and LSE
 *
 * The maximum is the largest score that is not NaN; it is -inf before the first
 * score.  The sum becomes NaN at the first score that is NaN or +inf, and stays
 * NaN.
 */
#ifndef PAGED_KERNELS_CUDA_DEVICE_SOFTMAX_H
#define PAGED_KERNELS_CUDA_DEVICE_SOFTMAX_H

#include "kernels/cuda/device/elements.h"

#define SOFTMAX_LOG2_E 1.44269504088896341f
#define SOFTMAX_LN_2 0.693147180559945309f

SIMT_FUNCTION float
softmax_max(float a, float b)
{
	return simt_max_number(a, b);
}

/* exp(score - maximum).  While the maximum is -inf, the weight of a score of -inf is 0, not NaN. */
SIMT_FUNCTION float
softmax_weight(float score, float row_max)
{
	return simt_exp2((score - (row_max == -infinity() ? 0.0f : row_max)) * SOFTMAX_LOG2_E);
}

SIMT_FUNCTION float
softmax_lse(float row_max, float row_sum)
{
	return row_sum == 0 ? -infinity() : row_max + SOFTMAX_LN_2 * simt_log2(row_sum);
}

/* A q_row's final results: the factor for its sums of weighted values, and the LSE and the maximum for the caller. */
struct softmax_end {
	float factor, lse, row_max;
};

/* `sink` is -inf if there is none. */
SIMT_FUNCTION softmax_end
softmax_finish(float row_max, float row_sum, float sink, bool lse_without_sink)
{
	float top = softmax_max(row_max, sink), keep = 1, all = row_sum;
	softmax_end end;

	if (sink != -infinity()) {
		keep = softmax_weight(row_max, top);
		all = row_sum * keep + softmax_weight(sink, top);
	}
	end.factor = all == 0 ? 0 : keep / all;
	end.lse = lse_without_sink ? softmax_lse(row_max, row_sum) : softmax_lse(top, all);
	end.row_max = row_sum != row_sum ? row_sum : row_max;
	return end;
}

#endif
