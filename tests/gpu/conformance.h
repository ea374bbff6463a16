/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of conformance.cu take: words in, words out, however each reads them. */
#ifndef TESTS_GPU_CONFORMANCE_H
#define TESTS_GPU_CONFORMANCE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONFORMANCE_MAX_THREADS 128
#define CONFORMANCE_SHARED 4096 /* bytes */

struct conformance_params {
	const uint32_t *in;
	uint32_t *out; /* zeros at first */
	uint32_t n;    /* items, where a kernel is not a thread for each */
};

/* The words of conformance_between's `out`. */
#define CONFORMANCE_BLOCK 64u                        /* threads of each block */
#define CONFORMANCE_TOTALS 8u                        /* sum, maximum, or, threads and blocks that came */
#define CONFORMANCE_OF_BLOCK 4u                      /* the first three of a block's shared memory */
#define CONFORMANCE_ROW 8u                           /* what a thread leaves for the last block */
#define CONFORMANCE_MERGED 3u                        /* what a thread of the last block makes of them */
#define CONFORMANCE_OF_THREAD (1u + CONFORMANCE_ROW) /* a mark for each ticket, and the row */
#define CONFORMANCE_BETWEEN_WORDS(n_blocks)                                                                     \
	(CONFORMANCE_TOTALS + (n_blocks) * (CONFORMANCE_OF_BLOCK + CONFORMANCE_BLOCK * CONFORMANCE_OF_THREAD) + \
	 CONFORMANCE_BLOCK * CONFORMANCE_MERGED)

/* Does nothing; who calls it has the kernels out of their archive. */
void conformance_link(void);

#ifdef __cplusplus
}
#endif

#endif
