/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cuda_case.h - daemons whose pool "toy" lies in the stand-in's device memory
 *
 * For it_cuda_*; skips the test where the stand-in is not built.  With
 * PAGED_TEST_REAL_CUDA=1 the memory is a GPU's, and the test is skipped
 * where there is none.
 */
#ifndef TESTS_CUDA_CASE_H
#define TESTS_CUDA_CASE_H

#include "tests/harness.h"

enum cuda_case_export { CUDA_CASE_AUTO, CUDA_CASE_VMM, CUDA_CASE_LEGACY };

/** cuda_case_environment - programs that are started from now on find the stand-in, or the driver */
void cuda_case_environment(void);

/** cuda_case_configuration - pagedd.conf with toy on cuda, more settings of it and beside it (static buffer) */
const char *cuda_case_configuration(enum cuda_case_export export, const char *of_pool, const char *beside);

void cuda_case_daemon(struct it_daemon *daemon, enum cuda_case_export export, const char *of_pool, const char *beside);

/** cuda_case_needs_no_driver - skips the test on a machine that has a CUDA driver */
void cuda_case_needs_no_driver(void);

/** cuda_case_needs_stand_in - skips the test on a real driver, which fails, counts and shows devices as it likes */
void cuda_case_needs_stand_in(void);

/** cuda_case_open_to_all - let other users reach the runtime directory */
void cuda_case_open_to_all(const struct it_daemon *daemon);

/** cuda_case_n_calls - this process's of a function of the stand-in, since PAGED_STAND_IN_LOG is set */
unsigned int cuda_case_n_calls(const char *name);

/** cuda_case_n_mappings - of device memory in this process */
unsigned int cuda_case_n_mappings(void);

#endif
