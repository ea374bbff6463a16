/* SPDX-License-Identifier: Apache-2.0 */
/**
 * spare_arrays.h - memory for the arrays of block masks
 *
 * An engine makes a mask of similar size in every step and frees it in the next.  If the allocator
 * returns such memory to the system in between, faulting the pages in again costs several times the
 * mask itself.  Therefore a mask_memory caches some freed arrays for later masks.
 *
 * Measured for 256 sequences of 6,000 to 7,300 tokens and pages of 16: with an arena per builder and the finished
 * mask from malloc(), a mask per step takes 95 to 176 page faults and 350 to 690 us; with this cache no fault and
 * 255 us.  Arrays of exact sizes are no better: as lengths grow, the next mask does not fit in the last one's.
 *
 * Bounds: it keeps the MASK_MEMORY_SPARES largest arrays, none above MASK_MEMORY_MAX_BYTES; below
 * MASK_MEMORY_MIN_BYTES malloc() is as good.  Under AddressSanitizer it keeps nothing, so that every
 * overrun is detected.
 *
 * Life: a mask_memory starts as all zeros; arrays are freed before mask_memory_release().  Wherever a
 * mask_memory is passed, NULL means malloc() alone.
 *
 * Threads: any.  No call waits: if another thread holds the cache, the call falls back to malloc() or
 * free().  The same happens in a child of fork() if the cache was held by another thread at the fork.
 */
#ifndef PAGED_KERNELS_MASK_SPARE_ARRAYS_H
#define PAGED_KERNELS_MASK_SPARE_ARRAYS_H

#include <stdatomic.h>
#include <stdint.h>

#define MASK_MEMORY_SPARES 4u
#define MASK_MEMORY_MIN_BYTES (UINT64_C(1) << 12)
#define MASK_MEMORY_MAX_BYTES (UINT64_C(1) << 24)

struct mask_memory_array;

struct mask_memory {
	atomic_bool busy;
	struct mask_memory_array *spares[MASK_MEMORY_SPARES]; /* NULL: none */
};

/** mask_memory_alloc - an array of zeros; NULL: out of memory */
void *mask_memory_alloc(struct mask_memory *memory, uint64_t bytes);

/**
 * mask_memory_grow - realloc(), for an array that is likely to grow further
 *
 * Takes the largest spare, so that further growth fits in place.
 *
 * @param[in] array  NULL: a new array
 */
void *mask_memory_grow(struct mask_memory *memory, void *array, uint64_t bytes);

/**
 * mask_memory_trim - shrink an array that will not grow any more
 *
 * Afterwards less than half of the memory that the array holds is unused; without a mask_memory,
 * little is.  Never fails, but may leave the array as it is.
 *
 * @param[in] had_bytes  the size last requested
 * @param[in] bytes      the size in use
 */
void *mask_memory_trim(struct mask_memory *memory, void *array, uint64_t had_bytes, uint64_t bytes);

void mask_memory_free(struct mask_memory *memory, void *array); /* takes NULL */

/** mask_memory_release - free the cached arrays */
void mask_memory_release(struct mask_memory *memory);

#endif
