/* SPDX-License-Identifier: Apache-2.0 */
/* vec_avx2.h - vec.h for AVX2 */
#ifndef PAGED_KERNELS_MOD_VEC_AVX2_H
#define PAGED_KERNELS_MOD_VEC_AVX2_H

#include <immintrin.h>

#define LANES 8u

#include "kernels/mod/vec.h"

static inline fvec
vec_sqrt(fvec v)
{
	return (fvec)_mm256_sqrt_ps((__m256)v);
}

static inline uint32_t
vec_bits(ivec v)
{
	return (uint32_t)_mm256_movemask_ps((__m256)v);
}

#endif
