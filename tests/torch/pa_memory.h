/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pa_memory.h - the back end of a struct pa, and transfers of tensors to and from its memory
 *
 * A test program is linked with one of two implementations.  With pa_host.c,
 * kernels use the test's own memory.  With pa_cuda.c, they use copies in the
 * memory of the fake CUDA driver (of a GPU, with PAGED_TEST_REAL_CUDA=1).
 */
#ifndef TESTS_PA_MEMORY_H
#define TESTS_PA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The value of paged_pool_params.backend. */
extern const char *const pa_backend;
/** True on cuda: a test then runs smaller cases, because CPU cores that emulate a GPU are slow. */
extern const bool pa_on_cuda;

#define PA_MAX_COPIES 40u

/** The device copies that one call uses. */
struct pa_device_copies {
	struct {
		void *host;
		uint64_t device;
		size_t size;
		bool back;
	} copy[PA_MAX_COPIES];
	uint32_t n;
};

/** pa_memory_open - call before a pool is opened; any failure in this and the following functions fails the test */
void pa_memory_open(void);

/** pa_upload - returns the address at which a kernel can read `data`; NULL for NULL */
void *pa_upload(struct pa_device_copies *copies, const void *data, size_t size);

/** pa_upload_output - the same for writing; pa_download_outputs() copies the result to `data` */
void *pa_upload_output(struct pa_device_copies *copies, void *data, size_t size);

/** pa_download_outputs - wait until the device has ended all work, copy results back, and free the copies */
void pa_download_outputs(struct pa_device_copies *copies);

/** pa_download, pa_fill_bytes - read and fill memory of the pool, given by `from` and `to` */
void pa_download(void *to, const void *from, size_t size);
void pa_fill_bytes(void *to, uint8_t value, size_t size);

#endif
