/* SPDX-License-Identifier: Apache-2.0 */
/**
 * top_sample.h - what top shows: the daemon's numbers at one time, and what happened between two of them
 *
 * Pools are listed by a request and not read from their table regions: the
 * request lists all pools, also those that this user may not open, and top holds
 * no mapping of a daemon that has died.
 */
#ifndef PAGED_CTL_TOP_SAMPLE_H
#define PAGED_CTL_TOP_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/pagedclient.h"

/** A session with all its members. */
struct top_session {
	uint32_t id, n_members, n_sequences, n_pages, n_quarantined;
	uint32_t pid; /* of the first member; else of any; 0: none is left */
	bool ended, draining;
	uint64_t n_requests; /* of its members */
	double requests_s;   /* since the sample before */
	char name[PAGED_MAX_NAME + 1];
};

struct top_sample {
	uint64_t time_ms; /* turns_now_ms() */
	struct paged_daemon_info daemon;
	struct paged_histogram latency; /* of requests of all kinds */
	struct paged_histogram turns;   /* of the daemon's loop */
	uint64_t n_replies, n_refused;
	struct paged_pool_entry *pools;
	size_t n_pools;
	struct top_session *sessions; /* by id */
	size_t n_sessions;
};

/** top_sample_take - ask the daemon; on failure the sample is empty */
enum paged_status top_sample_take(struct paged_client *client, struct top_sample *sample);

/** top_sample_free - free the lists; leaves an empty sample */
void top_sample_free(struct top_sample *sample);

/** Two samples of one life of the daemon. */
struct top_interval {
	const struct top_sample *now;
	const struct top_sample *before; /* empty: the interval began with the daemon */
	double seconds;
};

/**
 * top_interval_make - compare two samples; also sets requests_s in the sessions of `now`
 *
 * If `before` is empty or of another life of the daemon, the interval is this life.
 */
struct top_interval top_interval_make(struct top_sample *now, const struct top_sample *before);

/** top_pool_before - the same pool in the sample before; all totals 0 if there is none */
const struct paged_pool_entry *top_pool_before(const struct top_interval *interval, size_t pool);

/**
 * top_percentile_ns - the bound that this share of the durations of the interval do not exceed
 *
 * @param[in] per_cent  1 to 100
 * @return a power of two, as the histogram's buckets; UINT64_MAX: longer than these; 0: there were none
 */
uint64_t top_percentile_ns(const struct paged_histogram *now, const struct paged_histogram *before,
			   unsigned int per_cent);

#endif
