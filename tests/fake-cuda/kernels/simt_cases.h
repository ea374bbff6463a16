/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the kernels in simt_cases.cu, shared with their tests. */
#ifndef TESTS_FAKE_CUDA_KERNELS_SIMT_CASES_H
#define TESTS_FAKE_CUDA_KERNELS_SIMT_CASES_H

#include "kernels/cuda/kernels.h"

/* The one bug that a kernel has on purpose, and that the simulator must report. */
enum simt_bug {
	BUG_NONE,
	BUG_NO_BARRIER,        /* between writing and reading shared memory */
	BUG_DIVERGENT_BARRIER, /* two barriers on the two sides of a condition */
	BUG_EARLY_END,         /* one thread never reaches the barrier */
	BUG_DIVERGENT_SHUFFLE,
	BUG_PARTIAL_SHUFFLE, /* half of a warp calls it */
	BUG_READ_PAST,
	BUG_WRITE_PAST,
	BUG_WRITE_INPUT,
	BUG_UNALIGNED,
	BUG_WEAK_WAIT,    /* waits for one copy group too few */
	BUG_NO_WARP_SYNC, /* no warp sync after waiting for copies that other lanes began */
	BUG_EARLY_REUSE,  /* overwrites a pipeline stage that other threads still read */
	BUG_NO_WAIT,
	BUG_NO_FENCE,       /* a relaxed ticket marks a block as done */
	BUG_SHARED_FENCE,   /* the same, followed by a fence and an atomic on shared memory */
	BUG_NO_TICKET_SYNC, /* takes the ticket before the block's other threads have written */
	BUG_BLOCK_ORDER,    /* the block with the highest number merges, as if it always ran last */
	BUG_SPIN,           /* spins until all blocks have arrived, as if all were resident */
	BUG_WRONG_COUNT,    /* wrong number of threads at a named barrier */
	BUG_PLAIN_COUNT,    /* counts without atomics */
	BUG_STACK,          /* infinite recursion */
	BUG_EARLY_READ,     /* before the wait for the launch before, in a dependent launch */
	BUG_EARLY_WRITE,
	BUG_EARLY_ATOMIC,
	BUG_EARLY_COPY,
	BUG_NO_DEPENDENCY_WAIT, /* in one thread */
	BUG_NO_PROXY_FENCE,     /* between a copy and the product that reads it */
	BUG_NO_WGMMA_FENCE,     /* before the first product */
	BUG_NO_WGMMA_WAIT,      /* uses accumulators of products in flight */
	BUG_OTHER_MATRIX,       /* one warp of a group multiplies another matrix */
	BUG_REGISTERS,          /* warps ask for more registers than the block has */
	BUG_LOST_ARRIVAL,       /* one thread does not arrive at a barrier */
	BUG_LATE_READER,        /* overwrites what a warp reads that has not arrived at the barrier */
	BUG_UNALIGNED_MAP,      /* the tensor map does not begin at a multiple of 64 */
	BUG_LOCAL_MAP,          /* the tensor map is a copy in a local variable */
	BUG_FAR_GLOBAL,         /* reads what the other block wrote to global memory before it arrived at a barrier */
	BUG_NEAR_GLOBAL,        /* the same of its own block, which arrived as the other one did */
	BUG_COPIED_GLOBAL,      /* reads what a thread of the other block wrote before it copied to both */
	BUG_OTHER_SHARED,       /* uses an address in the shared memory of the cluster's other block */
	BUG_LOST_COPY,          /* no thread waits for the last copy */
	BUG_NO_LAST_SYNC,       /* blocks of a cluster end without waiting for each other */
};

struct simt_exchange_params {
	uint32_t *out; /* [n_threads][8] */
	enum simt_bug bug;
};

struct simt_reverse_params {
	const uint32_t *in; /* [n_threads] */
	uint32_t *out;
	enum simt_bug bug;
};

#define READERS_CASE_ROUNDS 3u

struct simt_readers_params {
	uint32_t *out;   /* [128]: sums of the bytes that the thread reads in all rounds */
	uint32_t absent; /* the number of a warp that does not meet the others before bytes are overwritten; 0: none */
	enum simt_bug bug;
};

struct simt_pipeline_params {
	const uint32_t *in; /* [n_stages][n_threads][4] */
	uint32_t *out;      /* [n_threads]: sums of the words that a neighbour's copies loaded */
	uint32_t n_stages;
	enum simt_bug bug;
};

struct simt_sum_params {
	const uint32_t *in; /* [n_blocks][n_threads] */
	uint32_t *partial;  /* [n_blocks][n_threads] */
	uint32_t *ticket;
	uint32_t *out; /* [n_threads] */
	enum simt_bug bug;
};

struct simt_matrix_params {
	const uint16_t *a; /* [16][16] */
	const uint16_t *b; /* [k 16][n 8] */
	float *d;          /* [16][8], added to */
	uint32_t f16;
};

#define WGMMA_CASE_THREADS 384

struct simt_wgmma_params {
	const uint16_t *a; /* [row 64][k 64] */
	const uint16_t *b; /* [column 128][k 64] */
	const uint16_t *c; /* [k 64][column 128]: of a product whose A are the first 64 columns of d */
	float *d;          /* [64][128] */
	float *e;          /* [64][128] */
	float *d_narrow;   /* [64][64]: d's first columns, by products of 64 */
	float *narrow;     /* [64][64]: e's first columns, by products of 64 */
	uint32_t f16;
	enum simt_bug bug;
};

#define BULK_CASE_THREADS 160
#define BULK_CASE_ROUNDS 5u
#define BULK_CASE_WORDS 1024u

struct simt_bulk_params {
	const uint32_t *in; /* [BULK_CASE_ROUNDS][BULK_CASE_WORDS] */
	uint32_t *out;      /* the same words; in every second round, zeros in the second half */
	enum simt_bug bug;
};

#define CLUSTER_CASE_THREADS 192
#define CLUSTER_CASE_ROUNDS 5u
#define CLUSTER_CASE_BOX_TOKENS 4u
#define CLUSTER_CASE_BOX_HEADS 2u
#define CLUSTER_CASE_BOX_ROWS (CLUSTER_CASE_BOX_TOKENS * CLUSTER_CASE_BOX_HEADS)
/* In a round, each matrix of 64 columns receives a tile, which is boxes one below the other. */
#define CLUSTER_CASE_MATRICES 5u
#define CLUSTER_CASE_TILE_BOXES 4u
#define CLUSTER_CASE_TILE_ROWS (CLUSTER_CASE_TILE_BOXES * CLUSTER_CASE_BOX_ROWS)
#define CLUSTER_CASE_ROUND_WORDS (CLUSTER_CASE_MATRICES * CLUSTER_CASE_TILE_ROWS * 32u)
#define CLUSTER_CASE_WORDS (CLUSTER_CASE_ROUNDS * CLUSTER_CASE_ROUND_WORDS) /* of a block */
/*
 * A tensor, the number of a box of a tile, and the place of that box for a matrix.  Some boxes lie in part outside the
 * tensor, in x, in tokens or in heads, and some not in it at all: their page is the number of pages, or x is too large.
 */
#define CLUSTER_CASE_DIM 112u
#define CLUSTER_CASE_TOKENS 30u
#define CLUSTER_CASE_HEADS 3u
#define CLUSTER_CASE_PAGES 3u
#define CLUSTER_CASE_BOX(cluster, round, i) (((cluster)*CLUSTER_CASE_ROUNDS + (round)) * CLUSTER_CASE_TILE_BOXES + (i))
#define CLUSTER_CASE_X(matrix) ((CLUSTER_CASE_MATRICES - 1 - (matrix)) * 32u)
#define CLUSTER_CASE_TOKEN(box) ((box) % 8u * CLUSTER_CASE_BOX_TOKENS)
#define CLUSTER_CASE_HEAD(box) ((box) / 8u % 2u * CLUSTER_CASE_BOX_HEADS)
#define CLUSTER_CASE_PAGE(box) ((box) / 3u % (CLUSTER_CASE_PAGES + 1))

struct simt_cluster_params {
	struct cuda_tensor_map map; /* [page][head][token][x] */
	uint32_t *out;              /* [n_blocks][round][matrix][row of the tile][32] */
	enum simt_bug bug;
};

struct simt_convert_params {
	const float *in;
	uint16_t *bf16, *f16;
	uint8_t *e4m3;
	float *from_bf16, *from_f16, *from_e4m3, *exp2, *log2; /* from_*: conversions back of the results above */
	uint32_t n;
};

struct simt_bytes_params {
	const float *in;                 /* [n + 1] */
	uint16_t *e4m3, *e5m2;           /* [n]: in[i] and in[i + 1] converted by the instruction */
	uint16_t *e4m3_bits, *e5m2_bits; /* the same by bit operations */
	uint32_t *halves;                /* [65536][4]: two codes widened: e4m3, e5m2, by the instruction and by bits */
	uint32_t n;
};

struct simt_widen_params {
	uint32_t *f16, *bf16; /* [256][2][2]: codes i, i + 1, i + 2 and i + 3 in pairs of STEP 1 and 2, bf16 of i8 */
	uint32_t *wild;       /* [256] */
	uint32_t dtype;
};

#ifndef __CUDACC_RTC__ /* it compiles no host functions */
/* Does nothing.  A call makes the linker take the kernels from their archive; no other symbol refers to them. */
#ifdef __cplusplus
extern "C" {
#endif
void simt_cases_link(void);
#ifdef __cplusplus
}
#endif
#endif

#endif
