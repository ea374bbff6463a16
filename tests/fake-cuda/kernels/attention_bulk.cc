/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bulk.cu, for the host. */
#include "kernels/cuda/attention/decode/attention_bulk.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_bulk(void)
{
}
