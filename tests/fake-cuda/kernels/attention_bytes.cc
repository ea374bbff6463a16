/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bytes.cu for the host. */
#include "kernels/cuda/attention/decode/attention_bytes.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_bytes(void)
{
}
