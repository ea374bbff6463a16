/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pinned_threads.h - threads that measure limits, each on a CPU of its own
 *
 * The calling thread has the first CPU that this process may use, and thread i the
 * i-th after it.  They live as long as the process.
 */
#ifndef PAGED_BENCH_PINNED_THREADS_H
#define PAGED_BENCH_PINNED_THREADS_H

#include <stddef.h>
#include <stdint.h>

/** The work of each thread; threads take units of work from one counter (pinned_threads_next_unit()). */
typedef void (*pinned_threads_fn)(void *context);

/**
 * pinned_threads_start - start n - 1 threads, at most one per CPU; returns the number of threads including the caller's
 *
 * The number of threads stays the same from then on; each call pins the calling thread again.
 */
unsigned int pinned_threads_start(unsigned int n);

/** pinned_threads_count - the number that pinned_threads_start() returned */
unsigned int pinned_threads_count(void);

/**
 * pinned_threads_run - all threads call `work`; returns ns from the time when all are running to the end of the last
 * one
 *
 * The time does not include waking the threads, because no limit depends on that.
 */
uint64_t pinned_threads_run(pinned_threads_fn work, void *context);

/** pinned_threads_next_unit - the next unit's number in this run; the counter has no upper bound */
size_t pinned_threads_next_unit(void);

/** pinned_threads_cpus - the CPU of each thread, to pin other threads to the same CPUs */
const uint32_t *pinned_threads_cpus(void);

/** pinned_threads_unpin - unpin the calling thread, before it measures something unpinned or starts another program */
void pinned_threads_unpin(void);

/** pinned_threads_omp_places - the CPUs of the threads in the syntax of OMP_PLACES: "{0},{1}" */
void pinned_threads_omp_places(char *text, size_t size);

#endif
