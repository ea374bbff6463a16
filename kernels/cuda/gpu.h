/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gpu.h - one device, and this process's context on it
 *
 * The context is the device's primary one, which whatever else uses CUDA in
 * this process has too, so that addresses and streams are everybody's.  It
 * is retained while a struct cuda_gpu is open and current only between
 * cuda_gpu_enter() and cuda_gpu_leave(): what the caller had made current is
 * so again afterwards.
 *
 * Threads: open and close by one at a time; the rest by any.
 * Fork: as driver.h; a child frees memory alone, and closes nothing.
 */
#ifndef PAGED_KERNELS_CUDA_GPU_H
#define PAGED_KERNELS_CUDA_GPU_H

#include <stdbool.h>

#include "kernels/cuda/driver.h"

/** "GPU-" and 36 characters, with a zero. */
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
 * cuda_gpu_open - by its index as this process counts, or by its UUID
 *
 * @param[in] device  "0", "GPU-8a1b..." or "MIG-8a1b..." as nvidia-smi -L says it
 * @retval PAGED_ERR_UNSUPPORTED  no driver, no device, or a compute mode that keeps processes apart
 * @retval PAGED_ERR_INVALID      device is neither
 * @retval PAGED_ERR_NOENT        this process sees no such device
 */
enum paged_status cuda_gpu_open(struct cuda_gpu *gpu, const char *device, struct paged_error *error);
enum paged_status cuda_gpu_open_uuid(struct cuda_gpu *gpu, const struct cuda_uuid *uuid, struct paged_error *error);

/** cuda_gpu_close - also of a struct of zeros */
void cuda_gpu_close(struct cuda_gpu *gpu);

/**
 * cuda_gpu_enter, cuda_gpu_leave - the context is this thread's current one between them
 *
 * So is the relaxed capture mode: a caller's captures on other streams bear
 * what is allocated, freed and waited for there.
 */
enum paged_status cuda_gpu_enter(const struct cuda_gpu *gpu, struct paged_error *error);
void cuda_gpu_leave(const struct cuda_gpu *gpu);

/** cuda_gpu_check - a driver call's result as a status; on a failure, `call` is what the sentence begins with */
enum paged_status cuda_gpu_check(const struct cuda_gpu *gpu, int result, const char *call, struct paged_error *error);

/** cuda_gpu_attribute - 0 also when the driver does not know it */
int cuda_gpu_attribute(const struct cuda_gpu *gpu, enum cuda_device_attribute attribute);

/** cuda_gpu_obstacle - what here is known to keep processes from sharing memory; NULL: nothing */
const char *cuda_gpu_obstacle(const struct cuda_gpu *gpu);

/** cuda_uuid_format - returns text */
const char *cuda_uuid_format(const struct cuda_uuid *uuid, char text[CUDA_UUID_TEXT]);

/** cuda_uuid_parse - false: it is none */
bool cuda_uuid_parse(const char *text, struct cuda_uuid *uuid);

#endif
