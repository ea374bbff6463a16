/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores, for pools and queries of one half-width dtype and
 * dims that are multiples of 8.
 *
 * A block has four warps.  A wide tile is 64 lines, 16 of each warp, which all
 * see the same keys; a narrow one, for decoding, 16 lines, and each warp has a
 * quarter of the keys and a softmax of its own, merged in the end.  Tiles of
 * keys and values come by cp.async into a ring of stages, rows of 16-byte
 * chunks that are swizzled so that eight rows of a matrix lie in eight banks.
 * Dims are padded with zeros to 64, 128 or 256.
 *
 * Weights are rounded to the pool's dtype before they meet values.
 */
#include "kernels/cuda/attention_items.h"

static_assert(sizeof(attention_mma_shared<attention_shapes<half_elements<true>, 64>>) <= CUDA_MMA_SHARED_64,
	      "as launchers are told");
static_assert(sizeof(attention_mma_shared<attention_shapes<half_elements<true>, 128>>) <= CUDA_MMA_SHARED_128,
	      "as launchers are told");
static_assert(sizeof(attention_mma_shared<attention_shapes<half_elements<true>, 256>>) <= CUDA_MMA_SHARED_256,
	      "as launchers are told");

#if ATTENTION_HAS(attention_mma_f16_64)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_f16_64), 2)
{
	attend<attention_shapes<half_elements<true>, 64>>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_f16_128)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_f16_128), 2)
{
	attend<attention_shapes<half_elements<true>, 128>>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_f16_256)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_f16_256), 1)
{
	attend<attention_shapes<half_elements<true>, 256>>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_bf16_64)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_bf16_64), 2)
{
	attend<attention_shapes<half_elements<false>, 64>>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_bf16_128)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_bf16_128), 2)
{
	attend<attention_shapes<half_elements<false>, 128>>(p);
}
#endif

#if ATTENTION_HAS(attention_mma_bf16_256)
ATTENTION_KERNEL(ATTENTION_NAME(attention_mma_bf16_256), 1)
{
	attend<attention_shapes<half_elements<false>, 256>>(p);
}
#endif
