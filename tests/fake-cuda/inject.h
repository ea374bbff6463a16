/* SPDX-License-Identifier: Apache-2.0 */
/** inject.h - injected failures and the log of calls, controlled by the environment that fake_cuda.h describes */
#ifndef TESTS_FAKE_CUDA_INJECT_H
#define TESTS_FAKE_CUDA_INJECT_H

/** inject_result - count the call; the error that it must return at once, or 0.  One thread at a time. */
int inject_result(const char *name);

void inject_log(const char *name, int result);

#endif
