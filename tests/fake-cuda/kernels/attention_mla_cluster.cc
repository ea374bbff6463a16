/* SPDX-License-Identifier: Apache-2.0 */
/* attention_mla_cluster.cu, for the host. */
#include "kernels/cuda/attention/mla/attention_mla_cluster.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_mla_cluster(void)
{
}
