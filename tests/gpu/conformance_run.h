/* SPDX-License-Identifier: Apache-2.0 */
/**
 * conformance_run.h - one kernel on the same words by the models, and by a device or its record
 *
 * The device is the driver's stand-in, or with PAGED_TEST_REAL_CUDA=1 a GPU,
 * which runs tests/gpu/conformance.fatbin of the build folder.
 *
 *   PAGED_CONFORMANCE_RECORD=FILE  what the device was given and gave is appended to it, as text
 *   PAGED_CONFORMANCE_REPLAY=FILE  the device is this record of one; no driver is asked for
 *
 * What fails in here ends the test.
 */
#ifndef TESTS_GPU_CONFORMANCE_RUN_H
#define TESTS_GPU_CONFORMANCE_RUN_H

#include <stddef.h>
#include <stdint.h>

struct conformance_launch {
	const char *kernel; /* without "conformance_" */
	const char *record; /* its name in a record: a kernel may run on several inputs */
	unsigned int n_blocks, n_blocks_y, n_threads;
	uint32_t n_items;   /* the kernel's `n` */
	size_t n_in, n_out; /* words */
};

/** conformance_model - what the models make of `in` */
void conformance_model(const struct conformance_launch *launch, const uint32_t *in, uint32_t *out);

/** conformance_device - what the device makes of it; of a replayed record, `in` becomes what it was given */
void conformance_device(const struct conformance_launch *launch, uint32_t *in, uint32_t *out);

#endif
