/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cubin.h - reads the attributes of a cubin's kernels
 *
 * A cubin is an ELF file in memory, made by ptxas.  The functions do not check
 * it: do not pass a cubin from an untrusted source.
 */
#ifndef TESTS_FAKE_CUDA_CUBIN_H
#define TESTS_FAKE_CUDA_CUBIN_H

#include <stdbool.h>

struct cubin_kernel {
	unsigned int params_size;
	unsigned int max_threads; /* per block: the kernel's launch bounds */
	unsigned int n_cluster_blocks;
};

/** cubin_arch - the architecture: 80, 90, 100, ... */
int cubin_arch(const void *cubin);

/** cubin_find - false: it has no kernel of this name */
bool cubin_find(const void *cubin, const char *name, struct cubin_kernel *kernel);

#endif
