/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/xalloc.h"

#include <stdlib.h>

#include "examples/llama/die.h"

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
