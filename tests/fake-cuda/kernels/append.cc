/* SPDX-License-Identifier: Apache-2.0 */
/* append.cu for the host. */
#include "kernels/cuda/append.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_append(void)
{
}
