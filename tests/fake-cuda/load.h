/* SPDX-License-Identifier: Apache-2.0 */
/**
 * stand_in_use.h - loads the fake CUDA driver (cuda-stand-in) into this process
 *
 * The library is loaded by its path before any dlopen("libcuda.so.1"): the
 * dynamic loader then returns the library that already has this soname.  For a
 * daemon or pagedctl, set LD_LIBRARY_PATH to stand_in_path() instead.
 *
 * With PAGED_TEST_REAL_CUDA=1 the machine's own driver is used, and the same
 * programs run on a GPU.
 */
#ifndef TESTS_STAND_IN_USE_H
#define TESTS_STAND_IN_USE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** stand_in_wanted - false: tests run on the machine's own driver */
static inline bool
stand_in_wanted(void)
{
	const char *real = getenv("PAGED_TEST_REAL_CUDA");

	return real == NULL || strcmp(real, "1") != 0;
}

/** stand_in_path - the directory of the fake libcuda.so.1 and libnvrtc.so.13 (static buffer) */
static inline const char *
stand_in_path(void)
{
	static char path[4096];
	const char *build = getenv("PAGED_BUILDDIR");

	snprintf(path, sizeof(path), "%s/tests/fake-cuda/.libs", build != NULL ? build : ".");
	return path;
}

static inline bool
stand_in_load(const char *name)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%s", stand_in_path(), name);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL;
}

/** stand_in_use - load the fake driver; true without loading if stand_in_wanted() is false */
static inline bool
stand_in_use(void)
{
	return !stand_in_wanted() || stand_in_load("libcuda.so.1");
}

/** stand_in_use_nvrtc - the same for the fake libnvrtc */
static inline bool
stand_in_use_nvrtc(void)
{
	return !stand_in_wanted() || stand_in_load("libnvrtc.so.13");
}

#endif
