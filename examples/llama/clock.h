/* SPDX-License-Identifier: Apache-2.0 */
/**
 * clock.h - the monotonic clock
 */
#ifndef LLAMA_CLOCK_H
#define LLAMA_CLOCK_H

#include <time.h>

/** clock_now_s - seconds of CLOCK_MONOTONIC */
static inline double
clock_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
