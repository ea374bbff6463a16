/* SPDX-License-Identifier: Apache-2.0 */
/* Some kernels of attention_bytes.cu with a mod, for the host: of each dtype, and of each shape of tiles. */
#define ATTENTION_MOD "tests/fake-cuda/kernels/mod_window.h"
#define ATTENTION_SUFFIX _window
#define ATTENTION_ONE
#define ATTENTION_ONLY_attention_bytes_e4m3_f16_64 1
#define ATTENTION_ONLY_attention_bytes_e5m2_f16_64 1
#define ATTENTION_ONLY_attention_bytes_i8_f16_64 1
#define ATTENTION_ONLY_attention_bytes_e4m3_bf16_64 1
#define ATTENTION_ONLY_attention_bytes_e5m2_bf16_64 1
#define ATTENTION_ONLY_attention_bytes_i8_bf16_64 1
#define ATTENTION_ONLY_attention_bytes_e4m3_bf16_128 1
#define ATTENTION_ONLY_attention_bytes_i8_bf16_256 1
#include "kernels/cuda/attention/decode/attention_bytes.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_bytes_window(void)
{
}
