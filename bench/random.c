/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/random.h"

#include "bench/base.h"

/*
 * Masks for random words: each 16 bits are a bf16 of either sign from 0.5 to 2, and moderate numbers in other dtypes.
 */
#define HALVES_RANDOM 0x80ff80ff80ff80ffu
#define HALVES_ALWAYS 0x3f003f003f003f00u
#define BYTES_RANDOM 0x8787878787878787u
#define BYTES_ALWAYS 0x3030303030303030u

uint32_t
bench_random(uint64_t *state, uint32_t below)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((*state >> 33) % below);
}

uint32_t *
bench_permutation(uint32_t n)
{
	uint32_t *order = bench_alloc(n, sizeof(*order));
	uint64_t state = 1;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = bench_random(&state, i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	return order;
}

void
bench_fill(void *memory, size_t size, enum paged_dtype dtype)
{
	/* The scales of i8 are f32; the bf16 pattern makes moderate f32 numbers too. */
	bool bytes = dtype == PAGED_E4M3 || dtype == PAGED_E5M2;
	uint64_t random = bytes ? BYTES_RANDOM : HALVES_RANDOM, always = bytes ? BYTES_ALWAYS : HALVES_ALWAYS;
	uint64_t state = 88172645463325252u, *words = memory;

	for (size_t i = 0; i < size / sizeof(*words); i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		words[i] = (state & random) | always;
	}
}
