/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_producer.h - kernels in which some warps, the producers, copy for the others, the consumers
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_PRODUCER_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_PRODUCER_H

#include "kernels/cuda/attention/attention.h"

#if SIMT_HAS_BARRIERS

/* What the warp has read or written may now be written or read by those who wait at the barrier. */
SIMT_FUNCTION void
warp_arrive(uint64_t *barrier)
{
	simt_warp_sync();
	if (simt_lane() == 0)
		simt_barrier_arrive(barrier);
}

/*
 * Begin a span of the item's tokens and return its end: those of one bitmap if there is a block mask, else all.  All
 * threads call; the CONSUMERS, who set `consumes`, make the bitmap.
 */
template <class CONSUMERS, uint32_t Q_ROWS>
SIMT_FUNCTION uint32_t
span_begin(const cuda_attention_params &p, attention_block_of<Q_ROWS> &block, const attention_work_item &item,
	   uint32_t begin, bool consumes)
{
	if (has_block_mask(p)) {
		simt_sync(); /* all warps have read the bitmap before, or what was in its memory */
		if (consumes)
			mask_bitmap_build<CONSUMERS>(p, item, begin / CUDA_MASK_BITMAP_TOKENS * CUDA_MASK_BITMAP_TOKENS,
						     block.mask_bitmap);
		simt_sync();
	}
	return mask_bitmap_end(p, item, begin);
}

#endif

#endif
