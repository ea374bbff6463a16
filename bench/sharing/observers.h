/* SPDX-License-Identifier: Apache-2.0 */
/**
 * observers.h - processes that look at a daemon while a case is measured: paged-events, which reads the changes of the
 * index and publishes them, pagedctl top in a terminal of 80 x 24, and what reads that terminal and scrapes the metrics
 */
#ifndef PAGED_BENCH_SHARING_OBSERVERS_H
#define PAGED_BENCH_SHARING_OBSERVERS_H

#include <stdbool.h>

/** Scrapes a second, many times what a Prometheus makes. */
#define BENCH_SCRAPES_A_SECOND 50

/** bench_observers_start - start the processes, paused; false: this build lacks paged-events or pagedctl */
bool bench_observers_start(const char *runtime_dir);
void bench_observers_stop(void);

/** bench_observers_resume, bench_observers_pause - let them run, stop them */
void bench_observers_resume(void);
void bench_observers_pause(void);

#endif
