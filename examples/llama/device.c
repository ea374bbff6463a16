/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/device.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

/* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_STREAM_NON_BLOCKING */
#define DEVICE_ORDINAL 9
#define NON_BLOCKING 1

/* What is used of the driver, after NVIDIA's documentation; all return 0 on success. */
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

struct device {
	void *library;
#define FIELD(name, parameters) int(*name) parameters;
	FUNCTIONS(FIELD)
#undef FIELD
	int device;
	void *context;
	void *stream;
	struct {
		uint64_t address;
		size_t size;
	} slot[DEVICE_N_SLOTS];
};

static bool
driver_load(struct device *device, struct error *error)
{
	device->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (device->library == NULL)
		return error_set(error, "no CUDA driver: %s", dlerror());
#define LOAD(name, parameters)                                   \
	*(void **)&device->name = dlsym(device->library, #name); \
	if (device->name == NULL)                                \
		return error_set(error, "libcuda.so.1 has no " #name);
	FUNCTIONS(LOAD)
#undef LOAD
	return true;
}

static bool
done(const struct device *device, int result, const char *what, struct error *error)
{
	const char *name;

	if (result == 0)
		return true;
	if (device->cuGetErrorName(result, &name) != 0)
		return error_set(error, "%s: CUDA error %d", what, result);
	return error_set(error, "%s: %s", what, name);
}

static bool
context_take(struct device *device, int ordinal, struct error *error)
{
	return done(device, device->cuDeviceGet(&device->device, ordinal), "cuDeviceGet", error) &&
	       done(device, device->cuDevicePrimaryCtxRetain(&device->context, device->device),
		    "cuDevicePrimaryCtxRetain", error);
}

/* The library has used CUDA before, for the address is one of its pools'; asking about it takes some context. */
static bool
context_open(struct device *device, const void *address, struct error *error)
{
	int ordinal = 0, result;
	void *context;

	if (!context_take(device, 0, error) ||
	    !done(device, device->cuCtxPushCurrent_v2(device->context), "cuCtxPushCurrent", error))
		return false;
	result = device->cuPointerGetAttribute(&ordinal, DEVICE_ORDINAL, (uintptr_t)address);
	device->cuCtxPopCurrent_v2(&context);
	if (!done(device, result, "cuPointerGetAttribute", error))
		return false;
	if (ordinal == 0)
		return true;
	device->context = NULL;
	device->cuDevicePrimaryCtxRelease_v2(device->device);
	return context_take(device, ordinal, error);
}

static bool
stream_open(struct device *device, struct error *error)
{
	void *context;
	bool good;

	if (!done(device, device->cuCtxPushCurrent_v2(device->context), "cuCtxPushCurrent", error))
		return false;
	good = done(device, device->cuStreamCreate(&device->stream, NON_BLOCKING), "cuStreamCreate", error);
	device->cuCtxPopCurrent_v2(&context);
	return good;
}

struct device *
device_open(const void *address, struct error *error)
{
	struct device *device = calloc(1, sizeof(*device));

	if (device == NULL) {
		error_set(error, "no memory for a device");
		return NULL;
	}
	if (driver_load(device, error) && context_open(device, address, error) && stream_open(device, error))
		return device;
	device_close(device);
	return NULL;
}

void
device_close(struct device *device)
{
	void *context;

	if (device == NULL)
		return;
	if (device->context != NULL && device->cuCtxPushCurrent_v2(device->context) == 0) {
		if (device->stream != NULL)
			device->cuStreamDestroy_v2(device->stream);
		for (unsigned int i = 0; i < DEVICE_N_SLOTS; i++)
			if (device->slot[i].address != 0)
				device->cuMemFree_v2(device->slot[i].address);
		device->cuCtxPopCurrent_v2(&context);
	}
	if (device->context != NULL)
		device->cuDevicePrimaryCtxRelease_v2(device->device);
	if (device->library != NULL)
		dlclose(device->library);
	free(device);
}

/* With the context current. */
static bool
slot_grow(struct device *device, enum device_slot slot, size_t size, struct error *error)
{
	if (device->slot[slot].size >= size)
		return true;
	if (device->slot[slot].address != 0)
		device->cuMemFree_v2(device->slot[slot].address);
	device->slot[slot].address = 0;
	device->slot[slot].size = 0;
	if (!done(device, device->cuMemAlloc_v2(&device->slot[slot].address, size), "cuMemAlloc", error))
		return false;
	device->slot[slot].size = size;
	return true;
}

void *
device_in(struct device *device, enum device_slot slot, const void *from, size_t size, struct error *error)
{
	void *context;
	bool good;

	if (!done(device, device->cuCtxPushCurrent_v2(device->context), "cuCtxPushCurrent", error))
		return NULL;
	good = slot_grow(device, slot, size, error) &&
	       (from == NULL ||
		done(device, device->cuMemcpyHtoDAsync_v2(device->slot[slot].address, from, size, device->stream),
		     "cuMemcpyHtoDAsync", error));
	device->cuCtxPopCurrent_v2(&context);
	return good ? (void *)(uintptr_t)device->slot[slot].address : NULL;
}

void *
device_stream(const struct device *device)
{
	return device->stream;
}

void *
device_room(struct device *device, enum device_slot slot, size_t size, struct error *error)
{
	return device_in(device, slot, NULL, size, error);
}

void
device_wait(struct device *device)
{
	void *context;

	if (device->cuCtxPushCurrent_v2(device->context) != 0)
		return;
	device->cuStreamSynchronize(device->stream);
	device->cuCtxPopCurrent_v2(&context);
}

bool
device_out(struct device *device, enum device_slot slot, void *to, size_t size, struct error *error)
{
	void *context;
	bool good;

	if (!done(device, device->cuCtxPushCurrent_v2(device->context), "cuCtxPushCurrent", error))
		return false;
	good = done(device, device->cuMemcpyDtoHAsync_v2(to, device->slot[slot].address, size, device->stream),
		    "cuMemcpyDtoHAsync", error) &&
	       done(device, device->cuStreamSynchronize(device->stream), "cuStreamSynchronize", error);
	device->cuCtxPopCurrent_v2(&context);
	return good;
}
