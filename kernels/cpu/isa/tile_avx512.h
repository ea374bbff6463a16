/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_avx512.h - tile_body.h's primitives in AVX-512, for all instruction sets that include it;
 * included once, before tile_body.h
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/tile.h"

#define LANES 16u
#define Q_ROW_BLOCK 4u
#define VALUE_VECS(n_q_rows) 4u
/* 32 registers: 8 x 2 sums, two vectors of a panel and one of a q_row. */
#define REGISTER_Q_ROWS 8u

typedef __m512 vec;
typedef __m512i ints;
typedef __m256i half_vec;
#define VEC(name) _mm512_##name
#define INTS(name) _mm512_##name##_si512
#define HALF(name) _mm256_##name
#define VEC_STREAM(to, v) _mm512_stream_si512((void *)(to), (__m512i)(v))

static inline __m128i
x86_load_bytes(const uint8_t *at)
{
	return _mm_loadu_si128((const __m128i *)(const void *)at);
}

static inline void
x86_store_halves(uint8_t *at, ints v)
{
	_mm256_storeu_si256((__m256i *)(void *)at, _mm512_cvtepi32_epi16(v));
}

static inline void
x86_store_bytes(uint8_t *at, ints v)
{
	_mm_storeu_si128((__m128i *)(void *)at, _mm512_cvtepi32_epi8(v));
}

static inline ints
ints_where_nan(vec v, ints nan, ints other)
{
	return _mm512_mask_mov_epi32(other, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
}

static inline ints
ints_where_less(ints a, ints b, ints less, ints other)
{
	return _mm512_mask_mov_epi32(other, _mm512_cmplt_epi32_mask(a, b), less);
}

#include "kernels/cpu/isa/tile_x86_body.h"

/* convert_from_e4m3() in lanes.  Sign extension also sets the bit below the sign, which the mask clears. */
static inline vec
vec_load_e4m3(const uint8_t *at)
{
	__m256i half = _mm256_slli_epi16(_mm256_cvtepi8_epi16(x86_load_bytes(at)), 7);
	__m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x3f80));
	__mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));

	half = _mm256_and_si256(half, _mm256_set1_epi16((short)0xbf80));
	half = _mm256_mask_mov_epi16(half, nan, _mm256_or_si256(half, _mm256_set1_epi16(0x7c00)));
	return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
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

static inline float
vec_max_lanes(vec v)
{
	return _mm512_reduce_max_ps(v);
}

/* Adds quarters 0 + 2 and 1 + 3 first, like vec_sum_block(). */
static inline __m128
add_quarters(vec v)
{
	__m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));

	return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

static inline float
vec_sum(vec v)
{
	return quarter_sum(add_quarters(v));
}

static inline __attribute__((always_inline)) void
vec_sum_block(float *to, uint32_t stride, vec (*sums)[TILE_TOKEN_BLOCK], uint32_t n_q_rows)
{
	vec q[Q_ROW_BLOCK], ab, cd, all;

	if (n_q_rows < Q_ROW_BLOCK) {
#pragma GCC unroll 4
		for (uint32_t i = 0; i < n_q_rows; i++)
			_mm_storeu_ps(to + i * stride, add_quarters(sum_quarters(sums[i])));
		return;
	}
#pragma GCC unroll 4
	for (uint32_t i = 0; i < Q_ROW_BLOCK; i++)
		q[i] = sum_quarters(sums[i]);
	ab = _mm512_add_ps(_mm512_shuffle_f32x4(q[0], q[1], 0x44), _mm512_shuffle_f32x4(q[0], q[1], 0xee));
	cd = _mm512_add_ps(_mm512_shuffle_f32x4(q[2], q[3], 0x44), _mm512_shuffle_f32x4(q[2], q[3], 0xee));
	all = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
	_mm_storeu_ps(to, _mm512_castps512_ps128(all));
	_mm_storeu_ps(to + stride, _mm512_extractf32x4_ps(all, 1));
	_mm_storeu_ps(to + 2 * stride, _mm512_extractf32x4_ps(all, 2));
	_mm_storeu_ps(to + 3 * stride, _mm512_extractf32x4_ps(all, 3));
}

/* Transposes 4 x 4 squares within quarters, then exchanges squares between quarters. */
static inline __attribute__((always_inline)) void
vec_transpose(vec *square)
{
	transpose_quarters(square);
#pragma GCC unroll 4
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
