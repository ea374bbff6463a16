/* SPDX-License-Identifier: Apache-2.0 */
/**
 * base.h - what every file of the benchmarks uses: errors, the clock, memory
 *
 * Failures end the program by bench_die().
 */
#ifndef PAGED_BENCH_BASE_H
#define PAGED_BENCH_BASE_H

#include <pagedclient.h>
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

/** bench_alloc - zeroed memory, aligned to a cache line */
void *bench_alloc(size_t n, size_t size);

#endif
