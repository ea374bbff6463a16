/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kernels/mod/vm.h"

#define LANES 16u

typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef float fvec __attribute__((vector_size(4 * LANES)));
typedef double dvec __attribute__((vector_size(4 * LANES)));
typedef int32_t half __attribute__((vector_size(2 * LANES)));

static inline fvec
vec_sqrt(fvec v)
{
	return (fvec)_mm512_sqrt_ps((__m512)v);
}

static inline uint32_t
vec_bits(ivec v)
{
	return _mm512_movepi32_mask((__m512i)v);
}

#include "kernels/mod/vm_body.h"

const struct vm_ops vm_ops_avx512 = VM_OPS;
