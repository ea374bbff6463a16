/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cuda_daemon.h - daemons whose pool "test" is in device memory of the fake CUDA driver
 *
 * For it_cuda_* programs.  The test is skipped if the fake driver is not
 * built.  With PAGED_TEST_REAL_CUDA=1 the memory is a GPU's, and the test is
 * skipped if there is no GPU.
 */
#ifndef TESTS_CUDA_DAEMON_H
#define TESTS_CUDA_DAEMON_H

#include "client/pagedclient.h"
#include "tests/support/harness.h"

enum export_setting { EXPORT_SETTING_AUTO, EXPORT_SETTING_VMM, EXPORT_SETTING_LEGACY };

/** cuda_daemon_environment - programs started from now on load the fake driver, or with a real GPU its driver */
void cuda_daemon_environment(void);

/**
 * cuda_daemon_config - returns the text of a pagedd.conf with pool "test" on cuda, in a static buffer
 *
 * @param[in] pool_settings  more settings inside the pool's block
 * @param[in] more_config    more text outside the pool's block
 */
const char *cuda_daemon_config(enum export_setting export, const char *pool_settings, const char *more_config);

void cuda_daemon_start(struct it_daemon *daemon, enum export_setting export, const char *pool_settings,
		       const char *more_config);

/** An embedded pool "test" of four pages, for tests that load kernels. */
extern const struct paged_pool_params cuda_small_pool;

/** cuda_skip_with_driver - skips the test on a machine that has a CUDA driver */
void cuda_skip_with_driver(void);

/** cuda_skip_with_gpu - skips the test on a real driver, whose failures, calls and devices no test controls */
void cuda_skip_with_gpu(void);

/** cuda_expect_refusal - paged_pool_open() of pool "test" has this status, and its message contains this part */
void cuda_expect_refusal(enum paged_status status, const char *part);

/** cuda_daemon_allow_all_users - give other users access to the runtime directory */
void cuda_daemon_allow_all_users(const struct it_daemon *daemon);

/**
 * fake_cuda_n_calls - how often this process called a function of the fake driver since PAGED_FAKE_CUDA_LOG was set
 *
 * @param[in] name  NULL: all functions
 */
unsigned int fake_cuda_n_calls(const char *name);

/** fake_cuda_n_runs - how often kernels ran in this process whose names begin so, since PAGED_FAKE_CUDA_RUNS was set */
unsigned int fake_cuda_n_runs(const char *prefix);

/** fake_cuda_n_mappings - number of mappings of device memory in this process */
unsigned int fake_cuda_n_mappings(void);

#endif
