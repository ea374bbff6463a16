/* SPDX-License-Identifier: Apache-2.0 */
/* vec_avx512.h - vec.h for AVX-512 */
#ifndef PAGED_KERNELS_MOD_VEC_AVX512_H
#define PAGED_KERNELS_MOD_VEC_AVX512_H

#include <immintrin.h>

#define LANES 16u

#include "kernels/mod/vec.h"

static inline fvec
vec_sqrt(fvec v)
{
	return (fvec)_mm512_sqrt_ps((__m512)v);
}

static inline uint32_t
vec_bits(ivec v)
{
	return _mm512_movepi32_mask((__m512i)v);
}

#define COMPARE_BITS
#define BITS_INT(name, predicate)                                                             \
	static inline uint32_t bits_int_##name(ivec a, ivec b)                                \
	{                                                                                     \
		return _mm512_cmp_epi32_mask((__m512i)a, (__m512i)b, _MM_CMPINT_##predicate); \
	}
#define BITS_FLOAT(name, predicate)                                         \
	static inline uint32_t bits_float_##name(ivec a, ivec b)            \
	{                                                                   \
		return _mm512_cmp_ps_mask((__m512)a, (__m512)b, predicate); \
	}

BITS_INT(lt, LT)
BITS_INT(le, LE)
BITS_INT(eq, EQ)
BITS_INT(ne, NE)
BITS_FLOAT(lt, _CMP_LT_OQ)
BITS_FLOAT(le, _CMP_LE_OQ)
BITS_FLOAT(eq, _CMP_EQ_OQ)
BITS_FLOAT(ne, _CMP_NEQ_UQ)

#endif
