/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fuzz.h - a fuzz target and its seed messages
 *
 * Each fuzz_X.c defines both.  With --enable-fuzzer, it is linked with
 * libFuzzer, and the program fuzz_X_seeds writes the initial corpus:
 *
 *   mkdir corpus && tests/fuzz_wire_seeds --write corpus && tests/fuzz/fuzz_wire corpus
 *
 * Without --enable-fuzzer, fuzz_main.c replays the seeds and some thousand
 * mutations of them in make check.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** LLVMFuzzerTestOneInput - aborts if the tested code misbehaves; any input is allowed */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** fuzz_seed - write the index-th seed to a buffer, which must be large enough; returns its size, 0 past the last */
size_t fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size);

#endif
