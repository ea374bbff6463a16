/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library names a GPU by its UUID, DLPack by CUDA's device index in this process.  The CUDA driver, which the
 * library has loaded for the pool, maps one to the other.
 */
#include "python/ext/ext.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "python/ext/dlpack.h"

#define DEVICE_NAME 48

/* Devices that were found; their numbers do not change while the process runs. */
static struct {
	char name[DEVICE_NAME];
	int32_t id;
} device_found[16];
static unsigned int device_n_found;

/** The driver's functions, as cuda.h declares them.  They return 0 on success. */
struct device_driver {
	int (*count)(int *n);
	int (*get)(int *device, int ordinal);
	int (*uuid)(unsigned char bytes[16], int device);
};

static bool
device_driver_find(struct device_driver *driver)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (library == NULL)
		return false;
	*(void **)&driver->count = dlsym(library, "cuDeviceGetCount");
	*(void **)&driver->get = dlsym(library, "cuDeviceGet");
	*(void **)&driver->uuid = dlsym(library, "cuDeviceGetUuid_v2");
	/* The pool keeps the driver loaded. */
	dlclose(library);
	return driver->count != NULL && driver->get != NULL && driver->uuid != NULL;
}

static bool
device_has_name(const struct device_driver *driver, int ordinal, const char *name)
{
	unsigned char b[16];
	char text[DEVICE_NAME];
	int device;

	if (driver->get(&device, ordinal) != 0 || driver->uuid(b, device) != 0)
		return false;
	snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return strcmp(text, name) == 0;
}

static bool
device_find(const char *name, int32_t *id_p)
{
	struct device_driver driver;
	int n;

	for (unsigned int i = 0; i < device_n_found; i++)
		if (strcmp(device_found[i].name, name) == 0) {
			*id_p = device_found[i].id;
			return true;
		}
	if (!device_driver_find(&driver) || driver.count(&n) != 0)
		return false;
	for (int ordinal = 0; ordinal < n; ordinal++) {
		if (!device_has_name(&driver, ordinal, name))
			continue;
		if (device_n_found < sizeof(device_found) / sizeof(device_found[0])) {
			device_found[device_n_found].id = ordinal;
			strcpy(device_found[device_n_found++].name, name);
		}
		*id_p = ordinal;
		return true;
	}
	return false;
}

bool
device_of_pool(const struct pool *pool, int32_t *device_type_p, int32_t *device_id_p)
{
	if (pool->info.device == NULL) {
		*device_type_p = DLPACK_HOST;
		*device_id_p = 0;
		return true;
	}
	*device_type_p = DLPACK_CUDA;
	if (device_find(pool->info.device, device_id_p))
		return true;
	PyErr_Format(PyExc_RuntimeError,
		     "pool %s: the CUDA driver of this process does not show its device %s: check CUDA_VISIBLE_DEVICES",
		     pool->info.name, pool->info.device);
	return false;
}
