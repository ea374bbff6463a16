/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 with FMA and F16C. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/tile.h"

#define LANES 8u
/* 16 registers: 2 x 4 sums of scores, 4 keys and a query; or 2 x 4 sums of values and 4 vectors of V. */
#define Q_ROW_BLOCK 2u
#define VALUE_VECS(n_q_rows) 4u
/* 6 x 2 sums, two vectors of a panel and one of a q_row. */
#define REGISTER_Q_ROWS 6u

typedef __m256 vec;
typedef __m256i ints;
typedef __m128i half_vec;
#define VEC(name) _mm256_##name
#define INTS(name) _mm256_##name##_si256
#define HALF(name) _mm_##name
#define VEC_STREAM(to, v) _mm256_stream_si256((__m256i *)(void *)(to), (__m256i)(v))

static inline __m128i
x86_load_bytes(const uint8_t *at)
{
	return _mm_loadl_epi64((const __m128i *)(const void *)at);
}

static inline void
x86_store_halves(uint8_t *at, ints v)
{
	__m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	_mm_storeu_si128((__m128i *)(void *)at, halves);
}

/* For signed and unsigned bytes. */
static inline void
x86_store_bytes(uint8_t *at, ints v)
{
	__m256i bytes = _mm256_and_si256(v, _mm256_set1_epi32(0xff));
	__m128i words = _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));

	_mm_storel_epi64((__m128i *)(void *)at, _mm_packus_epi16(words, words));
}

static inline ints
ints_where_nan(vec v, ints nan, ints other)
{
	return _mm256_blendv_epi8(other, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

static inline ints
ints_where_less(ints a, ints b, ints less, ints other)
{
	return _mm256_blendv_epi8(other, less, _mm256_cmpgt_epi32(b, a));
}

#include "kernels/cpu/isa/tile_x86_body.h"

static inline void
vec_store_bf16(uint8_t *at, vec v)
{
	x86_store_bf16(at, v);
}

/* convert_from_e4m3() in lanes.  Sign extension also sets the bit below the sign, which the mask clears. */
static inline vec
vec_load_e4m3(const uint8_t *at)
{
	__m128i half = _mm_slli_epi16(_mm_cvtepi8_epi16(x86_load_bytes(at)), 7), all = _mm_set1_epi16(0x3f80);
	__m128i nan = _mm_cmpeq_epi16(_mm_and_si128(half, all), all);

	half = _mm_or_si128(_mm_and_si128(half, _mm_set1_epi16((short)0xbf80)),
			    _mm_and_si128(nan, _mm_set1_epi16(0x7c00)));
	return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
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
	return quarter_sum(_mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}

static inline float
vec_max_lanes(vec v)
{
	__m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	half = _mm_max_ps(half, _mm_movehl_ps(half, half));
	return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

/* Adds lanes 0 + 2 and 1 + 3 within each half first, then the halves. */
static inline __attribute__((always_inline)) void
vec_sum_block(float *to, uint32_t stride, vec (*sums)[TILE_TOKEN_BLOCK], uint32_t n_q_rows)
{
#pragma GCC unroll 4
	for (uint32_t i = 0; i < n_q_rows; i++) {
		vec all = sum_quarters(sums[i]);

		_mm_storeu_ps(to + i * stride, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
	}
}

/* Transposes 4 x 4 squares within halves, then exchanges squares between halves. */
static inline __attribute__((always_inline)) void
vec_transpose(vec *square)
{
	transpose_quarters(square);
#pragma GCC unroll 4
	for (unsigned int i = 0; i < 4; i++) {
		vec low = square[i], high = square[i + 4];

		square[i] = _mm256_permute2f128_ps(low, high, 0x20);
		square[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
	}
}

#include "kernels/cpu/isa/tile_body.h"
#include "kernels/cpu/prefill/tile_prefill_body.h"

const struct kernel_tile_ops kernel_tile_ops_avx2 = TILE_OPS;
