/* SPDX-License-Identifier: Apache-2.0 */
/* merge.cu for the host. */
#include "kernels/cuda/merge.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_merge(void)
{
}
