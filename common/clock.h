/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the monotonic clock */
#ifndef PAGED_CLOCK_H
#define PAGED_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t
clock_us(void)
{
	return clock_ns() / 1000;
}

static inline uint64_t
clock_ms(void)
{
	return clock_us() / 1000;
}

/** clock_coarse_ms - up to a few milliseconds late, at a fifth of the cost; cheap enough for every engine step */
static inline uint64_t
clock_coarse_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#endif
