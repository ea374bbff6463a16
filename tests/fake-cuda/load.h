/* SPDX-License-Identifier: Apache-2.0 */
/**
 * load.h - loads the fake CUDA driver into this process
 *
 * The library is loaded by its path before any dlopen("libcuda.so.1"): the
 * dynamic loader then returns the library that already has this soname.  For a
 * daemon or pagedctl, set LD_LIBRARY_PATH to fake_cuda_path() instead.
 *
 * With PAGED_TEST_REAL_CUDA=1 the machine's own driver is used, and the same
 * programs run on a GPU.
 */
#ifndef TESTS_FAKE_CUDA_LOAD_H
#define TESTS_FAKE_CUDA_LOAD_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** fake_cuda_wanted - false: tests run on the machine's own driver */
static inline bool
fake_cuda_wanted(void)
{
	const char *real = getenv("PAGED_TEST_REAL_CUDA");

	return real == NULL || strcmp(real, "1") != 0;
}

/** fake_cuda_path - the directory of the fake libcuda.so.1 and libnvrtc.so.12 (static buffer) */
static inline const char *
fake_cuda_path(void)
{
	static char path[4096];
	const char *build = getenv("PAGED_BUILDDIR");

	snprintf(path, sizeof(path), "%s/tests/fake-cuda/.libs", build != NULL ? build : ".");
	return path;
}

static inline bool
fake_cuda_dlopen(const char *name)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%s", fake_cuda_path(), name);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL;
}

/** fake_cuda_load - load the fake driver; true without loading if fake_cuda_wanted() is false */
static inline bool
fake_cuda_load(void)
{
	return !fake_cuda_wanted() || fake_cuda_dlopen("libcuda.so.1");
}

/** fake_cuda_load_nvrtc - the same for the fake libnvrtc */
static inline bool
fake_cuda_load_nvrtc(void)
{
	return !fake_cuda_wanted() || fake_cuda_dlopen("libnvrtc.so.12");
}

#endif
