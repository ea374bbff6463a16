/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec.h - compiler vectors of LANES ints, and operations common to all instruction sets
 *
 * Each vec_*.h includes it after it defines LANES, and adds vec_sqrt(fvec) and vec_bits(ivec), one bit per
 * lane.  A condition has all or no bits of a lane set.
 */
#ifndef PAGED_KERNELS_MOD_VEC_H
#define PAGED_KERNELS_MOD_VEC_H

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef float fvec __attribute__((vector_size(4 * LANES)));
/* Half as many lanes: two of them hold the lanes of an ivec. */
typedef double dvec __attribute__((vector_size(4 * LANES)));
typedef int64_t lvec __attribute__((vector_size(4 * LANES)));
typedef int32_t half __attribute__((vector_size(2 * LANES)));

INLINE ivec
ivec_splat(int32_t x)
{
	return (ivec){ 0 } + x;
}

INLINE ivec
ivec_load(const int32_t *at)
{
	ivec v;

	memcpy(&v, at, sizeof(v));
	return v;
}

INLINE ivec
ivec_select(ivec condition, ivec yes, ivec no)
{
	return (condition & yes) | (~condition & no);
}

/* Wrapping addition, through unsigned: signed overflow is undefined for vectors as for ints. */
INLINE ivec
ivec_add(ivec a, ivec b)
{
	return (ivec)((uvec)a + (uvec)b);
}

INLINE ivec
ivec_sub(ivec a, ivec b)
{
	return (ivec)((uvec)a - (uvec)b);
}

INLINE ivec
ivec_mul(ivec a, ivec b)
{
	return (ivec)((uvec)a * (uvec)b);
}

/* One half of the lanes (part 0 or 1) as doubles. */
INLINE dvec
vec_double(ivec v, uint32_t part)
{
	half from;

	memcpy(&from, (const char *)&v + part * sizeof(from), sizeof(from));
	return __builtin_convertvector(from, dvec);
}

/* Both halves as ints, rounded towards 0. */
INLINE ivec
vec_truncate(dvec low, dvec high)
{
	half parts[2] = { __builtin_convertvector(low, half), __builtin_convertvector(high, half) };
	ivec v;

	memcpy(&v, parts, sizeof(v));
	return v;
}

#endif
