/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels by name.  The module loader must not load two modules concurrently. */
#include <stddef.h>
#include <string.h>

#include "tests/fake-cuda/simt_run.h"

static struct simt_kernel *first;

void
simt_register(struct simt_kernel *kernel)
{
	kernel->next = first;
	first = kernel;
}

void
simt_unregister(struct simt_kernel *kernel)
{
	struct simt_kernel **at = &first;

	while (*at != NULL && *at != kernel)
		at = &(*at)->next;
	if (*at != NULL)
		*at = kernel->next;
}

const struct simt_kernel *
simt_find(const char *name)
{
	for (const struct simt_kernel *kernel = first; kernel != NULL; kernel = kernel->next)
		if (strcmp(kernel->name, name) == 0)
			return kernel;
	return NULL;
}

struct simt_kernel *
simt_first(void)
{
	return first;
}
