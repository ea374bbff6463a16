/* SPDX-License-Identifier: Apache-2.0 */
/* Devices as the environment describes them, primary contexts, each thread's stack of current ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fake-cuda/fake_cuda.h"

#define MAX_STACK 16

static const struct {
	int attribute, value;
} attributes[] = {
	{ CUDA_DEVICE_MAX_PITCH, INT32_MAX },
	{ CUDA_DEVICE_MULTIPROCESSORS, 4 }, /* few, so that grids that fill the device run quickly */
	{ CUDA_DEVICE_INTEGRATED, 0 },
	{ CUDA_DEVICE_COMPUTE_MODE, CUDA_COMPUTE_DEFAULT },
	{ CUDA_DEVICE_COMPUTE_MAJOR, 9 },
	{ CUDA_DEVICE_COMPUTE_MINOR, 0 },
	{ CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN, 227 << 10 },
	{ CUDA_DEVICE_VMM, 1 },
	{ CUDA_DEVICE_POSIX_FD_HANDLES, 1 },
	{ CUDA_DEVICE_RDMA_WITH_VMM, 1 },
	{ CUDA_DEVICE_IPC_EVENTS, 1 },
	{ CUDA_DEVICE_MPS_ENABLED, 0 },
};

static struct CUctx_st contexts[MAX_DEVICES];
static struct cuda_uuid uuids[MAX_DEVICES];
static int n_devices = -1;
static int exclusive[MAX_DEVICES]; /* sockets whose names mark a device as in use */
static __thread struct {
	struct CUctx_st *contexts[MAX_STACK];
	uint64_t generations[MAX_STACK];
	unsigned int n;
} current;

static void
devices_read(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	unsigned long n = entry_setting("PAGED_FAKE_CUDA_DEVICES", 1), index = 0;

	n_devices = 0;
	while (n_devices < MAX_DEVICES) {
		struct cuda_uuid uuid = { "paged fake CUDA" };
		char *end;

		if (visible != NULL) {
			index = strtoul(visible, &end, 10);
			if (end == visible || index >= n)
				break; /* as CUDA: the first that is no device ends the list */
			visible = *end == ',' ? end + 1 : end;
		} else if (index == n) {
			break;
		}
		uuid.bytes[15] = (uint8_t)index++;
		uuids[n_devices] = uuid;
		contexts[n_devices].device = n_devices;
		exclusive[n_devices++] = -1;
	}
}

bool
device_exists(cuda_device device)
{
	if (n_devices < 0)
		devices_read();
	return device >= 0 && device < n_devices;
}

const struct cuda_uuid *
device_uuid_of(cuda_device device)
{
	return &uuids[device];
}

cuda_device
device_by_uuid(const struct cuda_uuid *uuid)
{
	for (int i = 0; i < n_devices; i++)
		if (memcmp(&uuids[i], uuid, sizeof(*uuid)) == 0)
			return i;
	return -1;
}

size_t
device_memory_size(void)
{
	return entry_setting("PAGED_FAKE_CUDA_MEMORY", (size_t)1 << 30);
}

int
device_attribute_of(cuda_device device, int attribute)
{
	const char *item = getenv("PAGED_FAKE_CUDA_ATTRIBUTES");

	(void)device;
	while (item != NULL) {
		char *end;
		long number = strtol(item, &end, 10);

		if (*end == '=' && number == attribute)
			return atoi(end + 1);
		item = strchr(item, ',');
		if (item != NULL)
			item++;
	}
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attribute == attribute)
			return attributes[i].value;
	return -1;
}

static int
device_get(cuda_device *device, int ordinal)
{
	if (!device_exists(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

static int
device_name(char *name, int size, cuda_device device)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)size, "fake GPU");
	return CUDA_SUCCESS;
}

static int
device_uuid(struct cuda_uuid *uuid, cuda_device device)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*uuid = uuids[device];
	return CUDA_SUCCESS;
}

static int
device_attribute(int *value, int attribute, cuda_device device)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*value = device_attribute_of(device, attribute);
	return *value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static int
device_memory(size_t *size, cuda_device device)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*size = device_memory_size();
	return CUDA_SUCCESS;
}

ENTRY(cuDeviceGetCount, (int *n), ENTRY_DRIVER, (*n = n_devices, CUDA_SUCCESS))
ENTRY(cuDeviceGet, (cuda_device * device, int ordinal), ENTRY_DRIVER, device_get(device, ordinal))
ENTRY(cuDeviceGetName, (char *name, int size, cuda_device device), ENTRY_DRIVER, device_name(name, size, device))
ENTRY(cuDeviceGetUuid_v2, (struct cuda_uuid * uuid, cuda_device device), ENTRY_DRIVER, device_uuid(uuid, device))
ENTRY(cuDeviceGetAttribute, (int *value, int attribute, cuda_device device), ENTRY_DRIVER,
      device_attribute(value, attribute, device))
ENTRY(cuDeviceTotalMem_v2, (size_t * size, cuda_device device), ENTRY_DRIVER, device_memory(size, device))

/* Contexts */

/* An abstract name goes with its process. */
static bool
device_take(cuda_device device)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };

	if (exclusive[device] >= 0)
		return true;
	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "paged-fake-cuda-%u-%u", (unsigned int)getuid(),
		 uuids[device].bytes[15]);
	exclusive[device] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (exclusive[device] >= 0 && bind(exclusive[device], (struct sockaddr *)&name, sizeof(name)) == 0)
		return true;
	close(exclusive[device]);
	exclusive[device] = -1;
	return false;
}

static int
context_retain(struct CUctx_st **context, cuda_device device)
{
	int mode;

	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	mode = device_attribute_of(device, CUDA_DEVICE_COMPUTE_MODE);
	if (mode == CUDA_COMPUTE_PROHIBITED || (mode == CUDA_COMPUTE_EXCLUSIVE_PROCESS && !device_take(device)))
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (contexts[device].n_retained++ == 0)
		contexts[device].generation++;
	*context = &contexts[device];
	return CUDA_SUCCESS;
}

static int
context_release(cuda_device device)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (contexts[device].n_retained == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--contexts[device].n_retained > 0)
		return CUDA_SUCCESS;
	capture_forget(&contexts[device]);
	stream_forget(&contexts[device]);
	memory_forget(device);
	if (exclusive[device] >= 0)
		close(exclusive[device]);
	exclusive[device] = -1;
	return CUDA_SUCCESS;
}

bool
context_is_current(void)
{
	return context_now() != NULL;
}

/* NULL as well if it was destroyed since. */
struct CUctx_st *
context_now(void)
{
	struct CUctx_st *context = current.n == 0 ? NULL : current.contexts[current.n - 1];

	if (context == NULL || context->n_retained == 0 || context->generation != current.generations[current.n - 1])
		return NULL;
	return context;
}

static int
context_push(struct CUctx_st *context)
{
	if (context == NULL || context->n_retained == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (current.n == MAX_STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	current.generations[current.n] = context->generation;
	current.contexts[current.n++] = context;
	return CUDA_SUCCESS;
}

static int
context_pop(struct CUctx_st **context)
{
	if (current.n == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	current.n--;
	if (context != NULL)
		*context = current.contexts[current.n];
	return CUDA_SUCCESS;
}

static int
context_synchronize(void)
{
	int result = capture_context(context_now());

	return result == CUDA_SUCCESS ? stream_run_all(context_now()->device) : result;
}

ENTRY(cuDevicePrimaryCtxRetain, (cuda_context * context, cuda_device device), ENTRY_DRIVER,
      context_retain(context, device))
ENTRY(cuDevicePrimaryCtxRelease_v2, (cuda_device device), ENTRY_INIT, context_release(device))
ENTRY(cuCtxPushCurrent_v2, (cuda_context context), ENTRY_DRIVER, context_push(context))
ENTRY(cuCtxPopCurrent_v2, (cuda_context * context), ENTRY_DRIVER, context_pop(context))
ENTRY(cuCtxGetCurrent, (cuda_context * context), ENTRY_DRIVER, (*context = context_now(), CUDA_SUCCESS))
ENTRY(cuCtxGetDevice, (cuda_device * device), ENTRY_CONTEXT, (*device = context_now()->device, CUDA_SUCCESS))
ENTRY(cuCtxSynchronize, (void), ENTRY_CONTEXT, context_synchronize())
