/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of programs that run the tests of another program on pools in the memory of the fake CUDA driver.  They compile
 * that program's file, and worker_fixture.c, with -DWORKER_ON_CUDA.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fake-cuda/load.h"

/* Before main(): processes that the tests start, and their forked children, are to find this driver. */
__attribute__((constructor)) static void
fake_driver_install(void)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/libcuda.so.1", fake_cuda_path());
	if (access(path, R_OK) != 0) {
		puts("1..0 # SKIP the fake CUDA driver is not built");
		exit(EXIT_SUCCESS);
	}
	setenv("LD_LIBRARY_PATH", fake_cuda_path(), 1);
	if (!fake_cuda_dlopen("libcuda.so.1") || !fake_cuda_dlopen("libnvrtc.so.12")) {
		fprintf(stderr, "%s\n", dlerror());
		exit(EXIT_FAILURE);
	}
}
