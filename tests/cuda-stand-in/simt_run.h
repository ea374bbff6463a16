/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_run.h - run a kernel's source on the host, thread by thread
 *
 * Kernels compiled with simt_host.h register themselves when the program or
 * library that they are in is loaded.  simt_run() runs one: block after
 * block, the threads of a block as fibres that take turns at barriers and
 * whole-warp operations.  The seed decides the order of blocks and threads.
 *
 * What is found: memory that is no kernel's to touch, races (through the hooks
 * of -fsanitize=thread, which simt_host.h's users are compiled with and
 * race.c supplies), barriers and warp operations that not all threads reach,
 * and threads that wait for ever.
 *
 * Life: regions are added and removed by whoever owns the memory; a removed
 * one is forgotten.  Threads: simt_run() of several threads take turns; the
 * rest is for one thread at a time.
 */
#ifndef TESTS_CUDA_STAND_IN_SIMT_RUN_H
#define TESTS_CUDA_STAND_IN_SIMT_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define SIMT_MAX_THREADS 1024
#define SIMT_MAX_SHARED (227u << 10)

/** A kernel as SIMT_KERNEL() declared it. */
struct simt_kernel {
	const char *name;
	size_t params_size;
	unsigned int max_threads;
	unsigned int min_blocks;
	void (*run)(const void *params);
	struct simt_kernel *next;
	const void *module; /* for whoever loads modules: NULL if it was there from the beginning */
};

/** simt_register, simt_unregister - called by a module's constructors and destructors */
void simt_register(struct simt_kernel *kernel);
void simt_unregister(struct simt_kernel *kernel);

/** simt_find - a registered kernel, the latest of its name; NULL if there is none */
const struct simt_kernel *simt_find(const char *name);

/** simt_first - all registered kernels, linked by next */
struct simt_kernel *simt_first(void);

/**
 * simt_region_add, simt_region_remove - memory that kernels may touch
 *
 * @param[in] name  for messages; kept, not copied
 * @return false: no memory, or it overlaps another
 */
bool simt_region_add(const void *start, size_t size, bool writable, const char *name);
void simt_region_remove(const void *start);

/** simt_region_allow - whether kernels may touch a region now, and write it; at first they may touch it */
void simt_region_allow(const void *start, bool readable, bool writable);

struct simt_launch {
	const struct simt_kernel *kernel;
	const void *params; /* params_size bytes */
	unsigned int grid[2];
	unsigned int n_threads; /* of a block, a multiple of 32 */
	size_t shared_size;
	uint64_t seed; /* order of blocks and threads. 0: ascending, 1: descending, else shuffled */
};

/** simt_run - true, or false with one sentence about the first thing that was wrong */
bool simt_run(const struct simt_launch *launch, char *message, size_t size);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
