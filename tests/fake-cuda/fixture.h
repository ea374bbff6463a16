/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that the tests of the fake CUDA driver share. */
#ifndef TESTS_FAKE_CUDA_FIXTURE_H
#define TESTS_FAKE_CUDA_FIXTURE_H

#include "tests/support/harness.h"
#include "tests/fake-cuda/load.h"
#include "kernels/cuda/host/driver.h"

#define MIB ((size_t)1 << 20)

static struct cuda_driver cuda;

/* Fails the test unless the call returns this CUDA result. */
#define gives(wanted, call)                                                                       \
	do {                                                                                      \
		int result_ = (call);                                                             \
		it_require(result_ == (wanted), "%s: %d, not %d", #call, result_, (int)(wanted)); \
	} while (0)
#define ok(call) gives(CUDA_SUCCESS, call)

/* Call it in each process that uses CUDA; a process must not fork after it. */
static inline void
fake_cuda_start(int device)
{
	struct paged_error error;
	cuda_context context;

	it_require(fake_cuda_load(), "%s", dlerror());
	it_require(cuda_driver_open(&cuda, &error) == PAGED_OK, "%s", error.text);
	ok(cuda.context_retain(&context, device));
	ok(cuda.context_push(context));
}

/* Releasing the context frees its memory, so that the harness finds no open descriptors. */
static inline void
fake_cuda_finish(void)
{
	ok(cuda.context_release(0));
}

static inline uint32_t
fake_cuda_read_word(cuda_address address)
{
	uint32_t word;

	ok(cuda.copy_out(&word, address, sizeof(word), NULL));
	ok(cuda.stream_synchronize(NULL));
	return word;
}

static inline void
fake_cuda_write_word(cuda_address address, uint32_t word)
{
	ok(cuda.copy_in(address, &word, sizeof(word), NULL));
	ok(cuda.stream_synchronize(NULL));
}

#endif
