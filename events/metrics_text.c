/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/metrics_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static void
family_write(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* name="value", in which the format escapes three characters. */
static void
label_write(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (; *value != '\0'; value++) {
		if (*value == '\n') {
			fputs("\\n", out);
			continue;
		}
		if (*value == '"' || *value == '\\')
			fputc('\\', out);
		fputc(*value, out);
	}
	fputc('"', out);
}

/* A number of the daemon: a family with one sample. */
static void
number_write(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	family_write(out, name, type, help);
	fprintf(out, "%s %" PRIu64 "\n", name, value);
}

/* The samples of a histogram, whose buckets are cumulative; label NULL: none. */
static void
histogram_write(FILE *out, const char *name, const char *label, const char *value,
		const struct paged_histogram *histogram)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < PAGED_HISTOGRAM_BUCKETS; i++) {
		n += histogram->counts[i];
		fprintf(out, "%s_bucket{", name);
		if (label != NULL) {
			label_write(out, label, value);
			fputc(',', out);
		}
		if (i + 1 < PAGED_HISTOGRAM_BUCKETS)
			fprintf(out, "le=\"%.10g\"} %" PRIu64 "\n", (double)PAGED_BUCKET_NS(i) / 1e9, n);
		else
			fprintf(out, "le=\"+Inf\"} %" PRIu64 "\n", n);
	}
	for (int i = 0; i < 2; i++) {
		fprintf(out, i == 0 ? "%s_sum" : "%s_count", name);
		if (label != NULL) {
			fputc('{', out);
			label_write(out, label, value);
			fputc('}', out);
		}
		if (i == 0)
			fprintf(out, " %" PRIu64 ".%09" PRIu64 "\n", histogram->sum_ns / 1000000000,
				histogram->sum_ns % 1000000000);
		else
			fprintf(out, " %" PRIu64 "\n", n);
	}
}

static bool
histogram_is_empty(const struct paged_histogram *histogram)
{
	for (uint32_t i = 0; i < PAGED_HISTOGRAM_BUCKETS; i++)
		if (histogram->counts[i] != 0)
			return false;
	return true;
}

/* Requests */

/* "ok", or the name of an error without its prefix, in lower case. */
static void
status_label_write(FILE *out, uint32_t status)
{
	static const char prefix[] = "PAGED_ERR_";
	const char *name = paged_status_name((enum paged_status)status);
	char text[32];
	size_t n = 0;

	if (strncmp(name, prefix, strlen(prefix)) == 0)
		name += strlen(prefix);
	for (; status != PAGED_OK && name[n] != '\0' && n + 1 < sizeof(text); n++)
		text[n] = (char)tolower((unsigned char)name[n]);
	text[n] = '\0';
	label_write(out, "status", status == PAGED_OK ? "ok" : text);
}

/* A kind without requests has one line: 0 successes. */
static void
requests_write(FILE *out, const struct metrics_snapshot *snapshot)
{
	static const char total[] = "paged_requests_total", duration[] = "paged_request_duration_seconds";
	static const char visited[] = "paged_request_step_visited_max";

	family_write(out, total, "counter", "Requests replied to, by kind and status; status is ok if not refused.");
	for (size_t i = 0; i < snapshot->n_requests; i++) {
		const struct paged_request_entry *entry = &snapshot->requests[i];

		for (uint32_t status = 0; status < PAGED_METRICS_STATUSES; status++) {
			if (status != PAGED_OK && entry->n_replies[status] == 0)
				continue;
			fprintf(out, "%s{", total);
			label_write(out, "request", entry->name);
			fputc(',', out);
			status_label_write(out, status);
			fprintf(out, "} %" PRIu64 "\n", entry->n_replies[status]);
		}
	}
	family_write(out, duration, "histogram", "Time from a request's arrival in the daemon's loop to its reply.");
	for (size_t i = 0; i < snapshot->n_requests; i++)
		if (!histogram_is_empty(&snapshot->requests[i].latency))
			histogram_write(out, duration, "request", snapshot->requests[i].name,
					&snapshot->requests[i].latency);
	family_write(out, visited, "gauge",
		     "Most entries, pages and nodes that a request, or a step of a long one, has visited.");
	for (size_t i = 0; i < snapshot->n_requests; i++) {
		if (histogram_is_empty(&snapshot->requests[i].latency))
			continue;
		fprintf(out, "%s{", visited);
		label_write(out, "request", snapshot->requests[i].name);
		fprintf(out, "} %" PRIu64 "\n", snapshot->requests[i].most_visited);
	}
}

static void
daemon_write(FILE *out, const struct metrics_snapshot *snapshot)
{
	const struct paged_metrics *metrics = &snapshot->metrics;

	family_write(out, "paged_build_info", "gauge", "The daemon's version; always 1.");
	fputs("paged_build_info{", out);
	label_write(out, "version", snapshot->daemon.version);
	fputs("} 1\n", out);
	family_write(out, "paged_uptime_seconds", "gauge", "Time since the daemon started.");
	fprintf(out, "paged_uptime_seconds %" PRIu64 ".%03" PRIu64 "\n", metrics->uptime_ms / 1000,
		metrics->uptime_ms % 1000);
	number_write(out, "paged_stopping", "gauge", "1: the daemon is stopping and accepts no new work.",
		     snapshot->daemon.stopping);
	number_write(out, "paged_sessions", "gauge",
		     "Sessions; those that have ended and still have pages or members, too.", metrics->n_sessions);
	number_write(out, "paged_sessions_opened_total", "counter", "Sessions that were opened.", metrics->n_opened);
	number_write(out, "paged_members", "gauge", "Attached processes, observers included.", metrics->n_members);
	number_write(out, "paged_members_attached_total", "counter", "Processes that attached, observers included.",
		     metrics->n_attached);
	number_write(out, "paged_members_died_total", "counter", "Attached processes that ended without leaving.",
		     metrics->n_died);
	number_write(out, "paged_messages_dropped_total", "counter", "Messages that got no reply.", metrics->n_dropped);
	requests_write(out, snapshot);
	family_write(out, "paged_loop_turn_duration_seconds", "histogram",
		     "Turns of the daemon's loop, from one wait for events to the next.");
	histogram_write(out, "paged_loop_turn_duration_seconds", NULL, NULL, &metrics->turns);
	family_write(out, "paged_loop_turn_max_seconds", "gauge", "The longest turn of the daemon's loop.");
	fprintf(out, "paged_loop_turn_max_seconds %" PRIu64 ".%09" PRIu64 "\n", metrics->longest_turn_ns / 1000000000,
		metrics->longest_turn_ns % 1000000000);
}

/* Pools */

/* A member of paged_pool_entry: a family with one sample for each pool. */
static const struct pool_family {
	const char *name, *type, *help;
	size_t offset, size;
} pool_families[] = {
#define POOL(name, type, field, help)                                                     \
	{                                                                                 \
		"paged_pool_" name, type, help, offsetof(struct paged_pool_entry, field), \
			sizeof(((struct paged_pool_entry *)NULL)->field)                  \
	}
#define GAUGE(name, field, help) POOL(name, "gauge", field, help)
#define COUNTER(name, field, help) POOL(name "_total", "counter", field, help)
	GAUGE("page_size_bytes", page_bytes, "Bytes of a page."),
	GAUGE("page_size_tokens", page_size, "Tokens of a page."),
	GAUGE("pinned_pages", n_pinned, "Published pages that are pinned."),
	GAUGE("referenced_pages_peak", peak_referenced, "The largest number of referenced pages."),
	GAUGE("sequences", n_sequences, "Sequences, holds included."),
	GAUGE("sequences_peak", peak_sequences, "The largest number of sequences."),
	GAUGE("sequences_limit", n_slots, "The most sequences that the pool can have."),
	GAUGE("page_tables_bytes", table_used, "Bytes of page tables that sequences need."),
	GAUGE("page_tables_populated_bytes", table_populated, "Bytes of page tables that take memory."),
	GAUGE("page_tables_limit_bytes", table_limit, "The most of these (table-memory)."),
	COUNTER("pages_taken", n_taken, "Pages that sequences took from the free list."),
	COUNTER("pages_trimmed", n_trimmed, "Pages that sequences gave back at their beginning."),
	COUNTER("pages_published", n_published, "Pages that were published."),
	COUNTER("pages_evicted", n_evicted, "Published pages that were freed because their memory was needed."),
	COUNTER("pages_orphaned", n_orphaned,
		"Pages that are published no more because a page before them was removed."),
	COUNTER("pages_displaced", n_displaced, "Published pages that lost their place in a full bucket of the index."),
	COUNTER("publishes_stopped_removed", n_stopped_removed, "Publishes after a page that was removed meanwhile."),
	COUNTER("publishes_stopped_trimmed", n_stopped_trimmed, "Publishes after a page that was given back."),
	COUNTER("publishes_stopped_other", n_stopped_other, "Publishes of a page that is part of another prefix."),
	COUNTER("publishes_stopped_bucket", n_stopped_bucket, "Publishes whose own pages fill a bucket of the index."),
	COUNTER("sequences_created", n_created, "Sequences that were created, holds included."),
	COUNTER("sequences_ended", n_ended, "Sequences that have ended, holds included."),
	COUNTER("sequences_forked", n_forked, "Sequences that were created as forks."),
	COUNTER("sequences_given", n_given, "Sequences that were given away."),
	COUNTER("sequences_adopted", n_adopted, "Given sequences that another session adopted."),
	COUNTER("sequences_cancelled", n_cancelled, "Given sequences whose ticket was cancelled."),
	COUNTER("sequences_expired", n_expired, "Given sequences whose ticket expired."),
	COUNTER("prefix_starts", n_starts, "Sequences started with a prefix to look for."),
	COUNTER("prefix_tokens_asked", n_tokens_asked, "Tokens of these prefixes."),
	COUNTER("prefix_tokens_found", n_tokens_found, "Of these, tokens that were published and are shared."),
};

static uint64_t
pool_value(const struct paged_pool_entry *pool, const struct pool_family *family)
{
	const char *at = (const char *)pool + family->offset;
	uint64_t value;
	uint32_t small;

	if (family->size == sizeof(value)) {
		memcpy(&value, at, sizeof(value));
		return value;
	}
	memcpy(&small, at, sizeof(small));
	return small;
}

static void
pool_pages_write(FILE *out, const struct paged_pool_entry *pool)
{
	const struct {
		const char *state;
		uint32_t n;
	} states[] = {
		{ "free", pool->n_free },
		{ "referenced", pool->n_referenced },
		{ "cached", pool->n_cached },
		{ "quarantined", pool->n_quarantined },
	};

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		fputs("paged_pool_pages{", out);
		label_write(out, "pool", pool->name);
		fprintf(out, ",state=\"%s\"} %" PRIu32 "\n", states[i].state, states[i].n);
	}
}

static void
pool_info_write(FILE *out, const struct paged_pool_entry *pool)
{
	fputs("paged_pool_info{", out);
	label_write(out, "pool", pool->name);
	fputc(',', out);
	label_write(out, "backend", pool->backend);
	fputc(',', out);
	label_write(out, "device", pool->device);
	fputc(',', out);
	label_write(out, "dtype", paged_dtype_name((enum paged_dtype)pool->dtype));
	fputc(',', out);
	label_write(out, "model", pool->model);
	fputs("} 1\n", out);
}

static void
pools_write(FILE *out, const struct metrics_snapshot *snapshot)
{
	family_write(out, "paged_pool_info", "gauge", "What does not change of a pool; always 1.");
	for (size_t i = 0; i < snapshot->n_pools; i++)
		pool_info_write(out, &snapshot->pools[i]);
	family_write(out, "paged_pool_pages", "gauge",
		     "Pages by state: free; referenced by sequences; cached, which can be evicted; quarantined.");
	for (size_t i = 0; i < snapshot->n_pools; i++)
		pool_pages_write(out, &snapshot->pools[i]);
	for (size_t k = 0; k < sizeof(pool_families) / sizeof(pool_families[0]); k++) {
		const struct pool_family *family = &pool_families[k];

		family_write(out, family->name, family->type, family->help);
		for (size_t i = 0; i < snapshot->n_pools; i++) {
			fprintf(out, "%s{", family->name);
			label_write(out, "pool", snapshot->pools[i].name);
			fprintf(out, "} %" PRIu64 "\n", pool_value(&snapshot->pools[i], family));
		}
	}
}

void
metrics_text_write(FILE *out, const struct metrics_snapshot *snapshot)
{
	number_write(out, "paged_up", "gauge", "1: pagedd answered; 0: it is not there, or does not answer.",
		     snapshot->up);
	if (!snapshot->up)
		return;
	daemon_write(out, snapshot);
	pools_write(out, snapshot);
}
