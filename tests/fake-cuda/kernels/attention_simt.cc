/* SPDX-License-Identifier: Apache-2.0 */
/* attention_simt.cu for the host. */
#include "kernels/cuda/attention/decode/attention_simt.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_simt(void)
{
}
