/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics.h"

#include <assert.h>
#include <stdio.h>

static_assert(METRICS_N_KINDS <= WIRE_KINDS_MAX, "a reply has all kinds");
static_assert(PAGED_ERR_QUOTA < PAGED_METRICS_STATUSES, "a reply has all statuses");

void
metrics_open(struct metrics *metrics)
{
	*metrics = (struct metrics){ .turns.n_buckets = PAGED_HISTOGRAM_BUCKETS };
	for (unsigned int kind = 0; kind < METRICS_N_KINDS; kind++) {
		metrics->requests[kind].n_statuses = PAGED_METRICS_STATUSES;
		metrics->requests[kind].latency.n_buckets = PAGED_HISTOGRAM_BUCKETS;
	}
	metrics_name(metrics, METRICS_INVALID, "invalid");
	metrics_name(metrics, METRICS_ATTACH, "attach");
}

void
metrics_name(struct metrics *metrics, unsigned int kind, const char *name)
{
	snprintf(metrics->requests[kind].name, sizeof(metrics->requests[kind].name), "%s", name);
}
