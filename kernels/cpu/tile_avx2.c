/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 with FMA and F16C. */
#include <immintrin.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/tile.h"

#define LANES 8u
/* Sixteen registers: 2 x 4 sums of scores beside 4 keys and a query; 2 x 4 of values beside 4 of V. */
#define LINE_BLOCK 2u
#define VALUE_VECS(lines) 4u
/* 6 x 2 sums, two vectors of a panel and one of a line. */
#define BLOCK_LINES 6u

typedef __m256 vec;

static inline vec
vec_load(const float *at)
{
	return _mm256_loadu_ps(at);
}

static inline void
vec_store(float *at, vec v)
{
	_mm256_storeu_ps(at, v);
}

static inline vec
vec_set1(float x)
{
	return _mm256_set1_ps(x);
}

static inline __m128i
load_halves(const uint8_t *at)
{
	return _mm_loadu_si128((const __m128i *)(const void *)at);
}

static inline void
store_halves(uint8_t *at, __m128i halves)
{
	_mm_storeu_si128((__m128i *)(void *)at, halves);
}

static inline vec
vec_load_f16(const uint8_t *at)
{
	return _mm256_cvtph_ps(load_halves(at));
}

static inline vec
vec_load_bf16(const uint8_t *at)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(at)), 16));
}

static inline __m128i
load_bytes(const uint8_t *at)
{
	return _mm_loadl_epi64((const __m128i *)(const void *)at);
}

/* convert_from_e4m3() in lanes: the sign fills the bits above the exponent, the second of them goes. */
static inline vec
vec_load_e4m3(const uint8_t *at)
{
	__m128i half = _mm_slli_epi16(_mm_cvtepi8_epi16(load_bytes(at)), 7), all = _mm_set1_epi16(0x3f80);
	__m128i nan = _mm_cmpeq_epi16(_mm_and_si128(half, all), all);

	half = _mm_or_si128(_mm_and_si128(half, _mm_set1_epi16((short)0xbf80)),
			    _mm_and_si128(nan, _mm_set1_epi16(0x7c00)));
	return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
}

static inline vec
vec_load_e5m2(const uint8_t *at)
{
	return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load_bytes(at)), 8));
}

static inline vec
vec_load_i8(const uint8_t *at)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_bytes(at)));
}

static inline void
vec_store_f16(uint8_t *at, vec v)
{
	store_halves(at, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* convert_to_bf16() in lanes. */
static inline void
vec_store_bf16(uint8_t *at, vec v)
{
	__m256i bits = _mm256_castps_si256(v);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	__m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
	__m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));

	rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
	rounded = _mm256_srli_epi32(rounded, 16);
	store_halves(at, _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
}

/* Lanes that fit a byte, signed or not. */
static inline void
store_bytes(uint8_t *at, __m256i codes)
{
	__m256i bytes = _mm256_and_si256(codes, _mm256_set1_epi32(0xff));
	__m128i words = _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));

	_mm_storel_epi64((__m128i *)(void *)at, _mm_packus_epi16(words, words));
}

/* convert_to_fp8() in lanes; magnitudes are positive as signed numbers, too. */
static inline __attribute__((always_inline)) void
store_fp8(uint8_t *at, vec v, const struct convert_fp8 *to)
{
	__m256i bits = _mm256_castps_si256(v);
	__m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
	__m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, (int)to->shift), _mm256_set1_epi32(1));
	__m256i half = _mm256_set1_epi32((int)((1u << (to->shift - 1)) - 1 - to->bias));
	__m256i code = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(magnitude, half), odd), (int)to->shift);
	vec rounder = _mm256_set1_ps(to->rounder);
	__m256i small = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), rounder));
	__m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));

	small = _mm256_sub_epi32(small, _mm256_castps_si256(rounder));
	code = _mm256_min_epu32(code, _mm256_set1_epi32((int)to->largest));
	code = _mm256_blendv_epi8(code, small, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)to->normal), magnitude));
	code = _mm256_or_si256(code, sign);
	store_bytes(at, _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7f), nan));
}

static inline void
vec_store_e4m3(uint8_t *at, vec v)
{
	store_fp8(at, v, &convert_e4m3);
}

static inline void
vec_store_e5m2(uint8_t *at, vec v)
{
	store_fp8(at, v, &convert_e5m2);
}

static inline void
vec_store_i8(uint8_t *at, vec v)
{
	store_bytes(at, _mm256_cvtps_epi32(v));
}

static inline vec
vec_fma(vec a, vec b, vec c)
{
	return _mm256_fmadd_ps(a, b, c);
}

static inline vec
vec_max(vec a, vec b)
{
	return _mm256_max_ps(a, b);
}

static inline vec
vec_below(vec v, uint32_t n, vec other)
{
	__m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

	return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane)));
}

static inline vec
vec_pick(vec v, uint32_t bits, vec other)
{
	__m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	__m256i set = _mm256_and_si256(_mm256_set1_epi32((int)bits), lane);

	return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)));
}

static inline vec
vec_round(vec v)
{
	return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vec
vec_scale(vec v, vec n)
{
	__m256i whole = _mm256_cvtps_epi32(n);

	return v * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(whole, _mm256_set1_epi32(127)), 23));
}

static inline vec
vec_unless(vec v, vec x, vec y)
{
	return _mm256_andnot_ps(_mm256_cmp_ps(x, y, _CMP_LT_OQ), v);
}

static inline float
vec_sum(vec v)
{
	__m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	half = _mm_add_ps(half, _mm_movehl_ps(half, half));
	return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

static inline float
vec_top(vec v)
{
	__m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	half = _mm_max_ps(half, _mm_movehl_ps(half, half));
	return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

/* Within each half lanes 0 + 2 and 1 + 3 first, then the halves. */
static inline __attribute__((always_inline)) void
vec_sum_block(float *to, uint32_t stride, vec (*sums)[TILE_TOKEN_BLOCK], uint32_t lines)
{
#pragma GCC unroll 4
	for (uint32_t i = 0; i < lines; i++) {
		const vec *v = sums[i];
		vec ab = _mm256_add_ps(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
		vec cd = _mm256_add_ps(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
		vec all = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));

		_mm_storeu_ps(to + i * stride, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
	}
}

/* Squares of four within halves, then the halves among each other. */
static inline __attribute__((always_inline)) void
vec_turn(vec *square)
{
	vec pair[LANES];

#pragma GCC unroll 8
	for (unsigned int i = 0; i < LANES; i += 2) {
		pair[i] = _mm256_unpacklo_ps(square[i], square[i + 1]);
		pair[i + 1] = _mm256_unpackhi_ps(square[i], square[i + 1]);
	}
#pragma GCC unroll 8
	for (unsigned int i = 0; i < LANES; i += 4) {
		square[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
		square[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
		square[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
		square[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
	}
#pragma GCC unroll 8
	for (unsigned int i = 0; i < 4; i++) {
		vec low = square[i], high = square[i + 4];

		square[i] = _mm256_permute2f128_ps(low, high, 0x20);
		square[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
	}
}

#include "kernels/cpu/tile_body.h"
#include "kernels/cpu/tile_packed.h"

const struct kernel_tile_ops kernel_tile_ops_avx2 = TILE_OPS;
