/* SPDX-License-Identifier: Apache-2.0 */
/**
 * softmax.h - online softmax: running maximum, sum of exp(score - maximum), and the final factor and LSE
 *
 * The maximum is the largest score that is not NaN; it is -inf before the first
 * score.  The sum becomes NaN at the first score that is NaN or +inf, and stays
 * NaN.
 */
#ifndef PAGED_KERNELS_CUDA_SOFTMAX_H
#define PAGED_KERNELS_CUDA_SOFTMAX_H

#include "kernels/cuda/elements.h"

#define SOFTMAX_LOG2_E 1.44269504088896341f
#define SOFTMAX_LN_2 0.693147180559945309f

SIMT_FUNCTION float
softmax_larger(float a, float b)
{
	return b > a ? b : a;
}

/* exp(score - maximum).  While the maximum is -inf, the weight of a score of -inf is 0, not NaN. */
SIMT_FUNCTION float
softmax_weight(float score, float maximum)
{
	return simt_exp2((score - (maximum == -infinity() ? 0.0f : maximum)) * SOFTMAX_LOG2_E);
}

SIMT_FUNCTION float
softmax_lse(float maximum, float sum)
{
	return sum == 0 ? -infinity() : maximum + SOFTMAX_LN_2 * simt_log2(sum);
}

/* A line's final results: the factor for its sums of weighted values, and the LSE and the maximum for the caller. */
struct softmax_end {
	float factor, lse, maximum;
};

/* `sink` is -inf if there is none. */
SIMT_FUNCTION softmax_end
softmax_finish(float maximum, float sum, float sink, bool lse_without_sink)
{
	float top = softmax_larger(maximum, sink), keep = 1, all = sum;
	softmax_end end;

	if (sink != -infinity()) {
		keep = softmax_weight(maximum, top);
		all = sum * keep + softmax_weight(sink, top);
	}
	end.factor = all == 0 ? 0 : keep / all;
	end.lse = lse_without_sink ? softmax_lse(maximum, sum) : softmax_lse(top, all);
	end.maximum = sum != sum ? sum : maximum;
	return end;
}

#endif
