/* SPDX-License-Identifier: Apache-2.0 */
/**
 * team.h - threads that work through one call's units together
 *
 * The caller works too.  A helper that wakes too late for a call misses it,
 * so a busy machine costs speed and never adds a wait.  Units are numbered
 * from 0 and taken in that order; who takes which is chance, so a unit's
 * result must not depend on it.  Nobody waits for anybody else inside, so the
 * caller's run() may have its parts done one after the other, too.
 */
#ifndef PAGED_KERNELS_CPU_TEAM_H
#define PAGED_KERNELS_CPU_TEAM_H

#include <stdatomic.h>

#include "kernels/cpu/tile_mask.h"
#include "kernels/cpu/tile.h"

/** Most KV heads in one work item, and most query rows of each among several. */
#define ITEM_HEADS 16u
#define DECODE_Q_ROWS 16u

/** Most query rows of an item whose query tiles share packed tiles, and most of those. */
#define ITEM_Q_TILES 16u
#define ITEM_Q_ROWS (ITEM_Q_TILES * BLOCK_STRIP)
/** Blocks that are in the pipeline at once. */
#define TEAM_BLOCKS 3u
/** The youngest has its scores where the oldest had its weights. */
#define TEAM_SCORES 2u

/** Query rows of a row of the batch: each is a query of one query head, heads of a KV head innermost. */
struct q_tile {
	const struct kernel_row *row;
	uint32_t kv_head; /* the first of n_heads */
	uint32_t n_heads; /* more than one: of few query rows and without a block mask */
	uint64_t first;
	uint32_t n;  /* of each KV head */
	uint32_t at; /* number of the first among the work item's, of all KV heads */
};

/** What a thread takes at a time. */
struct work_item {
	struct q_tile q; /* of all KV heads together TILE_LINES query rows at most, or ITEM_Q_ROWS */
	bool prefill;    /* its row has many query rows */
	uint64_t kv_begin, kv_end;
	struct kv_tile first; /* that it visits */
	float *workspace;     /* for its state if it has one chunk of several, else NULL */
};

/** A tile as it was packed for some query tile. */
struct team_packed {
	uint32_t n_tokens;   /* 0: not yet */
	uint64_t wanted;     /* tokens that are there */
	uint64_t non_finite; /* tokens that are left out because they have values that are not finite */
	_Alignas(64) float k_panels[TILE_TOKENS * PAGED_MAX_DIM / 2];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM / 2];
	float k_scale[TILE_TOKENS], v_scale[TILE_TOKENS]; /* of i8 */
};

/** A block, and whose it is. */
struct team_block {
	struct q_tile q;
	bool last; /* of the query tile and chunk */
	struct tile_view view[BLOCK_TILES];
	_Alignas(64) struct tile_block block;
};

/** What one thread needs to attend; lives as long as the team. */
struct team_scratch {
	uint32_t thread;                                       /* its number in the team, the caller's 0 */
	_Atomic uint64_t section;                              /* the last one that run() brought it into */
	_Alignas(64) float q[ITEM_Q_ROWS / 2 * PAGED_MAX_DIM]; /* of all in bf16, or half as many in f32 */
	uint16_t q16[TILE_LINES * PAGED_MAX_DIM];              /* q in bf16, where scores come of products of pairs */
	/* States of an item's query tiles over all its chunks, and over one, or of those in the pipeline. */
	struct tile_state total[ITEM_Q_TILES], chunk[ITEM_HEADS];
	float total_values[ITEM_Q_ROWS * PAGED_MAX_DIM];
	float chunk_values[TEAM_BLOCKS * BLOCK_STRIP * PAGED_MAX_DIM];
	float k[TILE_TOKENS * PAGED_MAX_DIM];
	float v[TILE_TOKENS * PAGED_MAX_DIM];
	float k_panels[TILE_TOKENS * PAGED_MAX_DIM];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM];
	struct tile_scores scores;
	struct tile_rows k_rows, v_rows, made_rows;
	struct tile_rows next_keys; /* of the tile at next_begin; UINT64_MAX: of none */
	uint64_t next_begin;
	float scale[TILE_TOKENS]; /* of i8: the tokens' own */
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
 * Work through units: call team_take() until it says there are none.
 *
 * @param[in] scratch  this thread's own
 */
typedef void (*team_work_fn)(struct kernel_team *team, void *context, struct team_scratch *scratch);

/**
 * team_run - have every thread that is there in time run `work`, or run() its parts; returns when all have left it
 *
 * @param[in] alone  on the caller's thread, for work too small to share
 */
void team_run(struct kernel_team *team, bool alone, team_work_fn work, void *context);

/** team_take - the next unit's number; goes on counting past the last */
uint64_t team_take(struct kernel_team *team);

enum kernel_isa team_isa(const struct kernel_team *team);
const struct kernel_tile_ops *team_ops(const struct kernel_team *team);
uint32_t team_n_threads(const struct kernel_team *team);

/** team_workspace - memory for states that wait to be combined, TEAM_WORKSPACE floats */
float *team_workspace(const struct kernel_team *team);

#define TEAM_WORKSPACE ((size_t)16 << 20)

#endif
