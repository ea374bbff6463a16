/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/host/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DRIVER_LIBRARY "libcuda.so.1"

static enum paged_status
cuda_result_status(int result)
{
	switch (result) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return PAGED_ERR_NOMEM;
	case CUDA_ERROR_NOT_SUPPORTED:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
		return PAGED_ERR_UNSUPPORTED;
	default:
		return PAGED_ERR_BACKEND;
	}
}

/*
 * The errors after which, according to cuda.h, the process must be terminated and relaunched; and uncorrectable errors
 * of memory and of NVLink, after which the driver ends the process's channels.
 */
bool
cuda_is_sticky(int result)
{
	switch (result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
		return true;
	default:
		return result >= CUDA_ERROR_HARDWARE_STACK && result <= CUDA_ERROR_LAUNCH_FAILED;
	}
}

enum paged_status
cuda_fail(const struct cuda_driver *driver, int result, struct paged_error *error, const char *what, ...)
{
	const char *name = NULL, *text = NULL;
	char object[128];
	va_list arguments;

	va_start(arguments, what);
	vsnprintf(object, sizeof(object), what, arguments);
	va_end(arguments);
	if (driver->error_name(result, &name) != CUDA_SUCCESS || name == NULL)
		return paged_fail(error, cuda_result_status(result), "%s: CUDA error %d", object, result);
	if (driver->error_string(result, &text) != CUDA_SUCCESS || text == NULL)
		text = "";
	return paged_fail(error, cuda_result_status(result), "%s: %s (%s)%s", object, name, text,
			  cuda_is_sticky(result) ? "; this process cannot use CUDA any more; restart it" : "");
}

/* The first driver for Linux that supports a major version of CUDA, or 0. */
static int
driver_of_cuda(int major)
{
	static const int drivers[] = { [11] = 450, [12] = 525, [13] = 580 };

	return major >= 0 && (size_t)major < sizeof(drivers) / sizeof(drivers[0]) ? drivers[major] : 0;
}

void
cuda_add_driver_age(const struct cuda_driver *driver, int compiled_by, struct paged_error *error)
{
	size_t length = strlen(error->text);
	int major = compiled_by / 1000, supported = driver->version / 1000;
	char needed[32] = "a newer driver";

	if (compiled_by <= driver->version)
		return;
	error->status = PAGED_ERR_UNSUPPORTED;
	/* A driver runs what any minor version of its CUDA compiled for the device, but not PTX. */
	if (major > supported && driver_of_cuda(major) > 0)
		snprintf(needed, sizeof(needed), "driver %d or newer", driver_of_cuda(major));
	snprintf(
		error->text + length, sizeof(error->text) - length,
		"; CUDA %d.%d compiled it, and this driver supports CUDA %d.%d: install %s, or compile with CUDA %d.%d",
		major, compiled_by % 1000 / 10, supported, driver->version % 1000 / 10, needed, supported,
		driver->version % 1000 / 10);
}

void
cuda_add_nvrtc_version(const struct cuda_driver *driver, int nvrtc, struct paged_error *error)
{
	size_t length = strlen(error->text);
	int major = driver->version / 1000, minor = driver->version % 1000 / 10;
	char advice[80] = "";

	if (nvrtc > driver->version) {
		error->status = PAGED_ERR_UNSUPPORTED;
		snprintf(advice, sizeof(advice), ": set PAGED_NVRTC to NVRTC %d.%d or older", major, minor);
	}
	snprintf(error->text + length, sizeof(error->text) - length,
		 "; NVRTC %d.%d compiled it, and this driver supports CUDA %d.%d%s", nvrtc / 1000, nvrtc % 1000 / 10,
		 major, minor, advice);
}

static enum paged_status
driver_resolve(struct cuda_driver *driver, struct paged_error *error)
{
	const char *missing = NULL;

	/* POSIX allows the conversion of an object pointer from dlsym() to a function pointer. */
#define CUDA_DRIVER_RESOLVE(symbol, field, parameters)              \
	*(void **)&driver->field = dlsym(driver->library, #symbol); \
	if (driver->field == NULL)                                  \
		missing = #symbol;
	CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_RESOLVE)
#undef CUDA_DRIVER_RESOLVE
#define CUDA_DRIVER_RESOLVE(symbol, field, parameters) *(void **)&driver->field = dlsym(driver->library, #symbol);
	CUDA_DRIVER_OPTIONAL_FUNCTIONS(CUDA_DRIVER_RESOLVE)
#undef CUDA_DRIVER_RESOLVE
	if (missing == NULL)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_UNSUPPORTED,
			  "no CUDA driver (" DRIVER_LIBRARY " has no %s: it is older than CUDA 11.4)", missing);
}

static enum paged_status
driver_init(struct cuda_driver *driver, struct paged_error *error)
{
	int result = driver->init(0), n = 0;

	if (result == CUDA_ERROR_STUB_LIBRARY)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "no CUDA driver (" DRIVER_LIBRARY " is the toolkit's stub, which is for linking)");
	if (result == CUDA_SUCCESS)
		result = driver->driver_version(&driver->version);
	if (result == CUDA_SUCCESS)
		result = driver->device_count(&n);
	if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && n == 0))
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "no CUDA device (the driver sees none: nvidia-smi, CUDA_VISIBLE_DEVICES)");
	if (result != CUDA_SUCCESS) {
		cuda_fail(driver, result, error, "the CUDA driver does not start");
		return error->status = PAGED_ERR_UNSUPPORTED;
	}
	return PAGED_OK;
}

enum paged_status
cuda_driver_open(struct cuda_driver *driver, struct paged_error *error)
{
	enum paged_status status;

	memset(driver, 0, sizeof(*driver));
	/* RTLD_NODELETE: threads of the driver may outlive the last context. */
	driver->library = dlopen(DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (driver->library == NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA driver (" DRIVER_LIBRARY " not found)");
	status = driver_resolve(driver, error);
	if (status == PAGED_OK)
		status = driver_init(driver, error);
	if (status != PAGED_OK)
		cuda_driver_close(driver);
	return status;
}

void
cuda_driver_close(struct cuda_driver *driver)
{
	if (driver->library != NULL)
		dlclose(driver->library);
	memset(driver, 0, sizeof(*driver));
}

enum paged_status
cuda_device_find(const struct cuda_driver *driver, const struct cuda_uuid *uuid, cuda_device *device_p,
		 struct paged_error *error)
{
	struct cuda_uuid seen;
	int result, n;

	result = driver->device_count(&n);
	for (int i = 0; result == CUDA_SUCCESS && i < n; i++) {
		cuda_device device;

		result = driver->device_get(&device, i);
		if (result == CUDA_SUCCESS)
			result = driver->device_uuid(&seen, device);
		if (result == CUDA_SUCCESS && memcmp(&seen, uuid, sizeof(seen)) == 0) {
			*device_p = device;
			return PAGED_OK;
		}
	}
	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, error, "looking for a CUDA device");
	return paged_fail(error, PAGED_ERR_NOENT,
			  "this process sees %d CUDA devices, and none is the pool's (CUDA_VISIBLE_DEVICES)", n);
}
