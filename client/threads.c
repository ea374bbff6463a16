/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads run the kernels of a client's batches. */
#include "config.h"

#include "client/internal.h"

#include <stdlib.h>
#include <string.h>

static enum paged_status
cpus_in(struct paged_client *client, const uint32_t *cpus, uint32_t n, struct paged_error *error)
{
	enum paged_status status;

	if (cpus == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "n_cpus is %u, cpus is NULL", n);
	if (n != client->team.n_threads)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "%u cpus for %u threads: each has one, the calling thread too", n,
				  client->team.n_threads);
	status = kernel_cpus_check(cpus, n, error);
	if (status != PAGED_OK)
		return status;
	client->cpus = malloc(n * sizeof(*cpus));
	if (client->cpus == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for %u cpus", n);
	memcpy(client->cpus, cpus, n * sizeof(*cpus));
	client->team.cpus = client->cpus;
	return PAGED_OK;
}

enum paged_status
client_threads_in(struct paged_client *client, const struct paged_client_params *params, struct paged_error *error)
{
	client->team.n_threads = params->n_threads != 0 ? params->n_threads : 1;
	client->team.run = params->run;
	client->team.run_context = params->run_argument;
	if (params->cpus == NULL && params->n_cpus == 0)
		return PAGED_OK;
	if (params->run != NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "run() brings threads of its own: cpus must be NULL");
	return cpus_in(client, params->cpus, params->n_cpus, error);
}
