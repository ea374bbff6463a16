/* SPDX-License-Identifier: Apache-2.0 */
/** inject.h - failures and a log of calls, from the environment that stand_in.h describes */
#ifndef TESTS_CUDA_STAND_IN_INJECT_H
#define TESTS_CUDA_STAND_IN_INJECT_H

/** inject_result - counts the call; what it shall return instead of doing anything, or 0.  One thread at a time. */
int inject_result(const char *name);

void inject_log(const char *name, int result);

#endif
