/* SPDX-License-Identifier: Apache-2.0 */
/* attention_wgmma.cu, for the host. */
#include "kernels/cuda/attention/prefill/attention_wgmma.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_wgmma(void)
{
}
