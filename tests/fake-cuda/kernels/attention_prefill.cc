/* SPDX-License-Identifier: Apache-2.0 */
/* attention_prefill.cu, for the host. */
#include "kernels/cuda/attention/prefill/attention_prefill.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_prefill(void)
{
}
