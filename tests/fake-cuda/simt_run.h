/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_run.h - run a kernel's source on the host, thread by thread
 *
 * Kernels compiled with simt_host.h register themselves when their program or
 * library is loaded.  simt_run() runs one kernel, block after block, or cluster
 * after cluster.  The threads of a block, and of all blocks of a cluster, are
 * fibres; a fibre switches to another one at barriers and whole-warp operations.
 * The seed determines the order of blocks and threads.
 *
 * simt_run() detects: accesses outside the regions; data races (race.c
 * implements the hooks of -fsanitize=thread, with which users of simt_host.h
 * are compiled); barriers and warp operations that not all threads reach;
 * threads that wait forever; and blocks that end while a bulk copy to their
 * shared memory is on its way, or while the cluster's other block may reach it.
 *
 * A dependent launch (simt.h, SIMT_KERNEL()) may begin as soon as the launch
 * before it has begun.  What it does before simt_dependency_wait() then meets
 * memory in any state, so any access to memory before is an error, except to the
 * block's shared memory and to the parameters.  A thread that ends without the
 * wait is an error too: the next kernel would not be ordered after earlier ones.
 *
 * Life: the owner of memory adds and removes its region; removing a region
 * discards all state about it.  Threads: concurrent calls of simt_run() run
 * one after the other; only one thread at a time may call the other functions.
 */
#ifndef TESTS_FAKE_CUDA_SIMT_RUN_H
#define TESTS_FAKE_CUDA_SIMT_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define SIMT_MAX_THREADS 1024 /* of a block, and of all blocks of a cluster */
#define SIMT_MAX_SHARED (227u << 10)
#define SIMT_MAX_CLUSTER 2u /* blocks of a cluster */

/** A kernel as SIMT_KERNEL() or SIMT_KERNEL_OF_CLUSTERS() declared it. */
struct simt_kernel {
	const char *name;
	size_t params_size;
	unsigned int max_threads;
	unsigned int min_blocks;
	unsigned int n_cluster_blocks; /* 1: no clusters */
	void (*run)(const void *params);
	struct simt_kernel *next;
	const void *module; /* set by the module loader; NULL if the kernel was not loaded as a module */
};

/** simt_register, simt_unregister - called by a module's constructors and destructors */
void simt_register(struct simt_kernel *kernel);
void simt_unregister(struct simt_kernel *kernel);

/** simt_find - the kernel of this name that was registered last; NULL if there is none */
const struct simt_kernel *simt_find(const char *name);

/** simt_first - the first registered kernel; the others follow by next */
struct simt_kernel *simt_first(void);

/**
 * simt_region_add, simt_region_remove - let kernels access memory, or no longer
 *
 * @param[in] name  for messages; kept, not copied
 * @return false: out of memory, or the region overlaps another one
 */
bool simt_region_add(const void *start, size_t size, bool writable, const char *name);
void simt_region_remove(const void *start);

/** simt_region_allow - set whether kernels may access a region and write it; a new region is accessible */
void simt_region_allow(const void *start, bool readable, bool writable);

struct simt_launch {
	const struct simt_kernel *kernel;
	const void *params; /* params_size bytes */
	unsigned int grid[2];
	unsigned int n_threads; /* per block; a multiple of 32 */
	size_t shared_size;
	bool dependent; /* it begins before the launch before it has ended */
	uint64_t seed;  /* order of blocks and threads. 0: ascending, 1: descending, else shuffled */
};

/** simt_run - run a kernel; false: `message` has one sentence about the first error */
bool simt_run(const struct simt_launch *launch, char *message, size_t size);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
