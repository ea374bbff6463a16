/* SPDX-License-Identifier: Apache-2.0 */
/* vm_ops.h's operations for AVX2. */
#include "kernels/mod/vec_avx2.h"
#include "kernels/mod/vm_ops.h"

#include "kernels/mod/vm_body.h"

const struct vm_ops vm_ops_avx2 = VM_OPS;
