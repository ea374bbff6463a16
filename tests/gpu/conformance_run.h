/* SPDX-License-Identifier: Apache-2.0 */
/**
 * conformance_run.h - runs one kernel on the same words by the host's models and by a device or its record
 *
 * The device is the fake CUDA driver, or with
 * PAGED_TEST_REAL_CUDA=1 a GPU, which runs tests/gpu/conformance.fatbin of the
 * build directory.
 *
 *   PAGED_CONFORMANCE_RECORD=FILE  append the device's input and output to FILE, as text
 *   PAGED_CONFORMANCE_REPLAY=FILE  read the device's output from this record; load no driver
 *
 * Any failure in these functions ends the test.
 */
#ifndef TESTS_GPU_CONFORMANCE_RUN_H
#define TESTS_GPU_CONFORMANCE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** `in` as a tensor of halves, [dims[3]][dims[2]][dims[1]][dims[0]], and the box that copies of it move. */
struct conformance_tensor {
	uint64_t dims[4];
	uint32_t box[4];
};

struct conformance_launch {
	const char *kernel; /* without "conformance_" */
	const char *record; /* its name in a record: a kernel may run on several inputs */
	unsigned int n_blocks, n_blocks_y, n_threads;
	uint32_t n_items;     /* the kernel's `n` */
	size_t n_in, n_out;   /* words */
	unsigned int n_steps; /* launches one after another, with `n` from 0 on; 0: one launch, with n_items */
	int capability;       /* 10 * major + minor of the devices that have the instructions; 0: all.  Others skip */
	bool or_later;        /* devices of higher capability have them too */
	const struct conformance_tensor *tensor; /* NULL: the kernel reads no map */
};

/** conformance_model - run the kernel on `in` by the models */
void conformance_model(const struct conformance_launch *launch, const uint32_t *in, uint32_t *out);

/** conformance_device - run the kernel on `in` by the device; a replay overwrites `in` with the recorded input */
void conformance_device(const struct conformance_launch *launch, uint32_t *in, uint32_t *out);

#endif
