/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gpu.h - one device, and this process's context on it
 *
 * The context is the device's primary context, which the CUDA runtime in this
 * process uses too, so addresses and streams are valid in both.  The context is
 * retained while a struct cuda_gpu is open.  It is current only between
 * cuda_gpu_enter() and cuda_gpu_leave(), which restores the caller's context.
 *
 * Threads: open and close by one thread at a time; the rest by any.
 * Fork: as in driver.h; a child frees host memory only and closes nothing.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_GPU_H
#define PAGED_KERNELS_CUDA_HOST_GPU_H

#include <stdbool.h>

#include "kernels/cuda/host/driver.h"

/** "GPU-", 36 characters and a terminating zero. */
#define CUDA_UUID_TEXT 41

struct cuda_gpu {
	struct cuda_driver driver;
	cuda_device device;
	struct cuda_uuid uuid;
	cuda_context context;
	char name[64]; /* "NVIDIA H200" */
	char isa[16];  /* "sm_90" */
	char uuid_text[CUDA_UUID_TEXT];
};

/**
 * cuda_gpu_open - open a device by its index in this process, or by its UUID
 *
 * @param[in] device  "0", or "GPU-8a1b..." or "MIG-8a1b..." as printed by nvidia-smi -L
 * @retval PAGED_ERR_UNSUPPORTED  no driver, no device, or the compute mode does not let processes share the device
 * @retval PAGED_ERR_INVALID      `device` is neither an index nor a UUID
 * @retval PAGED_ERR_NOENT        this process sees no such device
 */
enum paged_status cuda_gpu_open(struct cuda_gpu *gpu, const char *device, struct paged_error *error);
enum paged_status cuda_gpu_open_uuid(struct cuda_gpu *gpu, const struct cuda_uuid *uuid, struct paged_error *error);

/** cuda_gpu_close - also valid for a struct of zeros */
void cuda_gpu_close(struct cuda_gpu *gpu);

/**
 * cuda_gpu_enter, cuda_gpu_leave - make the context current on this thread, and restore the previous one
 *
 * Between the two calls the thread's stream capture mode is relaxed:
 * allocations, frees and waits do not invalidate captures of the caller on
 * other streams.
 */
enum paged_status cuda_gpu_enter(const struct cuda_gpu *gpu, struct paged_error *error);
void cuda_gpu_leave(const struct cuda_gpu *gpu);

/** cuda_gpu_check - convert a driver call's result to a status; the error text begins with `call` */
enum paged_status cuda_gpu_check(const struct cuda_gpu *gpu, int result, const char *call, struct paged_error *error);

/** cuda_gpu_attribute - a device attribute; 0 if the driver does not know it */
int cuda_gpu_attribute(const struct cuda_gpu *gpu, enum cuda_device_attribute attribute);

/** cuda_gpu_obstacle - a known reason on this machine why processes cannot share memory; NULL: none */
const char *cuda_gpu_obstacle(const struct cuda_gpu *gpu);

/** cuda_uuid_format - write a UUID to `text`; returns `text` */
const char *cuda_uuid_format(const struct cuda_uuid *uuid, char text[CUDA_UUID_TEXT]);

/** cuda_uuid_parse - returns false if the text is not a UUID */
bool cuda_uuid_parse(const char *text, struct cuda_uuid *uuid);

#endif
