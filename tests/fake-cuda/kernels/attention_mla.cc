/* SPDX-License-Identifier: Apache-2.0 */
/* attention_mla.cu, for the host. */
#include "kernels/cuda/attention/mla/attention_mla.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_mla(void)
{
}
