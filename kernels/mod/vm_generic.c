/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/mod/vm.h"

#define LANES 4u

typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef float fvec __attribute__((vector_size(4 * LANES)));
typedef double dvec __attribute__((vector_size(4 * LANES)));
typedef int32_t half __attribute__((vector_size(2 * LANES)));

static inline fvec
vec_sqrt(fvec v)
{
	for (unsigned int i = 0; i < LANES; i++)
		v[i] = sqrtf(v[i]);
	return v;
}

static inline uint32_t
vec_bits(ivec v)
{
	uint32_t bits = 0;

	for (unsigned int i = 0; i < LANES; i++)
		bits |= (uint32_t)(v[i] & 1) << i;
	return bits;
}

#include "kernels/mod/vm_body.h"

const struct vm_ops vm_ops_generic = VM_OPS;
