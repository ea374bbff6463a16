/* SPDX-License-Identifier: Apache-2.0 */
/**
 * team.h - threads that share the work items of one call
 *
 * The caller works too.  A thread that wakes too late for a call skips it, so a busy machine costs
 * throughput but never adds waiting.  Work items are numbered from 0 and taken in that order.  Which thread
 * takes an item is not deterministic, so an item's result must not depend on it.  No thread waits for
 * another inside a call, so the caller's run() may also execute its parts one after another.
 */
#ifndef PAGED_KERNELS_CPU_SCHEDULE_TEAM_H
#define PAGED_KERNELS_CPU_SCHEDULE_TEAM_H

#include "kernels/cpu/tile.h"

struct team_scratch;

/**
 * Processes work items: calls kernel_team_next_item() until the number is past the last item.
 *
 * @param[in] scratch  this thread's scratch memory
 */
typedef void (*kernel_team_work_fn)(struct kernel_team *team, void *context, struct team_scratch *scratch);

/**
 * kernel_team_run - run `work` on all threads that wake in time, or in the parts of run(); returns when all
 * have finished
 *
 * @param[in] alone  run on the caller's thread only: the work is too small to share
 */
void kernel_team_run(struct kernel_team *team, bool alone, kernel_team_work_fn work, void *context);

/** kernel_team_next_item - number of the next work item; keeps counting past the last one */
uint64_t kernel_team_next_item(struct kernel_team *team);

enum kernel_isa kernel_team_isa(const struct kernel_team *team);
const struct kernel_tile_ops *kernel_team_ops(const struct kernel_team *team);
uint32_t kernel_team_n_threads(const struct kernel_team *team);

/**
 * kernel_team_workspace - memory for softmax states that wait to be combined, KERNEL_TEAM_WORKSPACE floats; NULL if
 * there is one thread
 */
float *kernel_team_workspace(const struct kernel_team *team);

#define KERNEL_TEAM_WORKSPACE ((size_t)16 << 20)

#endif
