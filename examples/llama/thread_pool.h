/* SPDX-License-Identifier: Apache-2.0 */
/**
 * thread_pool.h - a few threads that share out the parts of one job
 *
 * Jobs run one at a time; the calling thread works too.  Which thread runs a
 * part is left open, so parts must not depend on it.
 */
#ifndef LLAMA_TEAM_H
#define LLAMA_TEAM_H

#include <stdint.h>

struct team;

/** Runs part `part` of a job on thread `thread` (0 .. n_threads-1). */
typedef void (*team_fn)(void *job, uint32_t part, uint32_t thread);

/** team_create - start n_threads - 1 threads */
struct team *team_create(uint32_t n_threads);

/** team_destroy - end the threads; takes NULL */
void team_destroy(struct team *team);

uint32_t team_n_threads(const struct team *team);

/** team_run - run parts 0 .. n_parts-1; returns when all are done */
void team_run(struct team *team, uint32_t n_parts, team_fn run, void *job);

#endif
