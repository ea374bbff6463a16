/* SPDX-License-Identifier: Apache-2.0 */
/* With a sanitizer, more optimisation costs minutes of compilation and saves seconds of tests. */
#pragma GCC optimize("O1")

#include "tests/kernels/cpu/tile_model.h"

#include <assert.h>

#include "tests/kernels/cpu/tile_model_vec.h"

#include "kernels/cpu/isa/tile_body.h"
#include "kernels/cpu/prefill/tile_prefill_body.h"

#include "kernels/cpu/decode/tile_decode_bf16_body.h"

#define AMX_TILE_ROWS 16

/* A thread's tiles, each of 16 rows of 64 bytes. */
static _Thread_local struct {
	bool configured;
	uint32_t tile[8][AMX_TILE_ROWS][AMX_TILE_ROWS];
} amx;

/* ldtilecfg makes all tiles zero. */
static void
amx_begin(void)
{
	assert(!amx.configured);
	memset(&amx, 0, sizeof(amx));
	amx.configured = true;
}

/* tilerelease */
static void
amx_end(void)
{
	assert(amx.configured);
	amx.configured = false;
}

static void
amx_zero_model(unsigned int t)
{
	assert(amx.configured);
	memset(amx.tile[t], 0, sizeof(amx.tile[t]));
}

static vec
tile_row(unsigned int t, unsigned int row)
{
	return vec_load((const float *)(const void *)amx.tile[t][row]);
}

static void
amx_load_model(unsigned int t, const void *at, size_t stride)
{
	assert(amx.configured);
	for (size_t row = 0; row < AMX_TILE_ROWS; row++)
		memcpy(amx.tile[t][row], (const uint8_t *)at + row * stride, sizeof(amx.tile[t][row]));
}

static void
amx_store_model(unsigned int t, void *at, size_t stride)
{
	assert(amx.configured);
	for (size_t row = 0; row < AMX_TILE_ROWS; row++)
		memcpy((uint8_t *)at + row * stride, amx.tile[t][row], sizeof(amx.tile[t][row]));
}

/*
 * tdpbf16ps: the low and the high halves of the words have separate sums, which
 * begin at 0; both are then added to the accumulator.
 */
static void
amx_dot_model(unsigned int sums, unsigned int left, unsigned int right)
{
	assert(amx.configured);
	for (unsigned int row = 0; row < AMX_TILE_ROWS; row++) {
		vec half[2] = { 0 }, sum;

		for (unsigned int k = 0; k < AMX_TILE_ROWS; k++)
			for (unsigned int i = 0; i < 2; i++)
				half[i] = vec_add_product(half[i], (vec)(amx.tile[left][row][k] + (bits){ 0 }),
							  tile_row(right, k), i);
		sum = vec_normal(vec_normal(tile_row(sums, row)) + vec_normal(half[0] + half[1]));
		memcpy(amx.tile[sums][row], &sum, sizeof(sum));
	}
}

#define AMX_ZERO amx_zero_model
#define AMX_LOAD amx_load_model
#define AMX_LOAD_ONCE amx_load_model
#define AMX_STORE amx_store_model
#define AMX_DOT amx_dot_model

/* vreduceps */
static inline vec
vec_fraction(vec v)
{
	EACH_LANE(i)
		v[i] = isinf(v[i]) ? 0 : v[i] - floorf(v[i]);
	return v;
}

/* vscalefps, of lanes that are not masked */
static inline vec
vec_scale_floor(vec v, vec n)
{
	EACH_LANE(i)
		v[i] = isnan(n[i]) ? n[i] : n[i] < -126 ? 0 : ldexpf(v[i], (int)floorf(n[i]));
	return v;
}

static inline vec
vec_no_minus_infinity(vec v)
{
	EACH_LANE(i)
		v[i] = v[i] == -INFINITY ? 0 : v[i];
	return v;
}

static inline vec
vec_scaled(vec v, vec scale)
{
	EACH_LANE(i)
		v[i] = v[i] != 0 ? v[i] * scale[i] : 0;
	return v;
}

/* The order of additions of the four shuffle steps: lanes 2 apart, then neighbours, then the quarters. */
static inline vec
vec_sum_each(vec *v)
{
	vec sums;

	EACH_LANE(i) {
		float quarter[4];

		for (unsigned int q = 0; q < 4; q++) {
			const float *of = (const float *)&v[i] + 4 * q;

			quarter[q] = (of[0] + of[2]) + (of[1] + of[3]);
		}
		sums[i] = (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
	}
	return sums;
}

static inline vec
vec_max_each(vec *v)
{
	vec tops = v[0];

	EACH_LANE(i) {
		tops[i] = v[i][0];
		for (unsigned int j = 1; j < LANES; j++)
			tops[i] = v[i][j] > tops[i] ? v[i][j] : tops[i];
	}
	return tops;
}

static inline uint32_t
vec_unequal(vec a, vec b)
{
	uint32_t unequal = 0;

	EACH_LANE(i)
		unequal |= (uint32_t)(a[i] != b[i]) << i;
	return unequal;
}

#include "kernels/cpu/prefill/tile_amx_prefill_body.h"
#include "kernels/cpu/decode/tile_amx_decode_body.h"

static const struct tile_decode_bf16_ops dots = TILE_DECODE_BF16;

const struct kernel_tile_ops tile_ops_model = { TILE_FUNCTIONS, .decode_bf16 = &dots,
						.prefill_bf16 = &tile_prefill_bf16 };
const struct kernel_tile_ops tile_ops_model_amx = {
	TILE_FUNCTIONS, .decode_bf16 = &tile_decode_bf16_amx, .prefill_bf16 = &tile_prefill_amx, .begin = amx_begin,
	.end = amx_end,
};
