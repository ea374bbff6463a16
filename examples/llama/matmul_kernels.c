/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matmul_ops of one instruction set, named MATMUL_OPS.  This file is compiled
 * once for each set, with its flags, and uses the compiler's vector types.
 * Dequantized weights have the same bits on all sets, with or without FMA, because
 * the product of an 11-bit scale and an 8-bit integer is exact in f32.
 */
#include <string.h>

#include "examples/llama/matmul.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

/* Floats in a vector. */
#if defined __AVX512F__
#define LANES 16u
#elif defined __AVX2__
#define LANES 8u
#else
#define LANES 4u
#endif
/* Vectors that matmul_ops.softmax_v() sums at a time. */
#define SOFTMAX_V_VECS 4u

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef uint32_t vec_bits __attribute__((vector_size(4 * LANES)));
typedef float quarter __attribute__((vector_size(16)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));

static inline vec
lanes_load(const float *from)
{
	vec x;

	memcpy(&x, from, sizeof(x));
	return x;
}

static inline void
lanes_store(float *to, vec x)
{
	memcpy(to, &x, sizeof(x));
}

/* LANES signed bytes as floats; compilers turn __builtin_convertvector() of bytes into scalar code. */
static inline vec
lanes_of_bytes(const uint8_t *from)
{
#if defined __AVX512F__
	return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
#elif defined __AVX2__
	return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
#else
	vec x;

	for (uint32_t l = 0; l < LANES; l++)
		x[l] = (int8_t)from[l];
	return x;
#endif
}

static inline float
f16_load(const uint8_t *from)
{
	uint16_t half = (uint16_t)(from[0] | from[1] << 8);

#ifdef __F16C__
	return _cvtsh_ss(half);
#else
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, bits = (uint32_t)(half & 0x7fff) << 13;
	float value;

	memcpy(&value, &bits, sizeof(value));
	/* The exponents' biases differ by 112; the product is exact, also for subnormal numbers. */
	value *= 0x1p112f;
	memcpy(&bits, &value, sizeof(bits));
	/* Infinity and NaN: set the largest exponent. */
	bits |= sign | ((half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0);
	memcpy(&value, &bits, sizeof(value));
	return value;
#endif
}

static inline vec
lanes_of_halves(const uint8_t *from)
{
#if defined __AVX512F__
	return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined __AVX2__
	return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#else
	vec x;

	for (uint32_t l = 0; l < LANES; l++)
		x[l] = f16_load(from + 2 * l);
	return x;
#endif
}

static inline float
lanes_sum(vec x)
{
	quarter parts[LANES / 4], sum;

	memcpy(parts, &x, sizeof(x));
	sum = parts[0];
#pragma GCC unroll 4
	for (uint32_t i = 1; i < LANES / 4; i++)
		sum += parts[i];
	return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* ------------------------------------------------------------------ weights */

static void
dequantize_f32(const uint8_t *from, float *to, uint32_t n_columns)
{
	memcpy(to, from, n_columns * sizeof(*to));
}

static void
dequantize_f16(const uint8_t *from, float *to, uint32_t n_columns)
{
	uint32_t c = 0;

	for (; c + LANES <= n_columns; c += LANES)
		lanes_store(to + c, lanes_of_halves(from + 2 * c));
	for (; c < n_columns; c++)
		to[c] = f16_load(from + 2 * c);
}

/* 16 signed bytes times scale, plus offset.  An offset of -0 changes no value. */
static inline void
dequantize_bytes(bytes16 bytes, float *to, float scale, float offset)
{
#pragma GCC unroll 4
	for (uint32_t i = 0; i < 16; i += LANES)
		lanes_store(to + i, lanes_of_bytes((const uint8_t *)&bytes + i) * scale + offset);
}

static inline bytes16
block_load_bytes(const uint8_t *from)
{
	bytes16 bytes;

	memcpy(&bytes, from, sizeof(bytes));
	return bytes;
}

/* Block: f16 scale, 32 signed bytes. */
static void
dequantize_q8_0(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += 32, from += 34) {
		dequantize_bytes(block_load_bytes(from + 2), to + c, f16_load(from), -0.0f);
		dequantize_bytes(block_load_bytes(from + 18), to + c + 16, f16_load(from), -0.0f);
	}
}

/* Block: f16 scale, 16 bytes.  Low nibbles are elements 0 to 15, high nibbles 16 to 31; a nibble of 8 is zero. */
static void
dequantize_q4_0(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += 32, from += 18) {
		bytes16 bytes = block_load_bytes(from + 2);

		dequantize_bytes((bytes & 15) - 8, to + c, f16_load(from), -0.0f);
		dequantize_bytes((bytes >> 4) - 8, to + c + 16, f16_load(from), -0.0f);
	}
}

/* Block: f16 scale, f16 offset, 16 bytes in Q4_0's order; a nibble of 0 is the offset. */
static void
dequantize_q4_1(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += 32, from += 20) {
		bytes16 bytes = block_load_bytes(from + 4);

		dequantize_bytes(bytes & 15, to + c, f16_load(from), f16_load(from + 2));
		dequantize_bytes(bytes >> 4, to + c + 16, f16_load(from), f16_load(from + 2));
	}
}

/* ----------------------------------------------------------------- products */

/*
 * n_batch is a constant wherever this function is inlined, and the inner loops are
 * unrolled explicitly because -O2 does not do it.  The sums then stay in registers.
 */
static inline __attribute__((always_inline)) void
matmul_dot_tile(const float *w, size_t w_stride, const float *x, size_t x_stride, const uint32_t n_batch,
		uint32_t n_columns, float *out, size_t out_stride)
{
	vec sums[MATMUL_BATCH][MATMUL_ROWS] = { 0 };
	uint32_t c = 0;

	for (; c + LANES <= n_columns; c += LANES)
#pragma GCC unroll 4
		for (uint32_t b = 0; b < n_batch; b++) {
			vec column = lanes_load(x + b * x_stride + c);

#pragma GCC unroll 4
			for (uint32_t r = 0; r < MATMUL_ROWS; r++)
				sums[b][r] += column * lanes_load(w + r * w_stride + c);
		}
#pragma GCC unroll 4
	for (uint32_t b = 0; b < n_batch; b++)
#pragma GCC unroll 4
		for (uint32_t r = 0; r < MATMUL_ROWS; r++) {
			float sum = lanes_sum(sums[b][r]);

			for (uint32_t i = c; i < n_columns; i++)
				sum += w[r * w_stride + i] * x[b * x_stride + i];
			out[b * out_stride + r] = sum;
		}
}

static void
matmul_dot(const float *w, size_t w_stride, const float *x, size_t x_stride, uint32_t n_batch, uint32_t n_columns,
	   float *out, size_t out_stride)
{
	/* The sums of 4 activation rows and the operands fit in 32 registers; 16 registers fit those of 2. */
	if (LANES == 16 && n_batch == 4) {
		matmul_dot_tile(w, w_stride, x, x_stride, 4, n_columns, out, out_stride);
		return;
	}
	if (LANES == 16 && n_batch == 3) {
		matmul_dot_tile(w, w_stride, x, x_stride, 3, n_columns, out, out_stride);
		return;
	}
	for (; n_batch >= 2; n_batch -= 2, x += 2 * x_stride, out += 2 * out_stride)
		matmul_dot_tile(w, w_stride, x, x_stride, 2, n_columns, out, out_stride);
	if (n_batch > 0)
		matmul_dot_tile(w, w_stride, x, x_stride, 1, n_columns, out, out_stride);
}

/* ------------------------------------------------------- softmax(scores) v */

/* exp(x) for x <= 0, with an error of a few ulp; 0 where the result is below 2^-126. */
static inline vec
lanes_exp(vec x)
{
	vec t = x * 1.44269504f + 12582912.0f, n = t - 12582912.0f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
	vec p = ((((r * 1.9875691500e-4f + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
		 1.6666665459e-1f) *
			r +
		5.0000001201e-1f;
	vec_bits bits, seen = (vec_bits)(x > -87.0f);

	p = p * r * r + r + 1.0f;
	bits = ((vec_bits)t << 23) + (vec_bits)p;
	return (vec)(bits & seen);
}

static float
softmax_exp(float *scores, uint32_t n)
{
	float row_max = scores[0], sum;
	vec sums = { 0 };
	uint32_t i;

	for (i = 1; i < n; i++)
		row_max = scores[i] > row_max ? scores[i] : row_max;
	for (i = 0; i + LANES <= n; i += LANES) {
		vec x = lanes_exp(lanes_load(scores + i) - row_max);

		lanes_store(scores + i, x);
		sums += x;
	}
	sum = lanes_sum(sums);
	for (; i < n; i++) {
		vec x = { scores[i] - row_max };

		scores[i] = lanes_exp(x)[0];
		sum += scores[i];
	}
	return sum;
}

static void
softmax_v(float *scores, uint32_t n, const float *v, size_t v_stride, uint32_t dim, float *out)
{
	float factor = 1 / softmax_exp(scores, n);
	uint32_t d = 0;

	for (; d + SOFTMAX_V_VECS * LANES <= dim; d += SOFTMAX_V_VECS * LANES) {
		vec sums[SOFTMAX_V_VECS] = { { 0 } };

		for (uint32_t i = 0; i < n; i++)
#pragma GCC unroll 4
			for (uint32_t s = 0; s < SOFTMAX_V_VECS; s++)
				sums[s] += scores[i] * lanes_load(v + i * v_stride + d + s * LANES);
		for (uint32_t s = 0; s < SOFTMAX_V_VECS; s++)
			lanes_store(out + d + s * LANES, sums[s] * factor);
	}
	for (; d < dim; d++) {
		float sum = 0;

		for (uint32_t i = 0; i < n; i++)
			sum += scores[i] * v[i * v_stride + d];
		out[d] = sum * factor;
	}
}

const struct matmul_ops MATMUL_OPS = {
	.dequantize = { [GGUF_TYPE_F32] = dequantize_f32,
			[GGUF_TYPE_F16] = dequantize_f16,
			[GGUF_TYPE_Q4_0] = dequantize_q4_0,
			[GGUF_TYPE_Q4_1] = dequantize_q4_1,
			[GGUF_TYPE_Q8_0] = dequantize_q8_0 },
	.dot = matmul_dot,
	.softmax_v = softmax_v,
};
