/* SPDX-License-Identifier: Apache-2.0 */
/* vm_ops.h's operations for AVX-512. */
#include "kernels/mod/vec_avx512.h"
#include "kernels/mod/vm_ops.h"

#include "kernels/mod/vm_body.h"

const struct vm_ops vm_ops_avx512 = VM_OPS;
