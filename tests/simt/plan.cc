/* SPDX-License-Identifier: Apache-2.0 */
/* plan.cu for the host. */
#include "kernels/cuda/plan.cu"
#include "tests/simt/kernels.h"

void
simt_link_plan(void)
{
}
