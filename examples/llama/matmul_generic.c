/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C: what every CPU runs, and what the other sets are tested against. */
#include "examples/llama/half.h"
#include "examples/llama/matmul.h"

#define LANES 8u

static uint16_t
load_u16(const uint8_t *from)
{
	return (uint16_t)(from[0] | from[1] << 8);
}

static void
generic_expand_f16(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t i = 0; i < n_columns; i++)
		to[i] = half_to_float(load_u16(from + 2 * i));
}

/* A block: f16 scale, 32 signed bytes. */
static void
generic_expand_q8_0(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += 32, from += 34) {
		float scale = half_to_float(load_u16(from));

		for (uint32_t i = 0; i < 32; i++)
			to[c + i] = scale * (float)(int8_t)from[2 + i];
	}
}

/* A block: f16 scale, 16 bytes; low nibbles are elements 0 to 15, high ones 16 to 31; 8 means 0. */
static void
generic_expand_q4_0(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += 32, from += 18) {
		float scale = half_to_float(load_u16(from));

		for (uint32_t i = 0; i < 16; i++) {
			to[c + i] = scale * (float)((from[2 + i] & 15) - 8);
			to[c + 16 + i] = scale * (float)((from[2 + i] >> 4) - 8);
		}
	}
}

/* A block: f16 scale, f16 offset, 16 bytes as in Q4_0; 0 means the offset. */
static void
generic_expand_q4_1(const uint8_t *from, float *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c += 32, from += 20) {
		float scale = half_to_float(load_u16(from)), offset = half_to_float(load_u16(from + 2));

		for (uint32_t i = 0; i < 16; i++) {
			to[c + i] = scale * (float)(from[4 + i] & 15) + offset;
			to[c + 16 + i] = scale * (float)(from[4 + i] >> 4) + offset;
		}
	}
}

static float
generic_dot_one(const float *w, const float *x, uint32_t n_columns)
{
	float lanes[LANES] = { 0 }, sum = 0;
	uint32_t i = 0;

	for (; i + LANES <= n_columns; i += LANES)
		for (uint32_t l = 0; l < LANES; l++)
			lanes[l] += w[i + l] * x[i + l];
	for (uint32_t l = 0; i < n_columns; i++, l++)
		lanes[l] += w[i] * x[i];
	for (uint32_t l = 0; l < LANES; l++)
		sum += lanes[l];
	return sum;
}

static void
generic_dot(const float *w, size_t w_stride, const float *x, size_t x_stride, uint32_t n_batch, uint32_t n_columns,
	    float *out, size_t out_stride)
{
	for (uint32_t b = 0; b < n_batch; b++)
		for (uint32_t r = 0; r < MATMUL_ROWS; r++)
			out[b * out_stride + r] = generic_dot_one(w + r * w_stride, x + b * x_stride, n_columns);
}

#define WEIGH_LANES 4u
#include "examples/llama/weigh_body.h"

const struct matmul_ops matmul_ops_generic = {
	.name = "generic",
	.expand_f16 = generic_expand_f16,
	.expand_q8_0 = generic_expand_q8_0,
	.expand_q4_0 = generic_expand_q4_0,
	.expand_q4_1 = generic_expand_q4_1,
	.dot = generic_dot,
	.weigh = weigh,
};
