/* SPDX-License-Identifier: Apache-2.0 */
/* plan.cu for the host. */
#include "kernels/cuda/plan.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_plan(void)
{
}
