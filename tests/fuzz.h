/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fuzz.h - a fuzz target and the messages that it starts from
 *
 * A fuzz_X.c defines both.  With --enable-fuzzer it is linked with libFuzzer,
 * and fuzz_X_seeds writes the corpus to begin with:
 *
 *   mkdir corpus && tests/fuzz_wire_seeds --write corpus && tests/fuzz_wire corpus
 *
 * Otherwise fuzz_main.c replays the seeds and some thousand mutations of them
 * in make check.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** Aborts when what it tests goes wrong; any input is allowed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** fuzz_seed - the index-th seed into a buffer that is large enough; its size, 0 past the last */
size_t fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size);

#endif
