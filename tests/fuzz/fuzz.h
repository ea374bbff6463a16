/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fuzz.h - a fuzz target and its seeds
 *
 * Each fuzz_X.c defines all four.  With --enable-fuzzer, it is linked with libFuzzer; tools/fuzz runs these programs.
 * The program fuzz_X_seeds (fuzz_main.c) has no libFuzzer: in make check it replays the seeds, those of
 * tests/fuzz/seeds/X and some mutations.
 *
 * tests/fuzz/seeds/X has one input a line, in hexadecimal: inputs that reached other code than the seeds of fuzz_X.c,
 * and inputs that once found a fault.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/** X */
extern const char fuzz_name[];

/** How often make check mutates each seed of fuzz_seed(). */
extern const unsigned int fuzz_mutations;

/** LLVMFuzzerTestOneInput - aborts if the tested code misbehaves; any input is allowed */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** fuzz_seed - write the index-th seed to a buffer, which must be large enough; returns its size, 0 past the last */
size_t fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size);

/** fuzz_require - abort unless it holds */
static inline void
fuzz_require(bool holds)
{
	if (!holds)
		abort();
}

#endif
