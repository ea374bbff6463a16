/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/worker_device.h"

#include "tests/support/harness.h"

#define ok(call)                                                                           \
	do {                                                                               \
		int result_ = (call);                                                      \
		it_require(result_ == CUDA_SUCCESS, "%s: CUDA result %d", #call, result_); \
	} while (0)

static void
enter(const struct worker_device *device)
{
	struct paged_error error;

	it_require(cuda_gpu_enter(&device->gpu, &error) == PAGED_OK, "%s", error.text);
}

void
worker_device_open(struct worker_device *device, const char *uuid, size_t size)
{
	struct paged_error error;

	*device = (struct worker_device){ .size = size };
	it_require(cuda_gpu_open(&device->gpu, uuid, &error) == PAGED_OK, "%s", error.text);
	device->used = true;
	enter(device);
	for (int i = 0; i < WORKER_N_BUFFERS; i++)
		ok(device->gpu.driver.alloc(&device->buffers[i], size));
	cuda_gpu_leave(&device->gpu);
}

void
worker_device_close(struct worker_device *device)
{
	if (!device->used)
		return;
	enter(device);
	ok(device->gpu.driver.stream_synchronize(NULL));
	for (int i = 0; i < WORKER_N_BUFFERS; i++)
		ok(device->gpu.driver.free(device->buffers[i]));
	cuda_gpu_leave(&device->gpu);
	cuda_gpu_close(&device->gpu);
	*device = (struct worker_device){ 0 };
}

void *
worker_device_put(struct worker_device *device, enum worker_buffer buffer, const void *data, size_t size)
{
	if (!device->used)
		return (void *)data;
	it_require(size <= device->size);
	enter(device);
	ok(device->gpu.driver.copy_in(device->buffers[buffer], data, size, NULL));
	ok(device->gpu.driver.stream_synchronize(NULL));
	cuda_gpu_leave(&device->gpu);
	return (void *)(uintptr_t)device->buffers[buffer];
}

void *
worker_device_result(struct worker_device *device, enum worker_buffer buffer, void *out, size_t size)
{
	it_require(!device->used || size <= device->size);
	return device->used ? (void *)(uintptr_t)device->buffers[buffer] : out;
}

void
worker_device_get(struct worker_device *device, enum worker_buffer buffer, void *out, size_t size)
{
	if (!device->used)
		return;
	enter(device);
	ok(device->gpu.driver.copy_out(out, device->buffers[buffer], size, NULL));
	ok(device->gpu.driver.stream_synchronize(NULL));
	cuda_gpu_leave(&device->gpu);
}
