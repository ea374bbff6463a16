/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_generic.h - tile_body.h's primitives in the compiler's vectors, for any CPU
 *
 * With the default LANES 4, machines without AVX2 run them; with another LANES, they model other
 * instruction sets in tests.
 */
#include "kernels/cpu/convert.h"
#include "kernels/cpu/tile.h"

#ifndef LANES
#define LANES 4u
#define Q_ROW_BLOCK 2u
#define REGISTER_Q_ROWS 4u
#define UNROLL _Pragma("GCC unroll 16")
#ifdef __SSE2__ /* every x86-64 has it */
#include <emmintrin.h>
#define VEC_STREAM(to, v) _mm_stream_si128((__m128i *)(void *)(to), (__m128i)(v))
#endif
#endif
#ifndef VEC_STREAM
#define VEC_STREAM(to, v) __builtin_memcpy(to, &(v), sizeof(v))
#endif
#define VALUE_VECS(n_q_rows) 4u
#define EACH_LANE(i) UNROLL for (unsigned int i = 0; i < LANES; i++)

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

/* 0, 1, 2 and so on. */
static inline bits
lane_numbers(void)
{
	bits numbers;

	EACH_LANE(i)
		numbers[i] = i;
	return numbers;
}

static inline vec
vec_load(const float *at)
{
	vec v;

	__builtin_memcpy(&v, at, sizeof(v));
	return v;
}

static inline void
vec_store(float *at, vec v)
{
	__builtin_memcpy(at, &v, sizeof(v));
}

static inline vec
vec_set1(float x)
{
	return x - (vec){ 0 };
}

static inline vec
vec_load_bf16(const uint8_t *at)
{
	uint16_t half[LANES];
	bits b;

	__builtin_memcpy(half, at, sizeof(half));
	EACH_LANE(i)
		b[i] = half[i];
	return (vec)(b << 16);
}

#define LOAD(name, element, convert)                                               \
	static inline vec vec_load_##name(const uint8_t *at)                       \
	{                                                                          \
		vec v;                                                             \
                                                                                   \
		EACH_LANE(i) {                                                     \
			element one;                                               \
                                                                                   \
			__builtin_memcpy(&one, at + i * sizeof(one), sizeof(one)); \
			v[i] = convert(one);                                       \
		}                                                                  \
		return v;                                                          \
	}
LOAD(f16, uint16_t, convert_from_f16)
LOAD(e4m3, uint8_t, convert_from_e4m3)
LOAD(e5m2, uint8_t, convert_from_e5m2)
LOAD(i8, int8_t, (float))
#undef LOAD

#define STORE(name, element, convert)                                              \
	static inline void vec_store_##name(uint8_t *at, vec v)                    \
	{                                                                          \
		EACH_LANE(i) {                                                     \
			element one = convert(v[i]);                               \
                                                                                   \
			__builtin_memcpy(at + i * sizeof(one), &one, sizeof(one)); \
		}                                                                  \
	}
STORE(f16, uint16_t, convert_to_f16)
STORE(bf16, uint16_t, convert_to_bf16)
STORE(e4m3, uint8_t, convert_to_e4m3)
STORE(e5m2, uint8_t, convert_to_e5m2)
STORE(i8, int8_t, convert_to_i8)
#undef STORE

static inline vec
vec_fma(vec a, vec b, vec c)
{
	return a * b + c;
}

/* `mask` has all or no bits of each lane set. */
static inline vec
vec_choose(ints mask, vec yes, vec no)
{
	return (vec)(((bits)mask & (bits)yes) | (~(bits)mask & (bits)no));
}

static inline vec
vec_max(vec a, vec b)
{
	return vec_choose(a > b, a, b);
}

static inline vec
vec_below(vec v, uint32_t n, vec other)
{
	return vec_choose((ints)(lane_numbers() < n), v, other);
}

static inline vec
vec_pick(vec v, uint32_t set, vec other)
{
	return vec_choose((ints)((set >> lane_numbers() & 1) != 0), v, other);
}

/* 1.5 * 2^23: adding it leaves a float's integer part in its low bits. */
#define ROUNDER 12582912.0f

static inline vec
vec_round(vec v)
{
	return (v + ROUNDER) - ROUNDER;
}

static inline vec
vec_scale(vec v, vec n)
{
	ints whole = (ints)(n + ROUNDER) - (ints)vec_set1(ROUNDER);

	return v * (vec)((bits)(whole + 127) << 23);
}

static inline vec
vec_unless(vec v, vec x, vec y)
{
	return vec_choose((ints)(x < y), vec_set1(0), v);
}

static inline float
vec_sum(vec v)
{
	for (unsigned int n = LANES / 2; n > 0; n /= 2) {
		_Pragma("GCC unroll 8") for (unsigned int i = 0; i < n; i++) v[i] += v[i + n];
	}
	return v[0];
}

static inline float
vec_max_lanes(vec v)
{
	float max = v[0];

	for (unsigned int i = 1; i < LANES; i++)
		max = v[i] > max ? v[i] : max;
	return max;
}

static inline void
vec_sum_block(float *to, uint32_t stride, vec (*sums)[TILE_TOKEN_BLOCK], uint32_t n_q_rows)
{
	for (uint32_t i = 0; i < n_q_rows; i++)
		for (unsigned int j = 0; j < TILE_TOKEN_BLOCK; j++)
			to[i * stride + j] = vec_sum(sums[i][j]);
}

static inline void
vec_transpose(vec *square)
{
	vec transposed[LANES];

	for (unsigned int i = 0; i < LANES; i++)
		EACH_LANE(j)
			transposed[i][j] = square[j][i];
	__builtin_memcpy(square, transposed, sizeof(transposed));
}
