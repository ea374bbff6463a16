/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake-cuda/race_readers.h"

#include <stdlib.h>

#include "tests/fake-cuda/simt_block.h"

#define VECTORS_AT_ONCE 1024u /* vectors that are allocated together, and stay where they are */
#define MAX_ALLOCATIONS 4096u

/* Four reads at a time: none uses the sign. */
typedef int32_t four_reads __attribute__((vector_size(16), aligned(4), may_alias));

static unsigned char *allocations[MAX_ALLOCATIONS];
static unsigned int n_allocations, n; /* n: threads */
static size_t vector_size;
static uint32_t n_used;     /* vectors that were in use since the block began */
static uint32_t first_free; /* 1 + its index; each free one has the next in `lines` */

void
race_readers_begin(unsigned int n_threads)
{
	while (n != n_threads && n_allocations > 0)
		free(allocations[--n_allocations]);
	n = n_threads;
	vector_size = sizeof(struct race_readers) + n * sizeof(uint32_t);
	n_used = first_free = 0;
}

struct race_readers *
race_readers_at(uint32_t index)
{
	return (struct race_readers *)(allocations[index / VECTORS_AT_ONCE] + index % VECTORS_AT_ONCE * vector_size);
}

uint32_t
race_readers_new(void)
{
	uint32_t index = n_used;

	if (first_free != 0) {
		index = first_free - 1;
		first_free = (uint32_t)race_readers_at(index)->lines;
	} else if (n_used++ == n_allocations * VECTORS_AT_ONCE) {
		unsigned char *vectors = NULL;

		if (n_allocations < MAX_ALLOCATIONS)
			vectors = malloc(VECTORS_AT_ONCE * vector_size);
		if (vectors == NULL)
			block_fail("no memory for the readers of %u words", n_used);
		allocations[n_allocations++] = vectors;
	}
	race_readers_at(index)->lines = 0;
	return index;
}

void
race_readers_free(uint32_t index)
{
	race_readers_at(index)->lines = first_free;
	first_free = index + 1;
}

unsigned int
race_readers_unordered(const struct race_readers *readers, const uint32_t *known, uint32_t bytes)
{
	for (uint64_t lines = readers->lines; lines != 0; lines &= lines - 1) {
		unsigned int first = (unsigned int)__builtin_ctzll(lines) * RACE_LINE;

		for (unsigned int t = first; t < first + RACE_LINE; t += 4) {
			const four_reads read = *(const four_reads *)&readers->read[t];
			const four_reads clock = *(const four_reads *)&known[t];
			const four_reads found = (read >> RACE_CLOCK_SHIFT > clock) & ((read & (int32_t)bytes) != 0);

			for (unsigned int i = 0; (found[0] | found[1] | found[2] | found[3]) != 0; i++)
				if (found[i] != 0)
					return t + i;
		}
	}
	return n;
}

void
race_readers_forget(struct race_readers *readers, uint32_t bytes)
{
	for (unsigned int t = 0; t < n; t++)
		if ((readers->lines >> t / RACE_LINE & 1) != 0)
			readers->read[t] &= ~bytes;
}
