/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx512bf16.h - primitives for pairs of bf16, and those of AVX-512; included once, before tile_body.h */
#include "kernels/cpu/isa/tile_avx512.h"

/* Primitives of tile_prefill_body.h. */
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

/* convert_to_bf16() in lanes.  The instruction flushes subnormal numbers to zero, so vectors with one do without. */
static inline void
vec_store_bf16(uint8_t *at, vec v)
{
	enum { SUBNORMAL = 0x20 };

	if (__builtin_expect(_mm512_fpclass_ps_mask(v, SUBNORMAL) != 0, false))
		x86_store_bf16(at, v);
	else
		vec_round_bf16(at, v);
}

static inline vec
vec_permute_halves(vec a, vec b, const uint16_t *order)
{
	return _mm512_castsi512_ps(
		_mm512_permutex2var_epi16(_mm512_castps_si512(a), _mm512_load_si512(order), _mm512_castps_si512(b)));
}

/* Without signs, the larger integer is the larger number. */
static inline vec
vec_absmax_halves(vec a, vec b)
{
	const __m512i magnitude = _mm512_set1_epi16(0x7fff);

	return _mm512_castsi512_ps(_mm512_max_epu16(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
						    _mm512_and_si512(_mm512_castps_si512(b), magnitude)));
}

/* Primitives of tile_decode_bf16_body.h. */
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

static inline byte_vec
bytes_load(const void *at)
{
	return _mm512_loadu_si512(at);
}

static inline byte_vec
bytes_permute(byte_vec v, const uint32_t *order)
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

/* Primitives of tile_amx_decode_body.h. */
static inline void
vec_round_bf16_words(vec v, vec *low, vec *high)
{
	__m512i words = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v));

	*low = _mm512_castsi512_ps(words);
	*high = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

static inline void
vec_zip(vec even, vec odd, vec *low, vec *high)
{
	const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);

	*low = _mm512_permutex2var_ps(even, order, odd);
	*high = _mm512_permutex2var_ps(even, _mm512_add_epi32(order, _mm512_set1_epi32(8)), odd);
}

/* Loads four rows into each vector, then transposes 4 x 4 squares within quarters. */
static inline void
vec_load_columns(const float *from, vec to[4])
{
	vec rows[4], low_01, low_23, high_01, high_23;

#pragma GCC unroll 4
	for (unsigned int i = 0; i < 4; i++) {
		__m256 low = _mm256_castps128_ps256(_mm_load_ps(from + i * LANES));
		__m256 high = _mm256_castps128_ps256(_mm_load_ps(from + (i + 8) * LANES));

		low = _mm256_insertf128_ps(low, _mm_load_ps(from + (i + 4) * LANES), 1);
		high = _mm256_insertf128_ps(high, _mm_load_ps(from + (i + 12) * LANES), 1);
		rows[i] = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
	}
	low_01 = _mm512_unpacklo_ps(rows[0], rows[1]);
	low_23 = _mm512_unpacklo_ps(rows[2], rows[3]);
	high_01 = _mm512_unpackhi_ps(rows[0], rows[1]);
	high_23 = _mm512_unpackhi_ps(rows[2], rows[3]);
	to[0] = _mm512_shuffle_ps(low_01, low_23, 0x44);
	to[1] = _mm512_shuffle_ps(low_01, low_23, 0xee);
	to[2] = _mm512_shuffle_ps(high_01, high_23, 0x44);
	to[3] = _mm512_shuffle_ps(high_01, high_23, 0xee);
}
