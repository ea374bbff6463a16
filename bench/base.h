/* SPDX-License-Identifier: Apache-2.0 */
/**
 * base.h - what every file of the benchmarks uses: errors, the clock, memory
 *
 * Failures end the program by bench_die().
 */
#ifndef PAGED_BENCH_BASE_H
#define PAGED_BENCH_BASE_H

#include <pagedclient.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define BENCH_N(array) (sizeof(array) / sizeof((array)[0]))

void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** bench_must - end the program with the error's text unless status is PAGED_OK */
void bench_must(enum paged_status status, const struct paged_error *error);

/** bench_client_must - end the program with the client's error text unless status is PAGED_OK */
void bench_client_must(struct paged_client *client, enum paged_status status);

/** bench_now_ns - the monotonic clock, in nanoseconds */
uint64_t bench_now_ns(void);

/** bench_since_us - microseconds since bench_now_ns() was `start` */
double bench_since_us(uint64_t start);

/** bench_use_cpu_time - from now on samples measure the CPU time of the calling thread; only for cases of one thread */
void bench_use_cpu_time(void);
bool bench_uses_cpu_time(void);

/** bench_timer_ns - the clock of samples: bench_now_ns(), or CPU time after bench_use_cpu_time() */
uint64_t bench_timer_ns(void);

/** bench_alloc - zeroed memory, aligned to a cache line */
void *bench_alloc(size_t n, size_t size);

#endif
