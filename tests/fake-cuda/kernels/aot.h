/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before the source of an ahead-of-time compiled mod.  Selects four of its kernels for the fake CUDA driver,
 * because each takes long to compile.
 */
#define ATTENTION_ONE
#define ATTENTION_ONLY_attention_mma_bf16_64 1
#define ATTENTION_ONLY_attention_bulk_bf16_64 1
#define ATTENTION_ONLY_attention_prefill_bf16_64 1
#define ATTENTION_ONLY_attention_wgmma_bf16_64 1
