/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/nvrtc.h"

#include <dlfcn.h>
#include <string.h>

/* The number is the toolkit's; the bare name comes with its development files. */
static const char *const libraries[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so" };

static const char *
nvrtc_resolve(struct cuda_nvrtc *nvrtc)
{
	const char *missing = NULL;

	/* POSIX lets a function's address come as a pointer to an object. */
#define CUDA_NVRTC_RESOLVE(type, symbol, field, parameters)       \
	*(void **)&nvrtc->field = dlsym(nvrtc->library, #symbol); \
	if (nvrtc->field == NULL)                                 \
		missing = #symbol;
	CUDA_NVRTC_FUNCTIONS(CUDA_NVRTC_RESOLVE)
#undef CUDA_NVRTC_RESOLVE
	return missing;
}

enum paged_status
cuda_nvrtc_open(struct cuda_nvrtc *nvrtc, struct paged_error *error)
{
	const char *missing;

	memset(nvrtc, 0, sizeof(*nvrtc));
	for (size_t i = 0; nvrtc->library == NULL && i < sizeof(libraries) / sizeof(libraries[0]); i++)
		nvrtc->library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
	if (nvrtc->library == NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA compiler (libnvrtc.so.13 or .12 not found)");
	missing = nvrtc_resolve(nvrtc);
	if (missing == NULL && nvrtc->version(&nvrtc->major, &nvrtc->minor) == CUDA_NVRTC_SUCCESS)
		return PAGED_OK;
	cuda_nvrtc_close(nvrtc);
	if (missing == NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA compiler (libnvrtc does not start)");
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "no CUDA compiler (libnvrtc has no %s: it is too old)",
			  missing);
}

void
cuda_nvrtc_close(struct cuda_nvrtc *nvrtc)
{
	if (nvrtc->library != NULL)
		dlclose(nvrtc->library);
	memset(nvrtc, 0, sizeof(*nvrtc));
}
