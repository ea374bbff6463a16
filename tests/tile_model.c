/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tile_model.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* As AVX-512 has them, so that the lanes of its paths are those tested here. */
#define LANES 16u
#define LINE_BLOCK 4u
#define BLOCK_LINES 8u
#include "kernels/cpu/tile_generic.h"

#define TILE_PAIRS

/* vdpbf16ps, which takes subnormal numbers as 0 besides. */
static inline vec
vec_dot(vec a, vec b, vec c)
{
	bits x = (bits)a, y = (bits)b;

	for (unsigned int i = 0; i < LANES; i++) {
		c[i] += convert_from_bf16((uint16_t)(x[i] >> 16)) * convert_from_bf16((uint16_t)(y[i] >> 16));
		c[i] += convert_from_bf16((uint16_t)x[i]) * convert_from_bf16((uint16_t)y[i]);
	}
	return c;
}

static inline vec
vec_join(vec low, vec high)
{
	return (vec)((bits)low >> 16 | (bits)high);
}

/* vcvtneps2bf16 */
static inline void
vec_round_bf16(uint8_t *at, vec v)
{
	vec_store_bf16(at, v);
}

#include "kernels/cpu/tile_body.h"
#include "kernels/cpu/tile_packed.h"

#define TILE_WORDS 16

/* A thread's tiles, each of 16 rows of 64 bytes. */
static _Thread_local struct {
	bool configured;
	uint32_t tile[8][TILE_WORDS][TILE_WORDS];
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

static void
amx_load_model(unsigned int t, const void *at, size_t stride)
{
	assert(amx.configured);
	for (size_t row = 0; row < TILE_WORDS; row++)
		memcpy(amx.tile[t][row], (const uint8_t *)at + row * stride, sizeof(amx.tile[t][row]));
}

static void
amx_store_model(unsigned int t, void *at, size_t stride)
{
	assert(amx.configured);
	for (size_t row = 0; row < TILE_WORDS; row++)
		memcpy((uint8_t *)at + row * stride, amx.tile[t][row], sizeof(amx.tile[t][row]));
}

/* Subnormal numbers are zeros. */
static float
normal(float x)
{
	return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static float
normal_half(uint32_t word, unsigned int half)
{
	return normal(convert_from_bf16((uint16_t)(word >> 16 * half)));
}

/* tdpbf16ps: each half of the words has a sum of its own, from 0, and both together are added to what is there. */
static void
amx_dot_model(unsigned int sums, unsigned int left, unsigned int right)
{
	assert(amx.configured);
	for (unsigned int row = 0; row < TILE_WORDS; row++)
		for (unsigned int column = 0; column < TILE_WORDS; column++) {
			float half[2] = { 0 }, sum;

			for (unsigned int k = 0; k < TILE_WORDS; k++)
				for (unsigned int i = 0; i < 2; i++)
					half[i] = normal(fmaf(normal_half(amx.tile[left][row][k], i),
							      normal_half(amx.tile[right][k][column], i), half[i]));
			memcpy(&sum, &amx.tile[sums][row][column], sizeof(sum));
			sum = normal(normal(sum) + normal(half[0] + half[1]));
			memcpy(&amx.tile[sums][row][column], &sum, sizeof(sum));
		}
}

#define AMX_ZERO amx_zero_model
#define AMX_LOAD amx_load_model
#define AMX_STORE amx_store_model
#define AMX_DOT amx_dot_model

#include "kernels/cpu/tile_amx.h"

const struct kernel_tile_ops tile_ops_model = { TILE_FUNCTIONS, .pairs = &tile_packed_pairs };
const struct kernel_tile_ops tile_ops_model_amx = {
	TILE_FUNCTIONS,
	.pairs = &tile_packed_amx,
	.begin = amx_begin,
	.end = amx_end,
};
