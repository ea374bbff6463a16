/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pa_memory.h - where a pa's pages lie, and how its tensors get there
 *
 * A test program is linked with one of two: pa_host.c, where kernels read what
 * the test has, and pa_cuda.c, where they read copies in the memory of the
 * driver's stand-in (of a GPU, with PAGED_TEST_REAL_CUDA=1).
 */
#ifndef TESTS_PA_MEMORY_H
#define TESTS_PA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** paged_pool_params.backend */
extern const char *const pa_backend;
/** What one run costs: tests that this machine's cores have to play a GPU in are made smaller. */
extern const bool pa_on_cuda;

#define PA_MAX_LENT 40u

/** Copies of one call. */
struct pa_lent {
	struct {
		void *theirs;
		uint64_t ours;
		size_t size;
		bool back;
	} copy[PA_MAX_LENT];
	uint32_t n;
};

/** pa_memory_open - before a pool is opened; any failure here and below fails the test */
void pa_memory_open(void);

/** pa_lend - what a kernel is to read, as it sees it; NULL for NULL */
void *pa_lend(struct pa_lent *lent, const void *data, size_t size);

/** pa_lend_back - what a kernel is to write: lies in `data` after pa_lend_end() */
void *pa_lend_back(struct pa_lent *lent, void *data, size_t size);

/** pa_lend_end - the kernels have ended */
void pa_lend_end(struct pa_lent *lent);

/** pa_fetch, pa_fill_bytes - the pool's pages from here */
void pa_fetch(void *to, const void *from, size_t size);
void pa_fill_bytes(void *to, uint8_t value, size_t size);

#endif
