/* SPDX-License-Identifier: Apache-2.0 */
/* attention_mma.cu, for the host. */
#include "kernels/cuda/attention/decode/attention_mma.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_mma(void)
{
}
