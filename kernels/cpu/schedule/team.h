/* SPDX-License-Identifier: Apache-2.0 */
/**
 * team.h - threads that share the units of one call
 *
 * The caller works too.  A helper that wakes too late for a call skips it, so a busy machine costs
 * throughput but never adds waiting.  Units are numbered from 0 and taken in that order.  Which thread
 * takes a unit is not deterministic, so a unit's result must not depend on it.  No thread waits for
 * another inside a call, so the caller's run() may also execute its parts one after another.
 */
#ifndef PAGED_KERNELS_CPU_TEAM_H
#define PAGED_KERNELS_CPU_TEAM_H

#include <stdatomic.h>

#include "kernels/cpu/tile_mask.h"
#include "kernels/cpu/tile.h"

/** Most KV heads of one work item, and most q_rows per KV head in a decode item. */
#define ITEM_HEADS 16u
#define DECODE_Q_ROWS 16u

/** Prefill: most query tiles of an item, which share packed tiles, and their most q_rows. */
#define ITEM_Q_TILES 16u
#define ITEM_Q_ROWS (ITEM_Q_TILES * BLOCK_STRIP)
/** Blocks in the pipeline at once. */
#define TEAM_BLOCKS 3u
/** Score buffers of the pipeline: the newest block's scores reuse the buffer of the oldest block's weights. */
#define TEAM_SCORES 2u

/** A range of q_rows of one row of the batch: (query, query head) pairs, the heads of a KV head innermost. */
struct q_tile {
	const struct kernel_row *row;
	uint32_t kv_head; /* first of n_heads KV heads */
	uint32_t n_heads; /* more than 1 only for decode without a block mask */
	uint64_t first;
	uint32_t n;  /* q_rows of each KV head */
	uint32_t at; /* index of the first q_row within the work item, over all its KV heads */
};

/** The unit that a thread takes at a time. */
struct work_item {
	struct q_tile q; /* decode: TILE_LINES q_rows at most, over all KV heads; prefill: ITEM_Q_ROWS at most */
	bool prefill;    /* its row has many q_rows */
	uint64_t kv_begin, kv_end;
	struct kv_tile first; /* first tile to visit */
	float *workspace;     /* for the state, if the item is one chunk of a cut row; else NULL */
};

/** A tile packed for the query tiles of an item. */
struct team_packed {
	uint32_t n_tokens;   /* 0: not packed */
	uint64_t wanted;     /* tokens that were packed */
	uint64_t non_finite; /* tokens left out because they have NaN or infinite values */
	_Alignas(64) float k_panels[TILE_TOKENS * PAGED_MAX_DIM / 2];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM / 2];
	float k_scale[TILE_TOKENS], v_scale[TILE_TOKENS]; /* for i8 */
};

/** A block of the pipeline and the query tile it belongs to. */
struct team_block {
	struct q_tile q;
	bool last; /* last block of its query tile and chunk */
	struct tile_view view[BLOCK_TILES];
	_Alignas(64) struct tile_block block;
};

/** Scratch memory of one thread; lives as long as the team. */
struct team_scratch {
	uint32_t thread;                                       /* thread number in the team; the caller is 0 */
	_Atomic uint64_t section;                              /* last section that run() used it in */
	_Alignas(64) float q[ITEM_Q_ROWS / 2 * PAGED_MAX_DIM]; /* all q_rows in bf16, or half as many in f32 */
	uint16_t q16[TILE_LINES * PAGED_MAX_DIM];              /* q in bf16, if scores use products of pairs */
	/*
	 * States of an item's query tiles: over all its chunks, and over one chunk (pipelined: of the
	 * tiles in flight).
	 */
	struct tile_state total[ITEM_Q_TILES], chunk[ITEM_HEADS];
	float total_values[ITEM_Q_ROWS * PAGED_MAX_DIM];
	float chunk_values[TEAM_BLOCKS * BLOCK_STRIP * PAGED_MAX_DIM];
	float k[TILE_TOKENS * PAGED_MAX_DIM];
	float v[TILE_TOKENS * PAGED_MAX_DIM];
	float k_panels[TILE_TOKENS * PAGED_MAX_DIM];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM];
	struct tile_scores scores;
	struct tile_rows k_rows, v_rows, made_rows;
	struct tile_rows next_keys; /* of the tile at next_begin; UINT64_MAX: none */
	uint64_t next_begin;
	float scale[TILE_TOKENS]; /* for i8: the tokens' scales */
	struct mask_rows mask;
	struct team_packed packed[KERNEL_SPLIT / TILE_TOKENS];
	struct team_block block[TEAM_BLOCKS];
	struct tile_scores block_scores[TEAM_SCORES][BLOCK_TILES];
};

_Static_assert(KERNEL_MANY_LINES - 1 <= DECODE_Q_ROWS && KERNEL_MANY_LINES_AMX - 1 <= DECODE_Q_ROWS,
	       "queries of rows with few query rows fit");
_Static_assert(ITEM_Q_ROWS >= 2 * TILE_LINES, "q has room for the query rows of a tile in f32");
_Static_assert(ITEM_Q_TILES >= ITEM_HEADS && ITEM_HEADS >= TEAM_BLOCKS, "each query tile has its states");
_Static_assert(TEAM_BLOCKS *BLOCK_STRIP >= TILE_LINES, "values of a chunk fit");

/**
 * Processes units: calls team_take() until the number is past the last unit.
 *
 * @param[in] scratch  this thread's scratch memory
 */
typedef void (*team_work_fn)(struct kernel_team *team, void *context, struct team_scratch *scratch);

/**
 * team_run - run `work` on all threads that wake in time, or in the parts of run(); returns when all
 * have finished
 *
 * @param[in] alone  run on the caller's thread only: the work is too small to share
 */
void team_run(struct kernel_team *team, bool alone, team_work_fn work, void *context);

/** team_take - number of the next unit; keeps counting past the last one */
uint64_t team_take(struct kernel_team *team);

enum kernel_isa team_isa(const struct kernel_team *team);
const struct kernel_tile_ops *team_ops(const struct kernel_team *team);
uint32_t team_n_threads(const struct kernel_team *team);

/**
 * team_workspace - memory for softmax states that wait to be combined, TEAM_WORKSPACE floats; NULL if
 * there is one thread
 */
float *team_workspace(const struct kernel_team *team);

#define TEAM_WORKSPACE ((size_t)16 << 20)

#endif
