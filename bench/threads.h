/* SPDX-License-Identifier: Apache-2.0 */
/**
 * threads.h - pinned threads that measure limits
 *
 * The first of the CPUs that this process may use is the caller's, helper i
 * has the next ones; all of it for the life of the process.
 */
#ifndef PAGED_BENCH_THREADS_H
#define PAGED_BENCH_THREADS_H

#include <stddef.h>
#include <stdint.h>

/** What a thread does; several of them take units from the same counter. */
typedef void (*threads_fn)(void *context);

/**
 * threads_start - n threads, the caller's included; at most as many as there are CPUs; returns how many there are
 *
 * Once there, they stay as many; the caller is pinned anew.
 */
unsigned int threads_start(unsigned int n);

/** threads_number - how many threads_start() gave */
unsigned int threads_number(void);

/**
 * threads_run - all of them call `work`; nanoseconds from when all are there to when the last has ended
 *
 * Waking them is not in it: what waits for others belongs to no limit.
 */
uint64_t threads_run(threads_fn work, void *context);

/** threads_take - the next unit's number in this run; goes on counting past the last */
size_t threads_take(void);

/** threads_cpus - the CPU of each thread, for whoever is to be pinned likewise */
const uint32_t *threads_cpus(void);

/** threads_release - the calling thread may use every CPU again: what it is going to measure, or to be, is not pinned
 */
void threads_release(void);

/** threads_places - the CPUs of our threads as OMP_PLACES says them: "{0},{1}" */
void threads_places(char *text, size_t size);

#endif
