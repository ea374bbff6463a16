/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/device.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

/* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_STREAM_NON_BLOCKING */
#define DEVICE_ORDINAL 9
#define NON_BLOCKING 1

/* The driver functions that are used, declared as NVIDIA documents them; all return 0 on success. */
#define FUNCTIONS(F)                                                                        \
	F(cuGetErrorName, (int result, const char **name))                                  \
	F(cuPointerGetAttribute, (void *value, int attribute, uint64_t address))            \
	F(cuDeviceGet, (int *device, int ordinal))                                          \
	F(cuDevicePrimaryCtxRetain, (void **context, int device))                           \
	F(cuDevicePrimaryCtxRelease_v2, (int device))                                       \
	F(cuCtxPushCurrent_v2, (void *context))                                             \
	F(cuCtxPopCurrent_v2, (void **context))                                             \
	F(cuStreamCreate, (void **stream, unsigned int flags))                              \
	F(cuStreamDestroy_v2, (void *stream))                                               \
	F(cuMemAlloc_v2, (uint64_t * address, size_t size))                                 \
	F(cuMemFree_v2, (uint64_t address))                                                 \
	F(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t size, void *stream)) \
	F(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t size, void *stream))       \
	F(cuStreamSynchronize, (void *stream))

/* Device memory that is reused until a larger one is needed. */
struct slot {
	uint64_t address;
	size_t size;
};

struct device {
	void *library;
#define FIELD(name, parameters) int(*name) parameters;
	FUNCTIONS(FIELD)
#undef FIELD
	int device;
	void *context;
	void *stream;
	struct slot slot[DEVICE_N_SLOTS];
};

static void
device_check(const struct device *device, int result, const char *call)
{
	const char *name;

	if (result != 0 && device->cuGetErrorName(result, &name) == 0)
		die("%s: %s", call, name);
	if (result != 0)
		die("%s: CUDA error %d", call, result);
}
#define CALL(device, function, ...) device_check(device, (device)->function(__VA_ARGS__), #function)

static void
driver_load(struct device *device)
{
	device->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (device->library == NULL)
		die("no CUDA driver: %s", dlerror());
#define LOAD(name, parameters)                                   \
	*(void **)&device->name = dlsym(device->library, #name); \
	if (device->name == NULL)                                \
		die("libcuda.so.1 has no " #name);
	FUNCTIONS(LOAD)
#undef LOAD
}

static void
context_enter(struct device *device, int ordinal)
{
	CALL(device, cuDeviceGet, &device->device, ordinal);
	CALL(device, cuDevicePrimaryCtxRetain, &device->context, device->device);
	CALL(device, cuCtxPushCurrent_v2, device->context);
}

static void
context_leave(struct device *device)
{
	void *context;

	device->cuCtxPopCurrent_v2(&context);
	device->cuDevicePrimaryCtxRelease_v2(device->device);
}

struct device *
device_open(const void *address)
{
	struct device *device = xcalloc(1, sizeof(*device));
	int ordinal = 0;

	driver_load(device);
	/* The query about the address needs a current context: use the first device's. */
	context_enter(device, ordinal);
	CALL(device, cuPointerGetAttribute, &ordinal, DEVICE_ORDINAL, (uintptr_t)address);
	if (ordinal != 0) {
		context_leave(device);
		context_enter(device, ordinal);
	}
	CALL(device, cuStreamCreate, &device->stream, NON_BLOCKING);
	return device;
}

void
device_close(struct device *device)
{
	if (device == NULL)
		return;
	device->cuStreamDestroy_v2(device->stream);
	for (unsigned int i = 0; i < DEVICE_N_SLOTS; i++)
		if (device->slot[i].address != 0)
			device->cuMemFree_v2(device->slot[i].address);
	context_leave(device);
	dlclose(device->library);
	free(device);
}

void *
device_stream(const struct device *device)
{
	return device->stream;
}

void *
device_in(struct device *device, enum device_slot number, const void *from, size_t size)
{
	struct slot *slot = &device->slot[number];

	if (slot->size < size) {
		if (slot->address != 0)
			device->cuMemFree_v2(slot->address);
		CALL(device, cuMemAlloc_v2, &slot->address, size);
		slot->size = size;
	}
	if (from != NULL)
		CALL(device, cuMemcpyHtoDAsync_v2, slot->address, from, size, device->stream);
	return (void *)(uintptr_t)slot->address;
}

void
device_wait(struct device *device)
{
	device->cuStreamSynchronize(device->stream);
}

void
device_out(struct device *device, enum device_slot slot, void *to, size_t size)
{
	CALL(device, cuMemcpyDtoHAsync_v2, to, device->slot[slot].address, size, device->stream);
	CALL(device, cuStreamSynchronize, device->stream);
}
