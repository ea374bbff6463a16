/* SPDX-License-Identifier: Apache-2.0 */
/**
 * thread_pool.h - threads that run the parts of one job
 *
 * Jobs run one at a time; the calling thread works too.  Any thread may run any
 * part, so parts must not depend on the thread.
 */
#ifndef LLAMA_THREAD_POOL_H
#define LLAMA_THREAD_POOL_H

#include <stdint.h>

struct thread_pool;

/** Runs part `part` of a job on thread `thread` (0 .. n_threads-1). */
typedef void (*thread_pool_fn)(void *job, uint32_t part, uint32_t thread);

/** thread_pool_create - start n_threads - 1 threads */
struct thread_pool *thread_pool_create(uint32_t n_threads);

/** thread_pool_destroy - end the threads; takes NULL */
void thread_pool_destroy(struct thread_pool *thread_pool);

uint32_t thread_pool_n_threads(const struct thread_pool *thread_pool);

/** thread_pool_run - run parts 0 .. n_parts-1; returns when all are done */
void thread_pool_run(struct thread_pool *thread_pool, uint32_t n_parts, thread_pool_fn run, void *job);

#endif
