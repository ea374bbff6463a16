/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/mod/vec_generic.h"
#include "kernels/mod/vm.h"

static inline fvec
vec_sqrt(fvec v)
{
	for (unsigned int i = 0; i < LANES; i++)
		v[i] = sqrtf(v[i]);
	return v;
}

#include "kernels/mod/vm_body.h"

const struct vm_ops vm_ops_generic = VM_OPS;
