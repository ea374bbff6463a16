/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_block.h - the running block, or cluster of blocks, shared by the scheduler, the models and the race detector
 *
 * A thread's number counts over the blocks of the cluster: those of the block of
 * rank r begin at r * n_threads.  What a thread may call its own is its block's.
 */
#ifndef TESTS_FAKE_CUDA_SIMT_BLOCK_H
#define TESTS_FAKE_CUDA_SIMT_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fake-cuda/simt_run.h"
#include "tests/fake-cuda/tensor_map.h"

#define SIMT_WARP 32

struct block {
	const struct simt_launch *launch; /* NULL: nothing runs */
	unsigned int x, y;                /* of rank 0 */
	unsigned int n_blocks;            /* 1: no cluster */
	unsigned int n_threads;           /* of each */
	unsigned int n_all_threads;
	unsigned int thread; /* the current one */
	unsigned char *shared[SIMT_MAX_CLUSTER];
};
extern struct block block;

/** block_rank_of, block_rank - a thread's block in its cluster; that of the current thread */
static inline unsigned int
block_rank_of(unsigned int thread)
{
	return thread / block.n_threads;
}

static inline unsigned int
block_rank(void)
{
	return block_rank_of(block.thread);
}

/** block_shared - the shared memory of the current thread's block */
static inline unsigned char *
block_shared(void)
{
	return block.shared[block_rank()];
}

/** block_rank_shared - whose shared memory begins at this address; n_blocks: no block's */
static inline unsigned int
block_rank_shared(uintptr_t start)
{
	unsigned int rank = 0;

	while (rank < block.n_blocks && start != (uintptr_t)block.shared[rank])
		rank++;
	return rank;
}

/** block_has_ended - have all threads of the block of this rank ended? */
bool block_has_ended(unsigned int rank);

/** block_params_have - do these bytes lie in the current thread's copy of the kernel's parameters? */
bool block_params_have(const void *at, size_t size);

/** block_thread_name - "thread 5", and of which block if that is not the current thread's (static buffer) */
const char *block_thread_name(unsigned int thread);

/* Failures (failure.c) */

/** failure_begin - a launch begins, whose error is to be written to this message */
void failure_begin(char *message, size_t size);
bool failure_happened(void);

/** failure_write - write the error, outside of threads */
void failure_write(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** block_fail - end the launch with a message; called in a thread of the block, does not return */
void block_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** block_fail_at - like block_fail(), and adds the source line of a code address to the message */
void block_fail_at(const void *code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* Scheduling (block.c) */

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

/** race_launch_begin, race_block_begin - a cluster is one block here, with the threads of all its blocks */
bool race_launch_begin(unsigned int n_threads, unsigned int n_blocks);
void race_launch_end(void);
void race_block_begin(void);

/** race_block_end - the last thread of the current thread's block ends; what reached its shared memory must be known */
void race_block_end(void);

/** race_join - these threads synchronised at a barrier */
void race_join(const uint16_t *threads, unsigned int n);

/** What threads that arrive at a barrier leave there for those that wait for it. */
struct race_clocks {
	uint32_t known[SIMT_MAX_THREADS], shared[SIMT_MAX_THREADS], fenced[SIMT_MAX_THREADS];
	uint32_t in_proxy[SIMT_MAX_THREADS];
};

/**
 * race_release - add what the current thread did and knows; what it does from now on is not included
 *
 * @param[in] shared_only  of accesses to shared memory alone
 */
void race_release(struct race_clocks *to, bool shared_only);

/** race_release_copy - add the clock of a thread's bulk copy, which has happened */
void race_release_copy(struct race_clocks *to, unsigned int thread, uint32_t clock, bool shared_only);

/** race_acquire - the current thread knows all of it, or what is about shared memory */
void race_acquire(const struct race_clocks *from, bool shared_only);

/** race_proxy_fence - the asynchronous proxy sees what the current thread knows */
void race_proxy_fence(void);

/** race_proxy_read - the asynchronous proxy reads shared memory, for the current thread */
void race_proxy_read(uintptr_t address, size_t size, const void *code);

/** race_reach - the current thread uses a barrier in the shared memory of any block of its cluster */
void race_reach(uintptr_t address, size_t size, const void *code);

/** race_access - the current thread accesses memory, but not other blocks' shared memory; `code` is the address of the
 * access, for the message */
void race_access(uintptr_t address, size_t size, bool writes, const void *code);

/**
 * race_copy_begin, race_copy_end - in between, no thread may access the target of a thread's asynchronous copy
 *
 * @param[in] clock  of race_clock_now() in that thread, when it had issued the copy or waited for it
 * @param[in] bulk   the asynchronous proxy writes; the target may be another block's shared memory
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

/** mbarrier_block_end - the current thread's block ends: no bulk copy to it may be on its way */
void mbarrier_block_end(void);

/* Tensor copies (tensor_copy.c) */

/** A box of a tensor. */
struct tensor_box {
	struct tensor_map map;
	uint32_t at[TENSOR_MAP_RANK];
};

/** tensor_box_find - the box that a kernel names by a map in its parameters; ends the launch if the map is wrong */
struct tensor_box tensor_box_find(const void *map, const uint32_t at[TENSOR_MAP_RANK], const void *code);
uint32_t tensor_box_size(const struct tensor_box *box);

/** tensor_box_check - the current thread reads the box's elements that are in the tensor */
void tensor_box_check(const struct tensor_box *box, const void *code);

/** tensor_box_copy - write the box as it is laid out in shared memory */
void tensor_box_copy(void *to, const struct tensor_box *box);

#endif
