/* SPDX-License-Identifier: Apache-2.0 */
/* Some kernels of attention_bytes.cu with a mod that reads arrays, for the host. */
#define ATTENTION_MOD "tests/fake-cuda/kernels/mod_document.h"
#define ATTENTION_SUFFIX _document
#define ATTENTION_ONE
#define ATTENTION_ONLY_attention_bytes_e5m2_f16_64 1
#define ATTENTION_ONLY_attention_bytes_e4m3_bf16_64 1
#define ATTENTION_ONLY_attention_bytes_i8_bf16_64 1
#include "kernels/cuda/attention/decode/attention_bytes.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_bytes_document(void)
{
}
