/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mod/grid.h"

#define LANES 4u

typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef double dvec __attribute__((vector_size(4 * LANES)));
typedef int64_t lvec __attribute__((vector_size(4 * LANES)));
typedef int32_t half __attribute__((vector_size(2 * LANES)));

static inline uint32_t
vec_bits(ivec v)
{
	uint32_t bits = 0;

	for (unsigned int i = 0; i < LANES; i++)
		bits |= (uint32_t)(v[i] & 1) << i;
	return bits;
}

#include "kernels/mod/grid_body.h"

const struct grid_ops grid_ops_generic = GRID_OPS;
