/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the CUDA driver's stand-in have in common. */
#ifndef TESTS_STAND_IN_CASE_H
#define TESTS_STAND_IN_CASE_H

#include "harness.h"
#include "stand_in_use.h"
#include "kernels/cuda/driver.h"

#define MIB ((size_t)1 << 20)

static struct cuda_driver cuda;

/* The call must give this result. */
#define gives(wanted, call)                                                                       \
	do {                                                                                      \
		int result_ = (call);                                                             \
		it_require(result_ == (wanted), "%s: %d, not %d", #call, result_, (int)(wanted)); \
	} while (0)
#define ok(call) gives(CUDA_SUCCESS, call)

/* In each process that uses CUDA, and not before it forks. */
static inline void
start(int device)
{
	struct paged_error error;
	cuda_context context;

	it_require(stand_in_use(), "%s", dlerror());
	it_require(cuda_driver_open(&cuda, &error) == PAGED_OK, "%s", error.text);
	ok(cuda.context_retain(&context, device));
	ok(cuda.context_push(context));
}

/* The context takes its memory along: the harness counts descriptors. */
static inline void
finish(void)
{
	ok(cuda.context_release(0));
}

static inline uint32_t
peek(cuda_address address)
{
	uint32_t word;

	ok(cuda.copy_out(&word, address, sizeof(word), NULL));
	ok(cuda.stream_synchronize(NULL));
	return word;
}

static inline void
poke(cuda_address address, uint32_t word)
{
	ok(cuda.copy_in(address, &word, sizeof(word), NULL));
	ok(cuda.stream_synchronize(NULL));
}

#endif
