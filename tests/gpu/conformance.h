/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the kernels of conformance.cu: input and output are words, which each kernel interprets differently. */
#ifndef TESTS_GPU_CONFORMANCE_H
#define TESTS_GPU_CONFORMANCE_H

#include <stdint.h>

#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONFORMANCE_MAX_THREADS 128
#define CONFORMANCE_SHARED (48u << 10) /* bytes */

struct conformance_params {
	struct cuda_tensor_map map; /* of `in` as halves, for the kernel of clusters */
	const uint32_t *in;
	uint32_t *out; /* zeros before the launch */
	uint32_t n;    /* items, for a kernel without one thread per item */
};

/* Layout of conformance_between's `out`, in words. */
#define CONFORMANCE_BLOCK 64u        /* threads of each block */
#define CONFORMANCE_GRID_RESULTS 8u  /* sum, maximum, or, and the threads and blocks that arrived */
#define CONFORMANCE_BLOCK_RESULTS 4u /* the first three of them, for one block in its shared memory */
#define CONFORMANCE_THREAD_WORDS 8u  /* words that a thread writes for the last block */
#define CONFORMANCE_COMBINED 3u      /* words that a thread of the last block computes from them */
#define CONFORMANCE_MARK_AND_WORDS (1u + CONFORMANCE_THREAD_WORDS) /* a ticket's mark, the thread's words */
#define CONFORMANCE_BETWEEN_WORDS(n_blocks)                                                          \
	(CONFORMANCE_GRID_RESULTS +                                                                  \
	 (n_blocks) * (CONFORMANCE_BLOCK_RESULTS + CONFORMANCE_BLOCK * CONFORMANCE_MARK_AND_WORDS) + \
	 CONFORMANCE_BLOCK * CONFORMANCE_COMBINED)

#define CONFORMANCE_BULK_WORDS (5u * 1024u) /* conformance_bulk: words of a block */
/* conformance_cluster: words of in, two elements each, and of out */
#define CONFORMANCE_CLUSTER_IN (3u * 3u * 30u * 112u / 2u) /* [page][head][token][dim] */
#define CONFORMANCE_CLUSTER_BLOCKS 4u
#define CONFORMANCE_CLUSTER_OUT (CONFORMANCE_CLUSTER_BLOCKS * 5u * 5u * 1024u) /* tiles of 1024 words */
/* conformance_wgmma_*: words of in, two elements each, and of out. */
#define CONFORMANCE_WGMMA_A (64u * 64u / 2u)  /* [row][k] */
#define CONFORMANCE_WGMMA_B (128u * 64u / 2u) /* [column][k] */
#define CONFORMANCE_WGMMA_C (64u * 128u / 2u) /* [k][column] */
#define CONFORMANCE_WGMMA_IN (CONFORMANCE_WGMMA_A + CONFORMANCE_WGMMA_B + CONFORMANCE_WGMMA_C)
#define CONFORMANCE_WGMMA_D (64u * 128u)
#define CONFORMANCE_WGMMA_NARROW (64u * 64u)
/* d, e, and their first halves by narrow products */
#define CONFORMANCE_WGMMA_OUT (2u * (CONFORMANCE_WGMMA_D + CONFORMANCE_WGMMA_NARROW))

/* Does nothing.  A call makes the linker take the kernels from their archive. */
void conformance_link(void);

#ifdef __cplusplus
}
#endif

#endif
