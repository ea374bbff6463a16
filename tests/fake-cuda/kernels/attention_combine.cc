/* SPDX-License-Identifier: Apache-2.0 */
/* attention_combine.cu, for the host. */
#include "kernels/cuda/attention/attention_combine.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_combine(void)
{
}
