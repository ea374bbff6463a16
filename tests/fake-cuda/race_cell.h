/* SPDX-License-Identifier: Apache-2.0 */
/**
 * race_cell.h - the race detector's shadow state of 4 bytes
 *
 * An access is packed into one number: the block (counted over all launches),
 * the thread, that thread's clock, the proxy, and which of the 4 bytes.
 *
 * A cell has the last two writes: each was checked against those before it.
 * Reads need not be ordered among themselves, so a write must be checked
 * against all that no later read is ordered after.  While each read is ordered
 * after the one before, that is the last one, in reads[0].  From the first read
 * on that is not, until all bytes are written, reads[0] names a vector with the
 * last read of each thread of the block (race_readers.h).  reads[1] is the
 * newest read of the block before, or of this one if it has a vector.
 *
 * A cell forgets accesses that do not fit, which are mostly those of other
 * blocks: the detector may miss a race under one order of threads, but it never
 * reports a false one.
 */
#ifndef TESTS_FAKE_CUDA_RACE_CELL_H
#define TESTS_FAKE_CUDA_RACE_CELL_H

#include <stddef.h>
#include <stdint.h>

#include "tests/fake-cuda/simt_run.h"

struct race_cell {
	uint64_t writes[2];
	uint64_t reads[2];
};

#define RACE_SERIAL_SHIFT 42
#define RACE_SERIAL_MAX ((1u << 21) - 1)
#define RACE_READERS (UINT64_C(1) << 63) /* in reads[0]: of the block, with the index of a vector */
#define RACE_THREAD_SHIFT 32
#define RACE_CLOCK_SHIFT 4
#define RACE_PROXY (1u << 31)           /* an access by the asynchronous proxy */
#define RACE_CLOCK_MAX ((1u << 27) - 1) /* as a write's clock: an asynchronous copy in flight */
#define RACE_BYTES 15u

static inline uint64_t
race_pack(uint32_t serial, uint32_t thread, uint32_t clock, uint32_t bytes)
{
	return (uint64_t)serial << RACE_SERIAL_SHIFT | (uint64_t)thread << RACE_THREAD_SHIFT |
	       (uint64_t)clock << RACE_CLOCK_SHIFT | bytes;
}

static inline uint32_t
race_serial(uint64_t access)
{
	return (uint32_t)(access >> RACE_SERIAL_SHIFT) & RACE_SERIAL_MAX;
}

static inline uint32_t
race_thread(uint64_t access)
{
	return (uint32_t)(access >> RACE_THREAD_SHIFT) & (SIMT_MAX_THREADS - 1);
}

static inline uint32_t
race_clock(uint64_t access)
{
	return (uint32_t)access >> RACE_CLOCK_SHIFT & RACE_CLOCK_MAX;
}

/* Bytes for the cells of a region of this size, which may begin at any byte. */
static inline size_t
race_cells_size(size_t size)
{
	return (size / 4 + 2) * sizeof(struct race_cell);
}

#endif
