/* SPDX-License-Identifier: Apache-2.0 */
/* vec_generic.h - vec.h for any CPU */
#ifndef PAGED_KERNELS_MOD_VEC_GENERIC_H
#define PAGED_KERNELS_MOD_VEC_GENERIC_H

#include <math.h>

#define LANES 4u

#include "kernels/mod/vec.h"

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

#endif
