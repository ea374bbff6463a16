/* SPDX-License-Identifier: Apache-2.0 */
/* pages.cu for the host. */
#include "kernels/cuda/pages.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_pages(void)
{
}
