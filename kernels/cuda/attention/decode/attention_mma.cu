/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores, for pools and queries of the same dtype, f16 or
 * bf16, and dims that are multiples of 8.
 *
 * A block has four warps.  A wide tile has 64 q_rows: each warp has 16 q_rows
 * and all of the tile's keys.  A narrow tile, for decode, has 16 q_rows: each
 * warp has all q_rows, a quarter of the keys and its own softmax state; the
 * states are combined at the end.  Tiles of keys and values are copied by
 * cp.async to a ring of stages, as rows of 16-byte chunks that are swizzled
 * against bank conflicts.  Dims are padded with zeros to 64, 128 or 256.
 *
 * Weights are rounded to the pool's dtype before they are multiplied by
 * values.
 */
#include "kernels/cuda/attention/attention_halves.h"
#include "kernels/cuda/attention/attention_mma.h"

template <uint32_t DIM> using shapes = attention_shapes<half_elements<true>, DIM>;
static_assert(mma_shared_size<shapes<64>> <= CUDA_MMA_SHARED_64 &&
		      mma_shared_size<shapes<128>> <= CUDA_MMA_SHARED_128 &&
		      mma_shared_size<shapes<256>> <= CUDA_MMA_SHARED_256,
	      "launchers allocate this much");
static_assert(mma_least_shared_size<shapes<128>> <= CUDA_MMA_SHARED_128_LEAST &&
		      mma_least_shared_size<shapes<256>> <= CUDA_MMA_SHARED_256_LEAST,
	      "launchers allocate this much where a block has less");

ATTENTION_INSTANCE(attention_mma_f16_64, 2, mma_attend<attention_shapes<half_elements<true>, 64>>)
ATTENTION_INSTANCE(attention_mma_f16_128, 2, mma_attend<attention_shapes<half_elements<true>, 128>>)
ATTENTION_INSTANCE(attention_mma_f16_256, 1, mma_attend<attention_shapes<half_elements<true>, 256>>)
ATTENTION_INSTANCE(attention_mma_bf16_64, 2, mma_attend<attention_shapes<half_elements<false>, 64>>)
ATTENTION_INSTANCE(attention_mma_bf16_128, 2, mma_attend<attention_shapes<half_elements<false>, 128>>)
ATTENTION_INSTANCE(attention_mma_bf16_256, 1, mma_attend<attention_shapes<half_elements<false>, 256>>)
