/* SPDX-License-Identifier: Apache-2.0 */
/**
 * softmax.h - running softmaxes: maximum, sum of exp(score - maximum), and what is made of them
 *
 * A maximum is the largest score that is no NaN, -inf before any; a sum is NaN
 * once a score was NaN or +inf, and stays it.
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

/* exp(score - maximum); nothing weighs anything, not NaN, while the maximum is -inf. */
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

/* What a line's sums of weighted values are multiplied by, its LSE and its maximum as the caller sees them. */
struct softmax_end {
	float factor, lse, maximum;
};

/* `sink` is -inf for none. */
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
