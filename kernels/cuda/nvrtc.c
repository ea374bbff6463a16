/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/nvrtc.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/*
 * The suffix is the toolkit's major version; for CUDA 11 it is 11.2 from 11.2 on.  The name without a suffix is in the
 * development package.
 */
static const char *const libraries[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so" };

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

/* Load the library; returns the name that was loaded, or NULL and the error. */
static const char *
nvrtc_load(struct cuda_nvrtc *nvrtc, struct paged_error *error)
{
	const char *own = secure_getenv("PAGED_NVRTC");

	if (own != NULL && own[0] != '\0') {
		nvrtc->library = dlopen(own, RTLD_NOW | RTLD_LOCAL);
		if (nvrtc->library == NULL)
			paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA compiler: PAGED_NVRTC: %s", dlerror());
		return nvrtc->library != NULL ? own : NULL;
	}
	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
		nvrtc->library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
		if (nvrtc->library != NULL)
			return libraries[i];
	}
	paged_fail(error, PAGED_ERR_UNSUPPORTED,
		   "no CUDA compiler: tried libnvrtc.so.13, .so.12, .so.11.2 and libnvrtc.so; install NVRTC of the "
		   "CUDA toolkit, or set PAGED_NVRTC to its file");
	return NULL;
}

enum paged_status
cuda_nvrtc_open(struct cuda_nvrtc *nvrtc, struct paged_error *error)
{
	const char *name, *missing;

	memset(nvrtc, 0, sizeof(*nvrtc));
	name = nvrtc_load(nvrtc, error);
	if (name == NULL)
		return PAGED_ERR_UNSUPPORTED;
	missing = nvrtc_resolve(nvrtc);
	if (missing == NULL && nvrtc->version(&nvrtc->major, &nvrtc->minor) == CUDA_NVRTC_SUCCESS)
		return PAGED_OK;
	cuda_nvrtc_close(nvrtc);
	if (missing == NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA compiler: %s does not start", name);
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA compiler: %s has no %s, which CUDA 11.2 brought", name,
			  missing);
}

void
cuda_nvrtc_close(struct cuda_nvrtc *nvrtc)
{
	if (nvrtc->library != NULL)
		dlclose(nvrtc->library);
	memset(nvrtc, 0, sizeof(*nvrtc));
}
