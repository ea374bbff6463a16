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

/** Most KV heads in one task. */
#define TASK_HEADS 16u
/** The query of a KV head among several has place for so many lines. */
#define TASK_QUERY_LINES 16u

/** Most lines of a task whose strips share packed tiles. */
#define TASK_STRIPS 16u
#define TASK_LINES (TASK_STRIPS * BLOCK_STRIP)
/** Blocks that are on their way at once. */
#define TEAM_BLOCKS 3u
/** The youngest has its scores where the oldest had its weights. */
#define TEAM_SCORES 2u

/** Some query lines of a row's KV heads, or a strip of such a task. */
struct attention_task {
	const struct kernel_row *row;
	uint32_t kv_head; /* the first of n_heads */
	uint32_t n_heads; /* more than one: of a row with few lines and without a block mask */
	uint64_t first_line;
	uint32_t n_lines; /* of each KV head; of all together TILE_LINES at most, or TASK_LINES */
	uint32_t strip;   /* of a strip: its first line among the task's */
	bool packed;      /* its row has many lines */
};

/** What a task's lines see of a tile. */
struct tile_sight {
	enum sight_part part;
	uint32_t end;   /* of the tile's tokens */
	uint32_t first; /* line that sees something */
	uint64_t wanted;
};

/** A tile as it was packed for some strip. */
struct team_packed {
	uint32_t n_tokens; /* 0: not yet */
	uint64_t wanted;   /* tokens that are there */
	uint64_t wild;     /* values that are left out, for they are no finite numbers */
	_Alignas(64) float k_panels[TILE_TOKENS * PAGED_MAX_DIM / 2];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM / 2];
	float k_scale[TILE_TOKENS], v_scale[TILE_TOKENS]; /* of i8 */
};

/** A block, and whose it is. */
struct team_block {
	struct attention_task strip;
	bool last; /* of the strip and split */
	uint32_t begin[BLOCK_TILES];
	struct tile_sight sight[BLOCK_TILES];
	_Alignas(64) struct tile_block block;
};

/** What one thread needs to attend; lives as long as the team. */
struct team_scratch {
	uint32_t thread;                                      /* its number in the team, the caller's 0 */
	_Atomic uint64_t section;                             /* the last one that run() brought it into */
	_Alignas(64) float q[TASK_LINES / 2 * PAGED_MAX_DIM]; /* of TASK_LINES in bf16, or half as many in f32 */
	uint16_t q16[TILE_LINES * PAGED_MAX_DIM];             /* q in bf16, where scores come of products of pairs */
	float split_values[TILE_LINES * PAGED_MAX_DIM];
	float total_values[TASK_LINES * PAGED_MAX_DIM];
	float k[TILE_TOKENS * PAGED_MAX_DIM];
	float v[TILE_TOKENS * PAGED_MAX_DIM];
	float k_panels[TILE_TOKENS * PAGED_MAX_DIM];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM];
	struct tile_scores scores;
	struct tile_state split[TASK_HEADS], total[TASK_HEADS];
	struct tile_rows k_rows, v_rows, made_rows, ahead;
	float scale[TILE_TOKENS]; /* of i8: the tokens' own */
	struct sight sight;
	struct team_packed packed[KERNEL_SPLIT / TILE_TOKENS];
	struct team_block block[TEAM_BLOCKS];
	struct tile_scores block_scores[TEAM_SCORES][BLOCK_TILES];
	struct tile_state strip[TEAM_BLOCKS]; /* of the blocks' strips */
	float strip_values[TEAM_BLOCKS][BLOCK_STRIP * PAGED_MAX_DIM];
};

_Static_assert(KERNEL_MANY_LINES - 1 <= TASK_QUERY_LINES && KERNEL_MANY_LINES_AMX - 1 <= TASK_QUERY_LINES,
	       "queries of rows with few lines fit");
_Static_assert(TASK_LINES >= 2 * TILE_LINES, "q has room for the lines of a tile in f32");
_Static_assert(TASK_HEADS >= TASK_STRIPS, "each strip has its total");

/**
 * Work through units: call team_take() until it says there are none.
 *
 * @param[in] scratch  this thread's own
 */
typedef void (*team_work_fn)(struct kernel_team *team, void *context, struct team_scratch *scratch);

/** team_run - have every thread that is there in time run `work`, or run() its parts; returns when all have left it */
void team_run(struct kernel_team *team, team_work_fn work, void *context);

/** team_run_alone - the same on the caller's thread, for work too small to share */
void team_run_alone(struct kernel_team *team, team_work_fn work, void *context);

/** team_take - the next unit's number; goes on counting past the last */
uint64_t team_take(struct kernel_team *team);

enum kernel_isa team_isa(const struct kernel_team *team);
const struct kernel_tile_ops *team_ops(const struct kernel_team *team);
uint32_t team_n_threads(const struct kernel_team *team);

/** team_partials - memory for splits that wait to be merged, TEAM_PARTIALS floats */
float *team_partials(const struct kernel_team *team);

#define TEAM_PARTIALS ((size_t)16 << 20)

#endif
