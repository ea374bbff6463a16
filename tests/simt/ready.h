/* SPDX-License-Identifier: Apache-2.0 */
/* Before a ready-made mod's source: its kernels for the stand-in, one of four, for each takes some time. */
#define ATTENTION_ONE
#define ATTENTION_ONLY_attention_mma_bf16_64 1
