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

#include "kernels/cpu/sight.h"
#include "kernels/cpu/tile.h"

/** Most KV heads in one task. */
#define TASK_HEADS 16u
/** The query of a KV head among several has place for so many lines. */
#define TASK_QUERY_LINES 16u

/** What one thread needs to attend; lives as long as the team. */
struct team_scratch {
	uint32_t thread;          /* its number in the team, the caller's 0 */
	_Atomic uint64_t section; /* the last one that run() brought it into */
	_Alignas(64) float q[TILE_LINES * PAGED_MAX_DIM];
	uint16_t q16[TILE_LINES * PAGED_MAX_DIM]; /* q in bf16, where scores come of products of pairs */
	float split_values[TILE_LINES * PAGED_MAX_DIM];
	float total_values[TILE_LINES * PAGED_MAX_DIM];
	float k[TILE_TOKENS * PAGED_MAX_DIM];
	float v[TILE_TOKENS * PAGED_MAX_DIM];
	float k_panels[TILE_TOKENS * PAGED_MAX_DIM];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM];
	struct tile_scores scores;
	struct tile_state split[TASK_HEADS], total[TASK_HEADS];
	struct tile_rows k_rows, v_rows, made_rows, ahead;
	struct tile_rows scale_rows[2]; /* of i8: of keys, of values */
	float scale[TILE_TOKENS];       /* of i8: the tokens' own */
	struct sight sight;
};

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
