/* SPDX-License-Identifier: Apache-2.0 */
/**
 * int_math.h - rounded division and minimum
 */
#ifndef PAGED_KERNELS_CPU_INT_MATH_H
#define PAGED_KERNELS_CPU_INT_MATH_H

#include <stdint.h>

static inline uint64_t
div_round_up(uint64_t n, uint64_t by)
{
	return n / by + (n % by != 0);
}

static inline uint64_t
min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

#endif
