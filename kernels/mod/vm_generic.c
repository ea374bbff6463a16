/* SPDX-License-Identifier: Apache-2.0 */
/* vm_ops.h's operations for any CPU. */
#include "kernels/mod/vec_generic.h"
#include "kernels/mod/vm_ops.h"

#include "kernels/mod/vm_body.h"

const struct vm_ops vm_ops_generic = VM_OPS;
