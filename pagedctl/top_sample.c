/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pagedctl/top_sample.h"

#include <stdlib.h>
#include <string.h>

#include "pagedctl/turns.h"

static void
histogram_sum(struct paged_histogram *sum, const struct paged_histogram *add)
{
	sum->sum_ns += add->sum_ns;
	if (sum->n_buckets < add->n_buckets)
		sum->n_buckets = add->n_buckets;
	for (size_t i = 0; i < PAGED_HISTOGRAM_BUCKETS; i++)
		sum->counts[i] += add->counts[i];
}

static enum paged_status
sample_take_metrics(struct paged_client *client, struct top_sample *sample)
{
	struct paged_metrics metrics = { .struct_size = sizeof(metrics) };
	struct paged_request_entry *kinds;
	enum paged_status status;
	size_t n;

	status = paged_admin_metrics(client, &metrics, sizeof(*kinds), &kinds, &n);
	if (status != PAGED_OK)
		return status;
	sample->turns = metrics.turns;
	for (size_t i = 0; i < n; i++) {
		/* An attach lasts as long as the peer takes. */
		if (strcmp(kinds[i].name, "attach") == 0)
			continue;
		histogram_sum(&sample->latency, &kinds[i].latency);
		for (size_t s = 0; s < PAGED_METRICS_STATUSES; s++) {
			sample->n_replies += kinds[i].n_replies[s];
			sample->n_refused += s != PAGED_OK ? kinds[i].n_replies[s] : 0;
		}
	}
	paged_free(kinds);
	return PAGED_OK;
}

/* Adds a member to its session, which is the last one if it is there: the list is in order. */
static void
sample_add_member(struct top_sample *sample, const struct paged_session_entry *member)
{
	struct top_session *session = NULL;

	if (sample->n_sessions > 0)
		session = &sample->sessions[sample->n_sessions - 1];
	if (session == NULL || session->id != member->session) {
		session = &sample->sessions[sample->n_sessions++];
		*session = (struct top_session){
			.id = member->session,
			.n_sequences = member->n_sequences,
			.n_pages = member->n_pages,
			.n_quarantined = member->n_quarantined,
			.ended = member->ended,
			.draining = member->draining,
		};
	}
	if (member->member == 0)
		return;
	if (session->n_members == 0 || member->first) {
		session->pid = member->pid;
		memcpy(session->name, member->name, sizeof(session->name));
	}
	session->n_members++;
	session->n_requests += member->n_requests;
}

static enum paged_status
sample_take_sessions(struct paged_client *client, struct top_sample *sample)
{
	struct paged_session_entry *members;
	enum paged_status status;
	size_t n;

	status = paged_admin_sessions(client, sizeof(*members), &members, &n);
	if (status != PAGED_OK)
		return status;
	sample->sessions = calloc(n + 1, sizeof(*sample->sessions));
	for (size_t i = 0; sample->sessions != NULL && i < n; i++)
		sample_add_member(sample, &members[i]);
	paged_free(members);
	return sample->sessions != NULL ? PAGED_OK : PAGED_ERR_NOMEM;
}

enum paged_status
top_sample_take(struct paged_client *client, struct top_sample *sample)
{
	enum paged_status status;

	*sample = (struct top_sample){ .daemon.struct_size = sizeof(sample->daemon) };
	status = paged_admin_status(client, &sample->daemon);
	sample->time_ms = turns_now_ms();
	if (status == PAGED_OK)
		status = sample_take_metrics(client, sample);
	if (status == PAGED_OK)
		status = paged_admin_pools(client, sizeof(*sample->pools), &sample->pools, &sample->n_pools);
	if (status == PAGED_OK)
		status = sample_take_sessions(client, sample);
	if (status != PAGED_OK)
		top_sample_free(sample);
	return status;
}

void
top_sample_free(struct top_sample *sample)
{
	paged_free(sample->pools);
	free(sample->sessions);
	*sample = (struct top_sample){ 0 };
}

static uint64_t
session_requests(const struct top_sample *sample, uint32_t id)
{
	for (size_t i = 0; i < sample->n_sessions; i++)
		if (sample->sessions[i].id == id)
			return sample->sessions[i].n_requests;
	return 0;
}

struct top_interval
top_interval_make(struct top_sample *now, const struct top_sample *before)
{
	static const struct top_sample none;
	bool same = strcmp(now->daemon.boot_id, before->daemon.boot_id) == 0;
	struct top_interval interval = { .now = now, .before = same ? before : &none };
	uint64_t ms = same ? now->time_ms - before->time_ms : now->daemon.uptime_ms;

	interval.seconds = ms > 0 ? (double)ms / 1000 : 0.001;
	for (size_t i = 0; i < now->n_sessions; i++) {
		struct top_session *session = &now->sessions[i];
		uint64_t n = session_requests(interval.before, session->id);

		/* A member that left takes its number along. */
		session->requests_s =
			session->n_requests > n ? (double)(session->n_requests - n) / interval.seconds : 0;
	}
	return interval;
}

const struct paged_pool_entry *
top_pool_before(const struct top_interval *interval, size_t pool)
{
	static const struct paged_pool_entry none;

	return pool < interval->before->n_pools ? &interval->before->pools[pool] : &none;
}

uint64_t
top_percentile_ns(const struct paged_histogram *now, const struct paged_histogram *before, unsigned int per_cent)
{
	uint64_t n = 0, below = 0;

	for (uint32_t i = 0; i < now->n_buckets; i++)
		n += now->counts[i] - before->counts[i];
	if (n == 0)
		return 0;
	for (uint32_t i = 0; i + 1 < now->n_buckets; i++) {
		below += now->counts[i] - before->counts[i];
		if (below * 100 >= n * per_cent)
			return PAGED_BUCKET_NS(i);
	}
	return UINT64_MAX;
}
