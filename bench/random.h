/* SPDX-License-Identifier: Apache-2.0 */
/**
 * random.h - pseudorandom numbers, the same in every run
 */
#ifndef PAGED_BENCH_RANDOM_H
#define PAGED_BENCH_RANDOM_H

#include <pagedclient.h>
#include <stddef.h>
#include <stdint.h>

/** bench_random - the next number below `below`, the same in every run */
uint32_t bench_random(uint64_t *state, uint32_t below);

/** bench_permutation - 0 to n-1 in an order that no prefetcher predicts, the same in every run */
uint32_t *bench_permutation(uint32_t n);

/** bench_fill - fill memory with numbers of moderate size and either sign, the same in every run */
void bench_fill(void *memory, size_t size, enum paged_dtype dtype);

#endif
