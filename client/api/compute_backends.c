/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/compute_backends.h"

#include <string.h>

static const struct compute_ops *const backends[] = { &compute_ops_host, &compute_ops_cuda };

const struct compute_ops *
compute_backends_find(const char *name)
{
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
		if (strcmp(backends[i]->name, name) == 0)
			return backends[i];
	return NULL;
}

void
compute_backends_close(struct paged_client *client, bool in_child)
{
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
		backends[i]->client_close(client, in_child);
}
