/* SPDX-License-Identifier: Apache-2.0 */
/**
 * stand_in_use.h - the CUDA driver's stand-in, for one process
 *
 * Loaded by its path before anybody asks for libcuda.so.1: the loader then
 * gives what has that name already.  A daemon or pagedctl is given
 * stand_in_path() as LD_LIBRARY_PATH instead.
 */
#ifndef TESTS_STAND_IN_USE_H
#define TESTS_STAND_IN_USE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

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

static inline bool
stand_in_use(void)
{
	return stand_in_load("libcuda.so.1");
}

/** stand_in_use_nvrtc - the compiler's as well */
static inline bool
stand_in_use_nvrtc(void)
{
	return stand_in_load("libnvrtc.so.13");
}

#endif
