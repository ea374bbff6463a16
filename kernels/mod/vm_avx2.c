/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kernels/mod/vec_avx2.h"
#include "kernels/mod/vm.h"

static inline fvec
vec_sqrt(fvec v)
{
	return (fvec)_mm256_sqrt_ps((__m256)v);
}

#include "kernels/mod/vm_body.h"

const struct vm_ops vm_ops_avx2 = VM_OPS;
