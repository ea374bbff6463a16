/* SPDX-License-Identifier: Apache-2.0 */
/**
 * work.h - the units of work of a kernel_attention() call: work items, query tiles, KV tiles
 *
 * attention_job.h says how they are nested.
 */
#ifndef PAGED_KERNELS_CPU_WORK_H
#define PAGED_KERNELS_CPU_WORK_H

#include "kernels/cpu/tile.h"

/** Most KV heads of one work item, and most q_rows per KV head in a decode item. */
#define ITEM_HEADS 16u
#define DECODE_Q_ROWS 16u

/** Prefill: most query tiles of an item, which share packed tiles, and their most q_rows. */
#define ITEM_Q_TILES 16u
#define ITEM_Q_ROWS (ITEM_Q_TILES * BLOCK_Q_ROWS)

/** A range of q_rows of one row of the batch: (query, query head) pairs, the heads of a KV head innermost. */
struct q_tile {
	const struct kernel_row *row;
	uint32_t kv_head; /* first of n_heads KV heads */
	uint32_t n_heads; /* more than 1 only for decode without a block mask */
	uint64_t first;
	uint32_t n;  /* q_rows of each KV head */
	uint32_t at; /* index of the first q_row within the work item, over all its KV heads */
};

/**
 * How many of the keys that kv_len and `causal` allow are visible: none, some, all.  A tile in which kv_first hides
 * keys is not FULL.
 */
enum tile_mask { TILE_EMPTY, TILE_PARTIAL, TILE_FULL };

/** A tile that a work item must visit. */
struct kv_tile {
	uint64_t begin;       /* first token */
	enum tile_mask mask;  /* not TILE_EMPTY */
	enum tile_mask chunk; /* mask of the tile's KV chunk */
};

/** Visibility of one tile for a query tile. */
struct tile_view {
	uint32_t begin, n_tokens;
	enum tile_mask mask;
	uint32_t first;  /* first q_row that sees a token */
	uint64_t wanted; /* bit t: some q_row sees token t */
};

/** A thread processes one item at a time. */
struct work_item {
	struct q_tile q; /* decode: TILE_Q_ROWS q_rows at most, over all KV heads; prefill: ITEM_Q_ROWS at most */
	bool prefill;    /* its row has at least attention_job.prefill_q_rows q_rows */
	uint64_t kv_begin, kv_end;
	struct kv_tile first; /* first tile to visit */
	float *workspace;     /* for the state, if the item is one chunk of a split row; else NULL */
};

/** The tile that a thread processes next, if that is known. */
struct next_tile {
	const struct work_item *item;
	struct kv_tile tile; /* tile.begin at or past item->kv_end: none */
};

#endif
