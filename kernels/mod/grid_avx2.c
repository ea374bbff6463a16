/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kernels/mod/grid.h"

#define LANES 8u

typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef double dvec __attribute__((vector_size(4 * LANES)));
typedef int64_t lvec __attribute__((vector_size(4 * LANES)));
typedef int32_t half __attribute__((vector_size(2 * LANES)));

static inline uint32_t
vec_bits(ivec v)
{
	return (uint32_t)_mm256_movemask_ps((__m256)v);
}

#include "kernels/mod/grid_body.h"

const struct grid_ops grid_ops_avx2 = GRID_OPS;
