/* SPDX-License-Identifier: Apache-2.0 */
/**
 * worker_device.h - memory for the tensors of worker_fixture.h, where the pool's back end needs it
 *
 * On the host, calls take the caller's memory.  On cuda, each kind of tensor has one buffer in device memory, and
 * copies wait for the legacy default stream, on which the fixture's batch works.
 */
#ifndef TESTS_WORKER_DEVICE_H
#define TESTS_WORKER_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cuda/host/gpu.h"

enum worker_buffer { WORKER_K, WORKER_V, WORKER_Q, WORKER_OUTPUT, WORKER_N_BUFFERS };

struct worker_device {
	bool used; /* the pool is on cuda */
	struct cuda_gpu gpu;
	cuda_address buffers[WORKER_N_BUFFERS]; /* of `size` bytes */
	size_t size;
};

/** worker_device_open - device buffers of this many bytes, on the device with this UUID */
void worker_device_open(struct worker_device *device, const char *uuid, size_t size);
/** worker_device_close - also valid for a struct of zeros */
void worker_device_close(struct worker_device *device);

/** worker_device_put - address of `data` for a call of the library */
void *worker_device_put(struct worker_device *device, enum worker_buffer buffer, const void *data, size_t size);
/** worker_device_result - address for what a call of the library writes; then worker_device_get() copies it to `out` */
void *worker_device_result(struct worker_device *device, enum worker_buffer buffer, void *out, size_t size);
void worker_device_get(struct worker_device *device, enum worker_buffer buffer, void *out, size_t size);

#endif
