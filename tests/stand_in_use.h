/* SPDX-License-Identifier: Apache-2.0 */
/**
 * stand_in_use.h - the CUDA driver's stand-in, for one process
 *
 * Loaded by its path before anybody asks for libcuda.so.1: the loader then
 * gives what has that name already.  A daemon or pagedctl is given
 * stand_in_path() as LD_LIBRARY_PATH instead.
 *
 * PAGED_TEST_REAL_CUDA=1 leaves the machine's own driver in its place: the
 * same programs then run on a GPU.
 */
#ifndef TESTS_STAND_IN_USE_H
#define TESTS_STAND_IN_USE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** stand_in_wanted - false: tests shall run on the machine's own driver */
static inline bool
stand_in_wanted(void)
{
	const char *real = getenv("PAGED_TEST_REAL_CUDA");

	return real == NULL || strcmp(real, "1") != 0;
}

/** stand_in_path - the folder with libcuda.so.1 and libnvrtc.so.13 (static buffer) */
static inline const char *
stand_in_path(void)
{
	static char path[4096];
	const char *build = getenv("PAGED_BUILDDIR");

	snprintf(path, sizeof(path), "%s/tests/cuda-stand-in/.libs", build != NULL ? build : ".");
	return path;
}

static inline bool
stand_in_load(const char *name)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%s", stand_in_path(), name);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL;
}

/** stand_in_use - true as well where it is not wanted */
static inline bool
stand_in_use(void)
{
	return !stand_in_wanted() || stand_in_load("libcuda.so.1");
}

/** stand_in_use_nvrtc - the compiler's as well */
static inline bool
stand_in_use_nvrtc(void)
{
	return !stand_in_wanted() || stand_in_load("libnvrtc.so.13");
}

#endif
