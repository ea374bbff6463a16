/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx512.h - tile_body.h's words in AVX-512, for each path that has it; included once, before the body */
#include <immintrin.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/tile.h"

#define LANES 16u
#define LINE_BLOCK 4u
#define VALUE_VECS(lines) 4u
/* Of 32 registers: 8 x 2 sums, two vectors of a panel and one of a line. */
#define BLOCK_LINES 8u

typedef __m512 vec;

static inline vec
vec_load(const float *at)
{
	return _mm512_loadu_ps(at);
}

static inline void
vec_store(float *at, vec v)
{
	_mm512_storeu_ps(at, v);
}

static inline vec
vec_set1(float x)
{
	return _mm512_set1_ps(x);
}

static inline vec
vec_load_f16(const uint8_t *at)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

static inline vec
vec_load_bf16(const uint8_t *at)
{
	__m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at));

	return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline __m128i
load_bytes(const uint8_t *at)
{
	return _mm_loadu_si128((const __m128i *)(const void *)at);
}

/* convert_from_e4m3() in lanes: the sign fills the bits above the exponent, the second of them goes. */
static inline vec
vec_load_e4m3(const uint8_t *at)
{
	__m256i half = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_bytes(at)), 7);
	__m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x3f80));
	__mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));

	half = _mm256_and_si256(half, _mm256_set1_epi16((short)0xbf80));
	half = _mm256_mask_mov_epi16(half, nan, _mm256_or_si256(half, _mm256_set1_epi16(0x7c00)));
	return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
}

static inline vec
vec_load_e5m2(const uint8_t *at)
{
	return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load_bytes(at)), 8));
}

static inline vec
vec_load_i8(const uint8_t *at)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(at)));
}

static inline void
vec_store_f16(uint8_t *at, vec v)
{
	_mm256_storeu_si256((__m256i *)(void *)at, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* convert_to_bf16() in lanes; the CPU's own instruction would flush subnormals. */
static inline void
vec_store_bf16(uint8_t *at, vec v)
{
	__m512i bits = _mm512_castps_si512(v);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
	__m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));

	rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
	_mm256_storeu_si256((__m256i *)(void *)at, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

static inline void
store_bytes(uint8_t *at, __m512i codes)
{
	_mm_storeu_si128((__m128i *)(void *)at, _mm512_cvtepi32_epi8(codes));
}

/* convert_to_fp8() in lanes. */
static inline __attribute__((always_inline)) void
store_fp8(uint8_t *at, vec v, const struct convert_fp8 *to)
{
	__m512i bits = _mm512_castps_si512(v);
	__m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
	__m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, to->shift), _mm512_set1_epi32(1));
	__m512i half = _mm512_set1_epi32((int)((1u << (to->shift - 1)) - 1 - to->bias));
	__m512i code = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(magnitude, half), odd), to->shift);
	vec rounder = _mm512_set1_ps(to->rounder);
	__m512i small = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(magnitude), rounder));

	small = _mm512_sub_epi32(small, _mm512_castps_si512(rounder));
	code = _mm512_min_epu32(code, _mm512_set1_epi32((int)to->largest));
	code = _mm512_mask_mov_epi32(code, _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32((int)to->normal)),
				     small);
	code = _mm512_or_si512(code, sign);
	code = _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), _mm512_set1_epi32(0x7f));
	store_bytes(at, code);
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
	store_bytes(at, _mm512_cvtps_epi32(v));
}

static inline vec
vec_fma(vec a, vec b, vec c)
{
	return _mm512_fmadd_ps(a, b, c);
}

static inline vec
vec_max(vec a, vec b)
{
	return _mm512_max_ps(a, b);
}

static inline vec
vec_below(vec v, uint32_t n, vec other)
{
	return _mm512_mask_mov_ps(other, (__mmask16)(n >= LANES ? 0xffff : (1u << n) - 1), v);
}

static inline vec
vec_pick(vec v, uint32_t bits, vec other)
{
	return _mm512_mask_mov_ps(other, (__mmask16)bits, v);
}

static inline vec
vec_round(vec v)
{
	return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vec
vec_scale(vec v, vec n)
{
	return _mm512_scalef_ps(v, n);
}

static inline vec
vec_unless(vec v, vec x, vec y)
{
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, y, _CMP_NLT_UQ), v);
}

/* Lanes i and i + 8, then i and i + 4 of that, then as in sum_quarters(). */
static inline float
vec_sum(vec v)
{
	__m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));

	quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
	return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}

static inline float
vec_top(vec v)
{
	return _mm512_reduce_max_ps(v);
}

/* Each quarter: the four sums of that quarter of a, b, c, d; lanes 0 + 2 and 1 + 3 first. */
static inline vec
sum_quarters(const vec *v)
{
	vec ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
	vec cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));

	return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
}

/* Quarters 0 + 2 and 1 + 3 first, here and below. */
static inline __m128
fold_quarters(vec v)
{
	__m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));

	return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

static inline __attribute__((always_inline)) void
vec_sum_block(float *to, uint32_t stride, vec (*sums)[TILE_TOKEN_BLOCK], uint32_t lines)
{
	vec q[LINE_BLOCK], ab, cd, all;

	if (lines < LINE_BLOCK) {
#pragma GCC unroll 4
		for (uint32_t i = 0; i < lines; i++)
			_mm_storeu_ps(to + i * stride, fold_quarters(sum_quarters(sums[i])));
		return;
	}
#pragma GCC unroll 4
	for (uint32_t i = 0; i < LINE_BLOCK; i++)
		q[i] = sum_quarters(sums[i]);
	ab = _mm512_add_ps(_mm512_shuffle_f32x4(q[0], q[1], 0x44), _mm512_shuffle_f32x4(q[0], q[1], 0xee));
	cd = _mm512_add_ps(_mm512_shuffle_f32x4(q[2], q[3], 0x44), _mm512_shuffle_f32x4(q[2], q[3], 0xee));
	all = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
	_mm_storeu_ps(to, _mm512_castps512_ps128(all));
	_mm_storeu_ps(to + stride, _mm512_extractf32x4_ps(all, 1));
	_mm_storeu_ps(to + 2 * stride, _mm512_extractf32x4_ps(all, 2));
	_mm_storeu_ps(to + 3 * stride, _mm512_extractf32x4_ps(all, 3));
}

/* Squares of four within quarters, then the quarters among each other. */
static inline __attribute__((always_inline)) void
vec_turn(vec *square)
{
	vec pair[LANES];

#pragma GCC unroll 16
	for (unsigned int i = 0; i < LANES; i += 2) {
		pair[i] = _mm512_unpacklo_ps(square[i], square[i + 1]);
		pair[i + 1] = _mm512_unpackhi_ps(square[i], square[i + 1]);
	}
#pragma GCC unroll 16
	for (unsigned int i = 0; i < LANES; i += 4) {
		square[i] = _mm512_shuffle_ps(pair[i], pair[i + 2], 0x44);
		square[i + 1] = _mm512_shuffle_ps(pair[i], pair[i + 2], 0xee);
		square[i + 2] = _mm512_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
		square[i + 3] = _mm512_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
	}
#pragma GCC unroll 16
	for (unsigned int i = 0; i < 4; i++) {
		vec even = _mm512_shuffle_f32x4(square[i], square[i + 4], 0x88);
		vec odd = _mm512_shuffle_f32x4(square[i], square[i + 4], 0xdd);
		vec even_high = _mm512_shuffle_f32x4(square[i + 8], square[i + 12], 0x88);
		vec odd_high = _mm512_shuffle_f32x4(square[i + 8], square[i + 12], 0xdd);

		square[i] = _mm512_shuffle_f32x4(even, even_high, 0x88);
		square[i + 4] = _mm512_shuffle_f32x4(odd, odd_high, 0x88);
		square[i + 8] = _mm512_shuffle_f32x4(even, even_high, 0xdd);
		square[i + 12] = _mm512_shuffle_f32x4(odd, odd_high, 0xdd);
	}
}
