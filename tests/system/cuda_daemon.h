/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cuda_daemon.h - daemons whose pool "test" is in device memory of the fake CUDA driver
 *
 * For it_cuda_* programs.  The test is skipped if the fake driver is not
 * built.  With PAGED_TEST_REAL_CUDA=1 the memory is a GPU's, and the test is
 * skipped if there is no GPU.
 */
#ifndef TESTS_CUDA_CASE_H
#define TESTS_CUDA_CASE_H

#include "tests/support/harness.h"

enum cuda_case_export { CUDA_CASE_AUTO, CUDA_CASE_VMM, CUDA_CASE_LEGACY };

/** cuda_case_environment - programs started from now on load the fake driver, or with a real GPU its driver */
void cuda_case_environment(void);

/**
 * cuda_case_configuration - pagedd.conf with pool "test" on cuda (static buffer)
 *
 * @param[in] of_pool  more settings inside the pool's block
 * @param[in] beside   more text outside the pool's block
 */
const char *cuda_case_configuration(enum cuda_case_export export, const char *of_pool, const char *beside);

void cuda_case_daemon(struct it_daemon *daemon, enum cuda_case_export export, const char *of_pool, const char *beside);

/** cuda_case_needs_no_driver - skips the test on a machine that has a CUDA driver */
void cuda_case_needs_no_driver(void);

/** cuda_case_needs_fake_cuda - skips the test on a real driver, whose failures, calls and devices no test controls */
void cuda_case_needs_fake_cuda(void);

/** cuda_case_open_to_all - give other users access to the runtime directory */
void cuda_case_open_to_all(const struct it_daemon *daemon);

/** cuda_case_n_calls - how often this process called a function of the fake driver since PAGED_FAKE_CUDA_LOG was set */
unsigned int cuda_case_n_calls(const char *name);

/** cuda_case_n_mappings - number of mappings of device memory in this process */
unsigned int cuda_case_n_mappings(void);

#endif
