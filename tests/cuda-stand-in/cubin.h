/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cubin.h - what a cubin says of its kernels
 *
 * Read from an ELF file in memory, made by ptxas; nothing of a cubin that
 * somebody else made is to be trusted.
 */
#ifndef TESTS_CUDA_STAND_IN_CUBIN_H
#define TESTS_CUDA_STAND_IN_CUBIN_H

#include <stdbool.h>

struct cubin_kernel {
	unsigned int params_size;
	unsigned int max_threads; /* of a block: its launch bounds */
};

/** cubin_arch - 80, 90, 100, ... */
int cubin_arch(const void *cubin);

/** cubin_find - false: it has no kernel of this name */
bool cubin_find(const void *cubin, const char *name, struct cubin_kernel *kernel);

#endif
