/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/host/gpu.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

enum paged_status
cuda_gpu_check(const struct cuda_gpu *gpu, int result, const char *call, struct paged_error *error)
{
	if (result == CUDA_SUCCESS)
		return PAGED_OK;
	return cuda_fail(&gpu->driver, result, error, "%s", call);
}

int
cuda_gpu_attribute(const struct cuda_gpu *gpu, enum cuda_device_attribute attribute)
{
	int value;

	return gpu->driver.device_attribute(&value, (int)attribute, gpu->device) == CUDA_SUCCESS ? value : 0;
}

const char *
cuda_uuid_format(const struct cuda_uuid *uuid, char text[CUDA_UUID_TEXT])
{
	const uint8_t *b = uuid->bytes;

	snprintf(text, CUDA_UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return text;
}

bool
cuda_uuid_parse(const char *text, struct cuda_uuid *uuid)
{
	if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
		text += 4;
	for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
		if ((i == 4 || i == 6 || i == 8 || i == 10) && *text++ != '-')
			return false;
		if (!text_unhex_byte(&uuid->bytes[i], text))
			return false;
		text += 2;
	}
	return *text == '\0';
}

static enum paged_status
gpu_find_index(struct cuda_gpu *gpu, long index, struct paged_error *error)
{
	enum paged_status status;
	int n;

	status = cuda_gpu_check(gpu, gpu->driver.device_count(&n), "cuDeviceGetCount", error);
	if (status != PAGED_OK)
		return status;
	if (index >= n)
		return paged_fail(error, PAGED_ERR_NOENT, "there are %d CUDA devices, counted from 0", n);
	return cuda_gpu_check(gpu, gpu->driver.device_get(&gpu->device, (int)index), "cuDeviceGet", error);
}

static enum paged_status
gpu_find_named(struct cuda_gpu *gpu, const char *device, struct paged_error *error)
{
	struct cuda_uuid uuid;
	char *end;
	long index;

	if (cuda_uuid_parse(device, &uuid))
		return cuda_device_find(&gpu->driver, &uuid, &gpu->device, error);
	errno = 0;
	index = strtol(device, &end, 10);
	if (!isdigit((unsigned char)device[0]) || *end != '\0' || errno != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "neither a number nor a UUID as nvidia-smi -L prints it");
	return gpu_find_index(gpu, index, error);
}

/* Refuse a compute mode that allows contexts of only one process, or of none. */
static enum paged_status
gpu_compute_mode_check(const struct cuda_gpu *gpu, struct paged_error *error)
{
	switch (cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MODE)) {
	case CUDA_COMPUTE_DEFAULT:
		return PAGED_OK;
	case CUDA_COMPUTE_PROHIBITED:
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "%s: its compute mode prohibits all use (nvidia-smi -c DEFAULT)", gpu->name);
	default:
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "%s: its compute mode admits one process at a time (nvidia-smi -c DEFAULT)",
				  gpu->name);
	}
}

/* Fill in the properties of gpu->device and retain its context. */
static enum paged_status
gpu_init(struct cuda_gpu *gpu, struct paged_error *error)
{
	const struct cuda_driver *driver = &gpu->driver;
	enum paged_status status;

	status = cuda_gpu_check(gpu, driver->device_name(gpu->name, sizeof(gpu->name), gpu->device), "cuDeviceGetName",
				error);
	if (status == PAGED_OK)
		status = cuda_gpu_check(gpu, driver->device_uuid(&gpu->uuid, gpu->device), "cuDeviceGetUuid", error);
	if (status == PAGED_OK)
		status = gpu_compute_mode_check(gpu, error);
	if (status != PAGED_OK)
		return status;
	cuda_uuid_format(&gpu->uuid, gpu->uuid_text);
	snprintf(gpu->isa, sizeof(gpu->isa), "sm_%d%d", cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MAJOR),
		 cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MINOR));
	return cuda_gpu_check(gpu, driver->context_retain(&gpu->context, gpu->device), "cuDevicePrimaryCtxRetain",
			      error);
}

static enum paged_status
gpu_open_device(struct cuda_gpu *gpu, const char *device, const struct cuda_uuid *uuid, struct paged_error *error)
{
	enum paged_status status;

	memset(gpu, 0, sizeof(*gpu));
	status = cuda_driver_open(&gpu->driver, error);
	if (status != PAGED_OK)
		return status;
	if (device != NULL)
		status = gpu_find_named(gpu, device, error);
	else
		status = cuda_device_find(&gpu->driver, uuid, &gpu->device, error);
	if (status == PAGED_OK)
		status = gpu_init(gpu, error);
	if (status != PAGED_OK) {
		gpu->context = NULL;
		cuda_gpu_close(gpu);
	}
	return status;
}

enum paged_status
cuda_gpu_open(struct cuda_gpu *gpu, const char *device, struct paged_error *error)
{
	return gpu_open_device(gpu, device, NULL, error);
}

enum paged_status
cuda_gpu_open_uuid(struct cuda_gpu *gpu, const struct cuda_uuid *uuid, struct paged_error *error)
{
	return gpu_open_device(gpu, NULL, uuid, error);
}

void
cuda_gpu_close(struct cuda_gpu *gpu)
{
	if (gpu->context != NULL)
		gpu->driver.context_release(gpu->device);
	cuda_driver_close(&gpu->driver);
	memset(gpu, 0, sizeof(*gpu));
}

/* This thread's nesting depth of cuda_gpu_enter(), and the capture mode to restore at the end. */
static _Thread_local struct {
	unsigned int depth;
	int mode;
} entered;

/*
 * The allocations and waits between enter and leave belong to no graph, so they
 * need not invalidate a capture of the caller on some other stream.
 */
enum paged_status
cuda_gpu_enter(const struct cuda_gpu *gpu, struct paged_error *error)
{
	enum paged_status status =
		cuda_gpu_check(gpu, gpu->driver.context_push(gpu->context), "cuCtxPushCurrent", error);

	if (status == PAGED_OK && entered.depth++ == 0) {
		entered.mode = CUDA_CAPTURE_RELAXED;
		gpu->driver.capture_mode(&entered.mode);
	}
	return status;
}

void
cuda_gpu_leave(const struct cuda_gpu *gpu)
{
	cuda_context left;

	assert(entered.depth > 0);
	if (--entered.depth == 0)
		gpu->driver.capture_mode(&entered.mode);
	gpu->driver.context_pop(&left);
}

/* The kernel release of the Windows Subsystem for Linux contains "microsoft". */
static bool
gpu_is_wsl(void)
{
	FILE *file = fopen("/proc/sys/kernel/osrelease", "re");
	char text[128] = "";

	if (file == NULL)
		return false;
	if (fgets(text, sizeof(text), file) == NULL)
		text[0] = '\0';
	fclose(file);
	return strstr(text, "icrosoft") != NULL;
}

const char *
cuda_gpu_obstacle(const struct cuda_gpu *gpu)
{
	if (strstr(gpu->name, " MIG ") != NULL)
		return "the device is a MIG instance";
	if (gpu_is_wsl())
		return "this is Windows' subsystem for Linux";
	if (cuda_gpu_attribute(gpu, CUDA_DEVICE_INTEGRATED) != 0)
		return "the device is integrated";
	return NULL;
}
