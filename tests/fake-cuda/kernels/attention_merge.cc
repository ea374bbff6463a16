/* SPDX-License-Identifier: Apache-2.0 */
/* attention_merge.cu for the host. */
#include "kernels/cuda/attention/attention_merge.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_merge(void)
{
}
