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

#include "kernels/cpu/tile.h"

struct team_scratch;

/**
 * Processes units: calls team_next_item() until the number is past the last unit.
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

/** team_next_item - number of the next unit; keeps counting past the last one */
uint64_t team_next_item(struct kernel_team *team);

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
