/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/support.h"

#include <stdlib.h>
#include <time.h>

void *
xcalloc(size_t n, size_t size)
{
	void *memory = calloc(n > 0 ? n : 1, size);

	if (memory == NULL)
		die("no memory for %zu elements of %zu bytes", n, size);
	return memory;
}

void *
xreallocarray(void *old, size_t n, size_t size)
{
	void *memory = reallocarray(old, n, size);

	if (memory == NULL)
		die("no memory for %zu elements of %zu bytes", n, size);
	return memory;
}

double
clock_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
