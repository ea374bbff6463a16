/* SPDX-License-Identifier: Apache-2.0 */
/**
 * metrics_snapshot.h - the numbers that a scrape shows, as three requests to the daemon return them
 *
 * No pool is mapped, so the program needs no GPU and no permission to open a pool.
 */
#ifndef PAGED_EVENTS_METRICS_SNAPSHOT_H
#define PAGED_EVENTS_METRICS_SNAPSHOT_H

#include <pagedclient.h>
#include <stdbool.h>

struct metrics_snapshot {
	bool up; /* the daemon answered; if not, the rest is 0 */
	struct paged_daemon_info daemon;
	struct paged_metrics metrics;
	struct paged_request_entry *requests; /* [n_requests] */
	size_t n_requests;
	struct paged_pool_entry *pools; /* [n_pools] */
	size_t n_pools;
};

/**
 * metrics_snapshot_take - ask the daemon
 *
 * @param[in]  client    NULL: there is no daemon
 * @param[in]  pools     [n_pools] names of the pools to show; none: all
 * @param[out] snapshot  always written; free it with metrics_snapshot_free()
 *
 * Blocks: up to the client's timeout_ms, if the daemon does not answer.
 */
void metrics_snapshot_take(struct metrics_snapshot *snapshot, struct paged_client *client, const char *const *pools,
			   uint32_t n_pools);
void metrics_snapshot_free(struct metrics_snapshot *snapshot);

#endif
