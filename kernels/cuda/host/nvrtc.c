/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/host/nvrtc.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* From the newest.  The suffix is the toolkit's major version; for CUDA 11 it is 11.2 from 11.2 on. */
static const struct {
	int major;
	const char *name;
} libraries[] = { { 13, "libnvrtc.so.13" }, { 12, "libnvrtc.so.12" }, { 11, "libnvrtc.so.11.2" } };

#define N_LIBRARIES (sizeof(libraries) / sizeof(libraries[0]))

static const char *
nvrtc_resolve(struct cuda_nvrtc *nvrtc)
{
	const char *missing = NULL;

	/* POSIX allows the conversion of an object pointer from dlsym() to a function pointer. */
#define CUDA_NVRTC_RESOLVE(type, symbol, field, parameters)       \
	*(void **)&nvrtc->field = dlsym(nvrtc->library, #symbol); \
	if (nvrtc->field == NULL)                                 \
		missing = #symbol;
	CUDA_NVRTC_FUNCTIONS(CUDA_NVRTC_RESOLVE)
#undef CUDA_NVRTC_RESOLVE
	return missing;
}

static bool
nvrtc_try(struct cuda_nvrtc *nvrtc, const char *name)
{
	nvrtc->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	return nvrtc->library != NULL;
}

/*
 * A driver loads what NVRTC of its own major version or of an earlier one has compiled, and rarely what a later one
 * has. The name without a suffix, which is in the development package, may be any version.
 */
static const char *
nvrtc_load_for(struct cuda_nvrtc *nvrtc, int driver_major)
{
	size_t older = 0;

	while (older < N_LIBRARIES && driver_major > 0 && libraries[older].major > driver_major)
		older++;
	for (size_t i = older; i < N_LIBRARIES; i++)
		if (nvrtc_try(nvrtc, libraries[i].name))
			return libraries[i].name;
	while (older > 0)
		if (nvrtc_try(nvrtc, libraries[--older].name))
			return libraries[older].name;
	return nvrtc_try(nvrtc, "libnvrtc.so") ? "libnvrtc.so" : NULL;
}

/* Load the library; returns the name that was loaded, or NULL and the error. */
static const char *
nvrtc_load(struct cuda_nvrtc *nvrtc, int driver_version, struct paged_error *error)
{
	const char *own = secure_getenv("PAGED_NVRTC"), *name;

	if (own != NULL && own[0] != '\0') {
		if (nvrtc_try(nvrtc, own))
			return own;
		paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA compiler: PAGED_NVRTC: %s", dlerror());
		return NULL;
	}
	name = nvrtc_load_for(nvrtc, driver_version / 1000);
	if (name == NULL)
		paged_fail(error, PAGED_ERR_UNSUPPORTED,
			   "no CUDA compiler: tried libnvrtc.so.13, .so.12, .so.11.2 and libnvrtc.so; install NVRTC of "
			   "the CUDA toolkit, or set PAGED_NVRTC to its file");
	return name;
}

/* An old library lacks functions, so its version is checked first. */
static enum paged_status
nvrtc_check(struct cuda_nvrtc *nvrtc, const char *name, const char *missing, struct paged_error *error)
{
	const int major = CUDA_NVRTC_OLDEST / 1000, minor = CUDA_NVRTC_OLDEST % 1000 / 10;

	if (nvrtc->version != NULL && nvrtc->version(&nvrtc->major, &nvrtc->minor) != CUDA_NVRTC_SUCCESS)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA compiler: %s does not start", name);
	if (nvrtc->version != NULL && 1000 * nvrtc->major + 10 * nvrtc->minor < CUDA_NVRTC_OLDEST)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "no CUDA compiler: %s is NVRTC %d.%d, and %d.%d or later is needed: install one, or "
				  "set PAGED_NVRTC to its file",
				  name, nvrtc->major, nvrtc->minor, major, minor);
	if (missing != NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "no CUDA compiler: %s has no %s, so it is not NVRTC %d.%d or later", name, missing,
				  major, minor);
	return PAGED_OK;
}

enum paged_status
cuda_nvrtc_open(struct cuda_nvrtc *nvrtc, int driver_version, struct paged_error *error)
{
	enum paged_status status;
	const char *name;

	memset(nvrtc, 0, sizeof(*nvrtc));
	name = nvrtc_load(nvrtc, driver_version, error);
	if (name == NULL)
		return PAGED_ERR_UNSUPPORTED;
	status = nvrtc_check(nvrtc, name, nvrtc_resolve(nvrtc), error);
	if (status != PAGED_OK)
		cuda_nvrtc_close(nvrtc);
	return status;
}

void
cuda_nvrtc_close(struct cuda_nvrtc *nvrtc)
{
	if (nvrtc->library != NULL)
		dlclose(nvrtc->library);
	memset(nvrtc, 0, sizeof(*nvrtc));
}
