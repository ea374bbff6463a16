/* SPDX-License-Identifier: Apache-2.0 */
/**
 * race_readers.h - vectors of the reads of 4 bytes by several threads of the running block
 *
 * Vectors live until their bytes are written, or the block ends.
 */
#ifndef TESTS_FAKE_CUDA_RACE_READERS_H
#define TESTS_FAKE_CUDA_RACE_READERS_H

#include <string.h>

#include "tests/fake-cuda/race_cell.h"

#define RACE_LINE 16u /* reads of a cache line */

struct race_readers {
	uint64_t lines;  /* which lines of `read` have contents: most words have few readers */
	uint32_t read[]; /* of each thread: the low 32 bits of race_pack(), so its clock and bytes; 0: none */
};

/** race_readers_begin - forget all vectors; those of this block are of n_threads, a multiple of RACE_LINE */
void race_readers_begin(unsigned int n_threads);

/** race_readers_new - the index of a vector without reads */
uint32_t race_readers_new(void);
struct race_readers *race_readers_at(uint32_t index);
void race_readers_free(uint32_t index);

/** race_readers_put - a thread reads; forgets its reads of other bytes before its clock advanced */
static inline void
race_readers_put(struct race_readers *readers, unsigned int thread, uint32_t read)
{
	uint64_t line = UINT64_C(1) << thread / RACE_LINE;
	uint32_t *at = &readers->read[thread];

	if ((readers->lines & line) == 0)
		memset(at - thread % RACE_LINE, 0, RACE_LINE * sizeof(*at));
	readers->lines |= line;
	*at = *at >> RACE_CLOCK_SHIFT == read >> RACE_CLOCK_SHIFT ? *at | read : read;
}

/**
 * race_readers_unordered - a thread whose read of these bytes is not known
 *
 * @param[in] known  [n_threads] the latest clocks that the writer is ordered after
 * @return n_threads if there is none
 */
unsigned int race_readers_unordered(const struct race_readers *readers, const uint32_t *known, uint32_t bytes);

/** race_readers_forget - these bytes are written */
void race_readers_forget(struct race_readers *readers, uint32_t bytes);

#endif
