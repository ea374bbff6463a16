/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_block.h - the running block, shared by the scheduler, the models and the race detector
 */
#ifndef TESTS_FAKE_CUDA_SIMT_BLOCK_H
#define TESTS_FAKE_CUDA_SIMT_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fake-cuda/simt_run.h"

#define SIMT_WARP 32

struct block {
	const struct simt_launch *launch; /* NULL: nothing runs */
	unsigned int x, y;
	unsigned int n_threads;
	unsigned int thread; /* the current one */
	unsigned char *shared;
};
extern struct block block;

/** block_fail - end the launch with a message; called in a thread of the block, does not return */
void block_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** block_fail_at - like block_fail(), and adds the source line of a code address to the message */
void block_fail_at(const void *code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/**
 * block_meet - wait for all lanes of the warp
 *
 * The last lane to arrive calls complete() with the argument of each lane.
 * Lanes that arrive with different functions or from different source lines
 * end the launch.
 */
typedef void (*block_complete_fn)(void *const arguments[SIMT_WARP]);
void block_meet(block_complete_fn complete, const char *what, void *argument, const char *file, int line);

/** block_begins_early - has the current thread of a dependent launch yet to wait? */
bool block_begins_early(void);

/**
 * block_sleep - let other threads run until block_wake()
 *
 * @param[in] on  what the thread waits for, as block_wake() names it
 */
void block_sleep(const void *on, const char *what, const char *file, int line);
void block_wake(const void *on);

/* Regions (region.c) */

struct region {
	uintptr_t start;
	size_t size;
	bool readable, writable;
	const char *name;
	struct race_cell *cells; /* one per 4 bytes; NULL until the first access */
};

/** region_find - the region that contains the address; NULL if none does */
struct region *region_find(uintptr_t address);

/** region_checked - the region of an access, with its cells; ends the launch if the access is not allowed */
struct region *region_checked(uintptr_t address, size_t size, bool writes, const void *code);

/** region_describe - "pool + 0x40 (of 4096 bytes)", or the nearest region if none has the address (static buffer) */
const char *region_describe(uintptr_t address);

/** region_forget_shared - forget past accesses to the region at `start`: a new block gets new shared memory */
void region_forget_shared(uintptr_t start);

/** region_forget_shadows - forget past accesses to all regions */
void region_forget_shadows(void);

/* Races (race.c) */

bool race_launch_begin(unsigned int n_threads, unsigned int n_blocks);
void race_launch_end(void);
void race_block_begin(void);

/** race_join - these threads synchronised at a barrier */
void race_join(const uint16_t *threads, unsigned int n);

/** What threads that arrive at a barrier leave there for those that wait for it. */
struct race_clocks {
	uint32_t known[SIMT_MAX_THREADS], fenced[SIMT_MAX_THREADS], in_proxy[SIMT_MAX_THREADS];
};

/** race_release - add what the current thread did and knows; what it does from now on is not included */
void race_release(struct race_clocks *to);

/** race_release_copy - add the clock of a thread's bulk copy, which has happened */
void race_release_copy(struct race_clocks *to, unsigned int thread, uint32_t clock);

/** race_acquire - the current thread knows all of it */
void race_acquire(const struct race_clocks *from);

/** race_proxy_fence - the asynchronous proxy sees what the current thread knows */
void race_proxy_fence(void);

/** race_proxy_read - the asynchronous proxy reads shared memory, for the current thread */
void race_proxy_read(uintptr_t address, size_t size, const void *code);

/** race_access - the current thread accesses memory; `code` is the address of the access, for the message */
void race_access(uintptr_t address, size_t size, bool writes, const void *code);

/**
 * race_copy_begin, race_copy_end - in between, no thread may access the target of a thread's asynchronous copy
 *
 * @param[in] clock  of race_clock_now() in that thread, when it had issued the copy or waited for it
 * @param[in] bulk   the asynchronous proxy writes
 */
void race_copy_begin(uintptr_t address, size_t size, bool bulk, const void *code);
void race_copy_end(uintptr_t address, size_t size, bool bulk, unsigned int thread, uint32_t clock);
uint32_t race_clock_now(void);

void race_fence(void);
void race_atomic(uintptr_t address, size_t size, const void *code);

/** race_atomic_load - false: no atomic accessed this word in the launch; treat the load as a plain read */
bool race_atomic_load(uintptr_t address, size_t size);

/* Copies (copy_async.c) */

/** copy_async_begin - start a new block without copies in flight */
void copy_async_begin(unsigned int n_threads);

/** copy_async_detach - take the current thread's copies that are in flight */
struct copy_list *copy_async_detach(void);

/** copy_async_finish, copy_async_drop - let detached copies happen, or not; frees the list */
void copy_async_finish(struct copy_list *list);
void copy_async_drop(struct copy_list *list);

/** mbarrier_begin, wgmma_begin - start a new block without barriers in shared memory, and without products in flight */
void mbarrier_begin(void);
void wgmma_begin(void);

#endif
