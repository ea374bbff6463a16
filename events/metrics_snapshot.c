/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/metrics_snapshot.h"

#include <string.h>

/* Removes the pools that are not to be shown. */
static void
snapshot_select(struct metrics_snapshot *snapshot, const char *const *pools, uint32_t n_pools)
{
	size_t n = 0;

	for (size_t i = 0; i < snapshot->n_pools; i++)
		for (uint32_t k = 0; k < n_pools; k++)
			if (strcmp(snapshot->pools[i].name, pools[k]) == 0)
				snapshot->pools[n++] = snapshot->pools[i];
	snapshot->n_pools = n;
}

void
metrics_snapshot_take(struct metrics_snapshot *snapshot, struct paged_client *client, const char *const *pools,
		      uint32_t n_pools)
{
	*snapshot = (struct metrics_snapshot){
		.daemon.struct_size = sizeof(snapshot->daemon),
		.metrics.struct_size = sizeof(snapshot->metrics),
	};
	if (client == NULL || paged_admin_status(client, &snapshot->daemon) != PAGED_OK)
		return;
	snapshot->up =
		paged_admin_metrics(client, &snapshot->metrics, sizeof(*snapshot->requests), &snapshot->requests,
				    &snapshot->n_requests) == PAGED_OK &&
		paged_admin_pools(client, sizeof(*snapshot->pools), &snapshot->pools, &snapshot->n_pools) == PAGED_OK;
	if (n_pools > 0)
		snapshot_select(snapshot, pools, n_pools);
}

void
metrics_snapshot_free(struct metrics_snapshot *snapshot)
{
	paged_free(snapshot->requests);
	paged_free(snapshot->pools);
}
