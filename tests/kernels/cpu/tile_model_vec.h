/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_model_vec.h - the primitives of tile_avx512bf16.h in plain C, each a model of one or two instructions
 *
 * Included before tile_body.h in place of tile_avx512bf16.h, so that every
 * machine can test the code that runs on a CPU with the instructions.
 */
#ifndef PAGED_TESTS_TILE_MODEL_VEC_H
#define PAGED_TESTS_TILE_MODEL_VEC_H

#include <string.h>

/* The same values as for AVX-512. */
#define LANES 16u
#define Q_ROW_BLOCK 4u
#define REGISTER_Q_ROWS 8u
/* Do not unroll loops: an unrolled model takes minutes to compile, and tests do not need the speed. */
#define UNROLL
#include "kernels/cpu/isa/tile_generic.h"

#define TILE_PAIRS

typedef double doubles __attribute__((vector_size(8 * LANES)));
typedef uint16_t half_vec __attribute__((vector_size(64)));
typedef uint8_t byte_vec __attribute__((vector_size(64)));

/* Flush subnormals (exponent bits 0) to zero, without a comparison: compilers generate slow code for that. */
static inline vec
vec_normal(vec v)
{
	bits some = (((bits)v & 0x7f800000) + 0x7f800000) >> 31;

	return (vec)((bits)v & (-some | 0x80000000));
}

/* The low (half 0) or high (half 1) bf16 of each word, as f32. */
static inline vec
vec_of_pairs(vec pairs, unsigned int half)
{
	return vec_normal((vec)(half ? (bits)pairs & 0xffff0000 : (bits)pairs << 16));
}

/* Fused multiply-add of one half: a double has enough precision for one rounding at the end. */
static inline vec
vec_add_product(vec sum, vec a, vec b, unsigned int half)
{
	doubles x = __builtin_convertvector(vec_of_pairs(a, half), doubles);
	doubles y = __builtin_convertvector(vec_of_pairs(b, half), doubles);

	return vec_normal(__builtin_convertvector(x * y + __builtin_convertvector(vec_normal(sum), doubles), vec));
}

/* vdpbf16ps */
static inline vec
vec_dot(vec a, vec b, vec c)
{
	return vec_add_product(vec_add_product(c, a, b, 1), a, b, 0);
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
	vec_store_bf16(at, vec_normal(v));
}

/* vcvtne2ps2bf16 */
static inline vec
vec_round_pairs(vec low, vec high)
{
	_Alignas(64) uint8_t pairs[64];

	vec_round_bf16(pairs, low);
	vec_round_bf16(pairs + 32, high);
	return vec_load((const float *)(const void *)pairs);
}

static inline vec
vec_load_half(const void *at)
{
	vec v = { 0 };

	memcpy(&v, at, 32);
	return v;
}

static inline void
vec_store_half(void *at, vec v)
{
	memcpy(at, &v, 32);
}

/* vpmovdw */
static inline vec
vec_half(vec v)
{
	half_vec halves = { 0 };

	for (unsigned int i = 0; i < LANES; i++)
		halves[i] = (uint16_t)(((bits)v)[i] >> 16);
	return (vec)halves;
}

/* vpermi2w */
static inline vec
vec_permute_halves(vec a, vec b, const uint16_t *order)
{
	half_vec x = (half_vec)a, y = (half_vec)b, chosen;

	for (unsigned int i = 0; i < 32; i++)
		chosen[i] = order[i] & 32 ? y[order[i] % 32] : x[order[i] % 32];
	return (vec)chosen;
}

/* vpmaxuw, vpandd */
static inline vec
vec_absmax_halves(vec a, vec b)
{
	half_vec x = (half_vec)a & 0x7fff, y = (half_vec)b & 0x7fff;

	for (unsigned int i = 0; i < 32; i++)
		x[i] = x[i] > y[i] ? x[i] : y[i];
	return (vec)x;
}

static inline byte_vec
bytes_load(const void *at)
{
	byte_vec v;

	memcpy(&v, at, sizeof(v));
	return v;
}

/* vpermd */
static inline byte_vec
bytes_permute(byte_vec v, const uint32_t *order)
{
	bits words;

	for (unsigned int i = 0; i < LANES; i++)
		words[i] = ((bits)v)[order[i] % 16];
	return (byte_vec)words;
}

/* vpermi2b */
static inline byte_vec
bytes_look_up(const byte_vec *table, byte_vec v)
{
	for (unsigned int i = 0; i < 64; i++)
		v[i] = table[v[i] >> 6 & 1][v[i] % 64];
	return v;
}

/* vpabsb */
static inline byte_vec
bytes_abs(byte_vec v)
{
	for (unsigned int i = 0; i < 64; i++)
		v[i] = v[i] & 0x80 ? (uint8_t)-v[i] : v[i];
	return v;
}

static inline byte_vec
bytes_unless_0(byte_vec v, byte_vec of)
{
	for (unsigned int i = 0; i < 64; i++)
		v[i] = of[i] != 0 ? v[i] : 0;
	return v;
}

static inline byte_vec
bytes_sign(byte_vec v, byte_vec of)
{
	for (unsigned int i = 0; i < 64; i++)
		v[i] |= of[i] & 0x80;
	return v;
}

/* In each quarter of 16 bytes, from byte `first` of the quarter on. */
static inline byte_vec
bytes_zip(byte_vec a, byte_vec b, unsigned int first)
{
	byte_vec zipped;

	for (unsigned int i = 0; i < 64; i++)
		zipped[i] = (i % 2 ? b : a)[i / 16 * 16 + first + i % 16 / 2];
	return zipped;
}

/* vpunpcklbw */
static inline byte_vec
bytes_zip_low(byte_vec a, byte_vec b)
{
	return bytes_zip(a, b, 0);
}

/* vpunpckhbw */
static inline byte_vec
bytes_zip_high(byte_vec a, byte_vec b)
{
	return bytes_zip(a, b, 8);
}

/* vcvtneps2bf16, vpmovzxwd */
static inline void
vec_round_bf16_words(vec v, vec *low, vec *high)
{
	_Alignas(64) uint8_t halves[32];

	vec_round_bf16(halves, v);
	*high = vec_load_bf16(halves);
	*low = (vec)((bits)*high >> 16);
}

/* vpermt2ps */
static inline void
vec_zip(vec even, vec odd, vec *low, vec *high)
{
	EACH_LANE(i) {
		(*low)[i] = (i % 2 ? odd : even)[i / 2];
		(*high)[i] = (i % 2 ? odd : even)[LANES / 2 + i / 2];
	}
}

static inline void
vec_load_columns(const float *from, vec to[4])
{
	for (unsigned int i = 0; i < 4; i++)
		EACH_LANE(t)
			to[i][t] = from[t * LANES + i];
}

#endif
