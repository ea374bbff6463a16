/* SPDX-License-Identifier: Apache-2.0 */
/* pages.cu for the host. */
#include "kernels/cuda/pages.cu"
#include "tests/simt/kernels.h"

void
simt_link_pages(void)
{
}
