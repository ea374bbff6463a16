/* SPDX-License-Identifier: Apache-2.0 */
/**
 * metrics.h - what the daemon counts about itself
 *
 * Requests by kind and status, with histograms of their latency, and the turns of the loop.  What happens in a pool
 * is counted in its table region (common/region.h).  Adding to these numbers allocates nothing and reads no clock:
 * the callers share their readings of the clock with what they need it for anyway.
 *
 * Threads: one, the loop's.
 */
#ifndef PAGED_DAEMON_METRICS_H
#define PAGED_DAEMON_METRICS_H

#include "daemon/histogram.h"
#include "proto/wire.h"

/** Kinds of requests: enum wire_request_kind, and these. */
enum {
	METRICS_INVALID = WIRE_N_REQUESTS, /* messages that are no request which this daemon knows */
	METRICS_ATTACH,                    /* connections to the control socket */
	METRICS_N_KINDS
};

struct metrics {
	uint64_t n_attached, n_died, n_opened; /* as in paged_metrics */
	struct paged_histogram turns;
	struct paged_request_entry requests[METRICS_N_KINDS];
};

/** metrics_open - set the sizes and names of all parts but the kinds of wire.h, whose names rpc.c sets */
void metrics_open(struct metrics *metrics);

/** metrics_name - set the name of a kind */
void metrics_name(struct metrics *metrics, unsigned int kind, const char *name);

/** metrics_replied - a request of this kind was replied to with this status, so long after its arrival */
static inline void
metrics_replied(struct metrics *metrics, unsigned int kind, enum paged_status status, uint64_t latency_ns)
{
	metrics->requests[kind].n_replies[status]++;
	histogram_add(&metrics->requests[kind].latency, latency_ns);
}

/** metrics_worked - a request of this kind, or a step of one, visited so many entries, pages and nodes */
static inline void
metrics_worked(struct metrics *metrics, unsigned int kind, uint64_t n)
{
	if (n > metrics->requests[kind].most_visited)
		metrics->requests[kind].most_visited = n;
}

#endif
