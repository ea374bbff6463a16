/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx512bf16.h - tile_packed.h's words for pairs, beside those of AVX-512; included once, before tile_body.h */
#include "kernels/cpu/tile_avx512.h"

/* Words of tile_packed.h. */
#define TILE_PAIRS

static inline vec
vec_dot(vec a, vec b, vec c)
{
	return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

static inline vec
vec_join(vec low, vec high)
{
	return _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16),
						   _mm512_castps_si512(high)));
}

static inline void
vec_round_bf16(uint8_t *at, vec v)
{
	_mm256_storeu_si256((__m256i *)(void *)at, (__m256i)_mm512_cvtneps_pbh(v));
}
