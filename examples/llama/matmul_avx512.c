/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled with AVX-512's flags; called only where the CPU has it.
 * Expanded weights equal the generic ones bit for bit.
 */
#include <immintrin.h>
#include <string.h>

#include "examples/llama/matmul.h"

#define LANES 16u

static __m512
load_half(const uint8_t *from)
{
	uint16_t half;

	memcpy(&half, from, sizeof(half));
	return _mm512_set1_ps(_cvtsh_ss(half));
}

static __m512
load_bytes(const uint8_t *from)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
}

static __m512
unpack_bytes(__m128i bytes)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

static void
avx512_expand_f16(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += LANES) {
		__mmask16 mask = n_columns - c < LANES ? (__mmask16)((1u << (n_columns - c)) - 1) : 0xffff;
		__m256i halves = _mm512_castsi512_si256(_mm512_maskz_loadu_epi16(mask, from + 2 * c));

		_mm512_mask_storeu_ps(to + c, mask, _mm512_cvtph_ps(halves));
	}
}

static void
avx512_expand_q8_0(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += 32, from += 34) {
		__m512 scale = load_half(from);

		_mm512_storeu_ps(to + c, _mm512_mul_ps(scale, load_bytes(from + 2)));
		_mm512_storeu_ps(to + c + 16, _mm512_mul_ps(scale, load_bytes(from + 18)));
	}
}

static void
avx512_expand_q4_0(const uint8_t *from, float *to, uint32_t n_columns)
{
	const __m128i low = _mm_set1_epi8(15);
	const __m512 eight = _mm512_set1_ps(8);

	for (uint32_t c = 0; c < n_columns; c += 32, from += 18) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(from + 2));
		__m512 a = unpack_bytes(_mm_and_si128(bytes, low));
		__m512 b = unpack_bytes(_mm_and_si128(_mm_srli_epi16(bytes, 4), low));
		__m512 scale = load_half(from);

		_mm512_storeu_ps(to + c, _mm512_mul_ps(scale, _mm512_sub_ps(a, eight)));
		_mm512_storeu_ps(to + c + 16, _mm512_mul_ps(scale, _mm512_sub_ps(b, eight)));
	}
}

static void
avx512_expand_q4_1(const uint8_t *from, float *to, uint32_t n_columns)
{
	const __m128i low = _mm_set1_epi8(15);

	for (uint32_t c = 0; c < n_columns; c += 32, from += 20) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(from + 4));
		__m512 a = unpack_bytes(_mm_and_si128(bytes, low));
		__m512 b = unpack_bytes(_mm_and_si128(_mm_srli_epi16(bytes, 4), low));
		__m512 scale = load_half(from), offset = load_half(from + 2);

		/* Not fused: rounded as the generic code does. */
		_mm512_storeu_ps(to + c, _mm512_add_ps(_mm512_mul_ps(scale, a), offset));
		_mm512_storeu_ps(to + c + 16, _mm512_add_ps(_mm512_mul_ps(scale, b), offset));
	}
}

/*
 * n_batch is a constant where this is inlined and the inner loops are
 * unrolled, which -O2 does not do by itself: the sums stay in registers.
 */
static inline __attribute__((always_inline)) void
dot_tile(const float *w, size_t w_stride, const float *x, size_t x_stride, const uint32_t n_batch, uint32_t n_columns,
	 float *out, size_t out_stride)
{
	__m512 sums[MATMUL_BATCH][MATMUL_ROWS];

#pragma GCC unroll 4
	for (uint32_t b = 0; b < n_batch; b++)
#pragma GCC unroll 4
		for (uint32_t r = 0; r < MATMUL_ROWS; r++)
			sums[b][r] = _mm512_setzero_ps();
	for (uint32_t c = 0; c < n_columns; c += LANES) {
		__mmask16 mask = n_columns - c < LANES ? (__mmask16)((1u << (n_columns - c)) - 1) : 0xffff;
		__m512 rows[MATMUL_ROWS];

#pragma GCC unroll 4
		for (uint32_t r = 0; r < MATMUL_ROWS; r++)
			rows[r] = _mm512_maskz_loadu_ps(mask, w + r * w_stride + c);
#pragma GCC unroll 4
		for (uint32_t b = 0; b < n_batch; b++) {
			__m512 column = _mm512_maskz_loadu_ps(mask, x + b * x_stride + c);

#pragma GCC unroll 4
			for (uint32_t r = 0; r < MATMUL_ROWS; r++)
				sums[b][r] = _mm512_fmadd_ps(column, rows[r], sums[b][r]);
		}
	}
#pragma GCC unroll 4
	for (uint32_t b = 0; b < n_batch; b++)
#pragma GCC unroll 4
		for (uint32_t r = 0; r < MATMUL_ROWS; r++)
			out[b * out_stride + r] = _mm512_reduce_add_ps(sums[b][r]);
}

static void
avx512_dot(const float *w, size_t w_stride, const float *x, size_t x_stride, uint32_t n_batch, uint32_t n_columns,
	   float *out, size_t out_stride)
{
	switch (n_batch) {
	case 4:
		dot_tile(w, w_stride, x, x_stride, 4, n_columns, out, out_stride);
		break;
	case 3:
		dot_tile(w, w_stride, x, x_stride, 3, n_columns, out, out_stride);
		break;
	case 2:
		dot_tile(w, w_stride, x, x_stride, 2, n_columns, out, out_stride);
		break;
	case 1:
		dot_tile(w, w_stride, x, x_stride, 1, n_columns, out, out_stride);
		break;
	}
}

#define WEIGH_LANES LANES
#include "examples/llama/weigh_body.h"

const struct matmul_ops matmul_ops_avx512 = {
	.name = "avx512",
	.expand_f16 = avx512_expand_f16,
	.expand_q8_0 = avx512_expand_q8_0,
	.expand_q4_0 = avx512_expand_q4_0,
	.expand_q4_1 = avx512_expand_q4_1,
	.dot = avx512_dot,
	.weigh = weigh,
};
