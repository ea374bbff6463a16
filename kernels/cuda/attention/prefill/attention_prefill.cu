/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores for rows with many q_rows, which the planner makes prefill items: for the pools and queries
 * of attention_mma.cu, of dims of at most 128.
 *
 * A block has four warps and a tile of 128 q_rows; a tile of K and V has 64 tokens.  Each warp has 32 q_rows and all
 * tokens, so that a fragment of K or V that is read from shared memory is multiplied twice.  A block of dim 128 needs
 * 81 KiB, and two blocks fit a multiprocessor of every architecture.
 */
#include "kernels/cuda/attention/prefill/attention_prefill.h"

static_assert(sizeof(prefill_shared<prefill_shape<half_elements<true>, 64>>) <= CUDA_PREFILL_SHARED_64,
	      "launchers allocate this much");
static_assert(sizeof(prefill_shared<prefill_shape<half_elements<true>, 128>>) <= CUDA_PREFILL_SHARED_128,
	      "launchers allocate this much");

ATTENTION_INSTANCE_OF(attention_prefill_f16_64, CUDA_PREFILL_THREADS, 2,
	prefill_attend<prefill_shape<half_elements<true>, 64>>)
ATTENTION_INSTANCE_OF(attention_prefill_f16_128, CUDA_PREFILL_THREADS, 2,
	prefill_attend<prefill_shape<half_elements<true>, 128>>)
ATTENTION_INSTANCE_OF(attention_prefill_bf16_64, CUDA_PREFILL_THREADS, 2,
	prefill_attend<prefill_shape<half_elements<false>, 64>>)
ATTENTION_INSTANCE_OF(attention_prefill_bf16_128, CUDA_PREFILL_THREADS, 2,
	prefill_attend<prefill_shape<half_elements<false>, 128>>)
