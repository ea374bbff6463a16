/* SPDX-License-Identifier: Apache-2.0 */
/**
 * memory.h - where the arrays of block masks come from
 *
 * An engine makes a mask like the last one in every step and frees it in the
 * next.  An allocator that returns so much to the system in between makes the
 * pages that it is handed anew cost several times the mask itself.  So a
 * mask_memory keeps some of what was freed for the masks to come.
 *
 * Bounds: it keeps the MASK_MEMORY_SPARES largest arrays, none above
 * MASK_MEMORY_MAX_BYTES; below MASK_MEMORY_MIN_BYTES malloc() is as good.
 * Under AddressSanitizer it keeps nothing, so that each overrun shows.
 *
 * Life: all zero at first; arrays are freed before mask_memory_release().
 * NULL stands for malloc() alone, wherever a mask_memory is taken.
 *
 * Threads: any.  Nobody waits: who finds another thread here does without a
 * spare.  So does a child of fork() that has such a thread's memory, not the thread.
 */
#ifndef PAGED_KERNELS_MASK_MEMORY_H
#define PAGED_KERNELS_MASK_MEMORY_H

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

/** mask_memory_alloc - an array of zeros; NULL: no memory */
void *mask_memory_alloc(struct mask_memory *memory, uint64_t bytes);

/**
 * mask_memory_grow - realloc(), for an array that is likely to grow on
 *
 * The largest spare is taken, so that a further call finds room enough.
 *
 * @param[in] array  NULL: a new one
 */
void *mask_memory_grow(struct mask_memory *memory, void *array, uint64_t bytes);

/**
 * mask_memory_trim - an array that will not grow any more
 *
 * Less than half of what it holds is in vain afterwards; without a memory,
 * little is.  Never fails, but may leave an array as it is.
 *
 * @param[in] had_bytes  that were last asked for
 * @param[in] bytes      of them that count
 */
void *mask_memory_trim(struct mask_memory *memory, void *array, uint64_t had_bytes, uint64_t bytes);

void mask_memory_free(struct mask_memory *memory, void *array); /* takes NULL */

/** mask_memory_release - free the spares */
void mask_memory_release(struct mask_memory *memory);

#endif
