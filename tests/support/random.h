/* SPDX-License-Identifier: Apache-2.0 */
/**
 * random.h - the random numbers of tests: splitmix64, whose number i depends only on (seed, i)
 *
 * tests/golden/README.md has the formula; the golden files depend on it.
 */
#ifndef PAGED_TESTS_RANDOM_H
#define PAGED_TESTS_RANDOM_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/** test_seed - the value of PAGED_TEST_SEED, or a fixed number; tests print it with each failure */
static inline uint64_t
test_seed(void)
{
	const char *seed = getenv("PAGED_TEST_SEED");

	return seed != NULL ? strtoull(seed, NULL, 0) : 20261121;
}

/** random_bits - number i of a stream: 64 random bits */
static inline uint64_t
random_bits(uint64_t seed, uint64_t i)
{
	uint64_t z = seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/** random_float - number i of a stream, in [-amplitude, amplitude) */
static inline float
random_float(uint64_t seed, uint64_t i, float amplitude)
{
	return (float)((int64_t)(random_bits(seed, i) >> 40) - (1 << 23)) * 0x1p-23f * amplitude;
}

/** random_fill - the first n numbers of a stream, in [-1, 1) */
static inline void
random_fill(float *to, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		to[i] = random_float(seed, i, 1);
}

/** random_below - the next number of a stream, in [0, n); *state begins as the stream's seed */
static inline uint64_t
random_below(uint64_t *state, uint64_t n)
{
	uint64_t bits = random_bits(*state, 0);

	*state += UINT64_C(0x9e3779b97f4a7c15);
	return bits % n;
}

#endif
