/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx512bf16.h - words for pairs of bf16, beside those of AVX-512; included once, before tile_body.h */
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
	return _mm512_castsi512_ps(
		_mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16), _mm512_castps_si512(high)));
}

static inline void
vec_round_bf16(uint8_t *at, vec v)
{
	_mm256_storeu_si256((__m256i *)(void *)at, (__m256i)_mm512_cvtneps_pbh(v));
}

/* Words of tile_dots.h. */
typedef __m512i byte_vec;

static inline vec
vec_round_pairs(vec low, vec high)
{
	return (vec)_mm512_cvtne2ps_pbh(high, low);
}

static inline vec
vec_load_half(const void *at)
{
	return _mm512_castsi512_ps(_mm512_zextsi256_si512(_mm256_loadu_si256(at)));
}

static inline void
vec_store_half(void *at, vec v)
{
	_mm256_storeu_si256(at, _mm512_castsi512_si256(_mm512_castps_si512(v)));
}

static inline vec
vec_half(vec v)
{
	__m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(v), 16));

	return _mm512_castsi512_ps(_mm512_zextsi256_si512(half));
}

static inline vec
vec_choose_halves(vec a, vec b, const uint16_t *order)
{
	return _mm512_castsi512_ps(
		_mm512_permutex2var_epi16(_mm512_castps_si512(a), _mm512_load_si512(order), _mm512_castps_si512(b)));
}

static inline byte_vec
bytes_load(const void *at)
{
	return _mm512_loadu_si512(at);
}

static inline byte_vec
bytes_order(byte_vec v, const uint32_t *order)
{
	return _mm512_permutexvar_epi32(_mm512_load_si512(order), v);
}

static inline byte_vec
bytes_look_up(const byte_vec *table, byte_vec v)
{
	return _mm512_permutex2var_epi8(table[0], v, table[1]);
}

static inline byte_vec
bytes_abs(byte_vec v)
{
	return _mm512_abs_epi8(v);
}

static inline byte_vec
bytes_unless_0(byte_vec v, byte_vec of)
{
	return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(of, of), v);
}

/* 0xf8: a | (b & c) */
static inline byte_vec
bytes_sign(byte_vec v, byte_vec of)
{
	return _mm512_ternarylogic_epi32(v, of, _mm512_set1_epi8((char)0x80), 0xf8);
}

static inline byte_vec
bytes_zip_low(byte_vec a, byte_vec b)
{
	return _mm512_unpacklo_epi8(a, b);
}

static inline byte_vec
bytes_zip_high(byte_vec a, byte_vec b)
{
	return _mm512_unpackhi_epi8(a, b);
}
