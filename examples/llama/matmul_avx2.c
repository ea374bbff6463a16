/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled with AVX2's flags; called only where the CPU has it.
 * Expanded weights equal the generic ones bit for bit.
 */
#include <immintrin.h>
#include <string.h>

#include "examples/llama/matmul.h"

#define LANES 8u
/* Sums that fit the 16 registers beside the operands: 4 rows of weights, 2 of activations. */
#define TILE_BATCH 2u

static float
load_half(const uint8_t *from)
{
	uint16_t half;

	memcpy(&half, from, sizeof(half));
	return _cvtsh_ss(half);
}

/* 8 signed bytes, scaled. */
static void
store_bytes(float *to, __m128i bytes, __m256 scale, __m256 offset)
{
	__m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));

	/* Not fused: rounded as the generic code does. */
	_mm256_storeu_ps(to, _mm256_add_ps(_mm256_mul_ps(scale, value), offset));
}

/* 32 signed bytes, scaled.  Adding -0 changes no number. */
static void
store_block(float *to, __m128i first, __m128i second, float scale, float offset)
{
	__m256 scales = _mm256_set1_ps(scale), offsets = _mm256_set1_ps(offset);

	store_bytes(to, first, scales, offsets);
	store_bytes(to + 8, _mm_srli_si128(first, 8), scales, offsets);
	store_bytes(to + 16, second, scales, offsets);
	store_bytes(to + 24, _mm_srli_si128(second, 8), scales, offsets);
}

static void
avx2_expand_f16(const uint8_t *from, float *to, uint32_t n_columns)
{
	uint32_t c = 0;

	for (; c + LANES <= n_columns; c += LANES)
		_mm256_storeu_ps(to + c, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * c))));
	for (; c < n_columns; c++)
		to[c] = load_half(from + 2 * c);
}

static void
avx2_expand_q8_0(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += 32, from += 34)
		store_block(to + c, _mm_loadu_si128((const __m128i *)(from + 2)),
			    _mm_loadu_si128((const __m128i *)(from + 18)), load_half(from), -0.0f);
}

static void
avx2_expand_q4_0(const uint8_t *from, float *to, uint32_t n_columns)
{
	const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);

	for (uint32_t c = 0; c < n_columns; c += 32, from += 18) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(from + 2));

		store_block(to + c, _mm_sub_epi8(_mm_and_si128(bytes, low), eight),
			    _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), low), eight), load_half(from), -0.0f);
	}
}

static void
avx2_expand_q4_1(const uint8_t *from, float *to, uint32_t n_columns)
{
	const __m128i low = _mm_set1_epi8(15);

	for (uint32_t c = 0; c < n_columns; c += 32, from += 20) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(from + 4));

		store_block(to + c, _mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low),
			    load_half(from), load_half(from + 2));
	}
}

static float
add_lanes(__m256 sums)
{
	__m128 half = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));

	half = _mm_add_ps(half, _mm_movehl_ps(half, half));
	return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

/*
 * n_batch is a constant where this is inlined and the inner loops are
 * unrolled, which -O2 does not do by itself: the sums stay in registers.
 */
static inline __attribute__((always_inline)) void
dot_tile(const float *w, size_t w_stride, const float *x, size_t x_stride, const uint32_t n_batch, uint32_t n_columns,
	 float *out, size_t out_stride)
{
	__m256 sums[TILE_BATCH][MATMUL_ROWS];
	uint32_t c = 0;

#pragma GCC unroll 4
	for (uint32_t b = 0; b < n_batch; b++)
#pragma GCC unroll 4
		for (uint32_t r = 0; r < MATMUL_ROWS; r++)
			sums[b][r] = _mm256_setzero_ps();
	for (; c + LANES <= n_columns; c += LANES)
#pragma GCC unroll 4
		for (uint32_t b = 0; b < n_batch; b++) {
			__m256 column = _mm256_loadu_ps(x + b * x_stride + c);

#pragma GCC unroll 4
			for (uint32_t r = 0; r < MATMUL_ROWS; r++)
				sums[b][r] = _mm256_fmadd_ps(column, _mm256_loadu_ps(w + r * w_stride + c), sums[b][r]);
		}
#pragma GCC unroll 4
	for (uint32_t b = 0; b < n_batch; b++)
#pragma GCC unroll 4
		for (uint32_t r = 0; r < MATMUL_ROWS; r++) {
			float sum = add_lanes(sums[b][r]);

			for (uint32_t i = c; i < n_columns; i++)
				sum += w[r * w_stride + i] * x[b * x_stride + i];
			out[b * out_stride + r] = sum;
		}
}

static void
avx2_dot(const float *w, size_t w_stride, const float *x, size_t x_stride, uint32_t n_batch, uint32_t n_columns,
	 float *out, size_t out_stride)
{
	for (; n_batch >= TILE_BATCH; n_batch -= TILE_BATCH, x += TILE_BATCH * x_stride, out += TILE_BATCH * out_stride)
		dot_tile(w, w_stride, x, x_stride, TILE_BATCH, n_columns, out, out_stride);
	if (n_batch > 0)
		dot_tile(w, w_stride, x, x_stride, 1, n_columns, out, out_stride);
}

#define WEIGH_LANES LANES
#include "examples/llama/weigh_body.h"

const struct matmul_ops matmul_ops_avx2 = {
	.name = "avx2",
	.expand_f16 = avx2_expand_f16,
	.expand_q8_0 = avx2_expand_q8_0,
	.expand_q4_0 = avx2_expand_q4_0,
	.expand_q4_1 = avx2_expand_q4_1,
	.dot = avx2_dot,
	.weigh = weigh,
};
