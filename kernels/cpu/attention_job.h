/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_job.h - one kernel_attention() call: its arguments, how it is divided, and the functions that it uses
 *
 * A q_row is one (query, query head) pair.  Three units of work are nested:
 *   - A work item is the unit that a thread takes (schedule.h): q_rows of one row of the batch, under
 *     one or more KV heads.
 *   - A KV chunk is KERNEL_KV_CHUNK tokens.  An item walks the chunks that its q_rows see; an item of a
 *     split row has one chunk.  Each chunk has a softmax state of its own, and combine.c combines these
 *     states in chunk order, whichever threads computed them.
 *   - A tile is TILE_TOKENS tokens of a chunk.  decode.c processes one tile of an item with few q_rows,
 *     prefill.c one tile of an item with many; on instruction sets with tile_prefill_ops.pipeline_step,
 *     prefill.c processes a chunk at a time.
 */
#ifndef PAGED_KERNELS_CPU_ATTENTION_JOB_H
#define PAGED_KERNELS_CPU_ATTENTION_JOB_H

#include "kernels/cpu/tile.h"

/** Counts and limits that schedule.c computes once per call. */
struct schedule {
	uint64_t limit;       /* a row is split if its cost under one KV head is above this */
	uint64_t heads_limit; /* upper limit of the cost of an item with several KV heads */
	uint64_t classes;     /* bit c: some items cost 2^c or more, below 2^(c + 1) */
	uint64_t n_items;     /* of all rows; the next three count split rows only */
	uint64_t n_chunks;    /* items of one KV chunk; each has a state in the workspace */
	uint64_t n_combines;  /* query tiles whose states must be combined */
	uint32_t max_q_rows;  /* most q_rows of one state in the workspace */
};

struct attention_job {
	const struct attention_args *args;
	const struct kernel_tile_ops *ops;
	uint32_t group;    /* query heads per KV head */
	uint32_t k_padded; /* K dim, padded for the products of decode; v_padded is the V dim */
	uint32_t v_padded;
	/*
	 * Whether products may use bf16 pairs. bf16 must represent the pool's elements exactly; in
	 * addition, q must be bf16 for scores, and out for values.
	 */
	bool scores_bf16, values_bf16;
	/* The functions for pairs, if they are allowed and the instruction set has them; else NULL. */
	const struct tile_decode_bf16_ops *decode_scores, *decode_values;
	tile_values_fn values;
	tile_values_seen_fn values_seen;
	struct schedule schedule;
	float *workspace; /* states of split rows' chunks: [q_row] row_max, [q_row] row_sum, [q_row][v_padded] values */
	size_t state_floats; /* floats of one state */
	/* threads take the next item before they process the current one, to prefetch its first keys */
	bool prefetch_items;
	/* For rows that use prefill: */
	const struct tile_prefill_ops *prefill_scores, *prefill_values;
	uint32_t packed_k;       /* elements of a packed query or key */
	uint32_t prefill_q_rows; /* a row with at least this many q_rows uses prefill */
	uint32_t item_q_rows;    /* most q_rows of an item under one KV head */
	uint32_t tile_q_rows;    /* q_rows of an item that share a state */
	bool pipelined;          /* chunks are multiplied in pipelined blocks of tiles */
};

#endif
