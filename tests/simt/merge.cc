/* SPDX-License-Identifier: Apache-2.0 */
/* merge.cu for the host. */
#include "kernels/cuda/merge.cu"
#include "tests/simt/kernels.h"

void
simt_link_merge(void)
{
}
