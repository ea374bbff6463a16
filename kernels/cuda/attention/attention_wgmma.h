/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_wgmma.h - what the kernels by wgmma have in common: their warps, matrices in shared memory
 *
 * A block has twelve warps.  Four, the producers, copy to shared memory; eight,
 * the consumers, compute, in two groups of four, as wgmma wants them.
 *
 * Matrices in shared memory are as simt.h's wgmma reads them: of each 64 dims,
 * rows of 128 bytes.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_H

#include "kernels/cuda/attention/attention_q_rows.h"
#include "kernels/cuda/attention/attention_producer.h"

#if SIMT_HAS_WGMMA

#define WGMMA_PRODUCER_WARPS 4u
#define WGMMA_GROUP_WARPS 4u
#define WGMMA_GROUPS 2u
#define WGMMA_CONSUMER_WARPS (WGMMA_GROUPS * WGMMA_GROUP_WARPS)
#define WGMMA_ROW_CHUNKS 8u /* of 16 bytes, in a row of a matrix in shared memory */
/* Registers a thread.  A thread has WGMMA_LAUNCH_REGISTERS at launch, and the block never has more in all. */
#define WGMMA_LAUNCH_REGISTERS (65536u / CUDA_WGMMA_THREADS / 8 * 8)
#define WGMMA_PRODUCER_REGISTERS 40
#define WGMMA_CONSUMER_REGISTERS 232
static_assert(WGMMA_PRODUCER_REGISTERS * WGMMA_PRODUCER_WARPS + WGMMA_CONSUMER_REGISTERS * WGMMA_CONSUMER_WARPS <=
		      WGMMA_LAUNCH_REGISTERS * CUDA_WGMMA_THREADS / 32,
	      "else consumers wait for registers forever");

static_assert(CUDA_WGMMA_THREADS == (WGMMA_PRODUCER_WARPS + WGMMA_CONSUMER_WARPS) * 32, "as above");

/* Consumers of a stage wait until the copy is there (`full`), producers until it has been read (`empty`). */
struct wgmma_barriers {
	uint64_t full, empty;
};

using wgmma_consumers = attention_threads_of<WGMMA_PRODUCER_WARPS * 32, WGMMA_CONSUMER_WARPS * 32>;

SIMT_FUNCTION uint32_t
wgmma_consumer_warp()
{
	return simt_warp() - WGMMA_PRODUCER_WARPS;
}

/* The index of a chunk in a matrix of n_rows rows. */
SIMT_FUNCTION uint32_t
wgmma_index(uint32_t n_rows, uint32_t row, uint32_t chunk)
{
	return (chunk / WGMMA_ROW_CHUNKS * n_rows + row) * WGMMA_ROW_CHUNKS +
	       (chunk % WGMMA_ROW_CHUNKS ^ row % WGMMA_ROW_CHUNKS);
}

#endif

#endif
