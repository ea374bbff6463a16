/* SPDX-License-Identifier: Apache-2.0 */
/* top --once: the page as text or JSON. */
#include "config.h"

#include <inttypes.h>
#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pagedctl/print.h"
#include "pagedctl/top.h"
#include "pagedctl/top_view.h"
#include "pagedctl/turns.h"

enum { MIN_COLUMNS = 80, MAX_COLUMNS = 500 };

/* A line is printed when the next one begins, without the blanks at its end. */
struct once_out {
	struct top_out out;
	int line; /* of text */
	char text[8 * MAX_COLUMNS];
	size_t n;
};

static void
once_flush(struct once_out *once)
{
	while (once->n > 0 && once->text[once->n - 1] == ' ')
		once->n--;
	printf("%.*s\n", (int)once->n, once->text);
	once->n = 0;
	once->line++;
}

static void
once_write(struct top_out *out, enum top_style style, const char *text)
{
	struct once_out *once = (struct once_out *)out;
	size_t size = strlen(text);

	(void)style;
	while (once->line < out->line)
		once_flush(once);
	if (size > sizeof(once->text) - once->n)
		return;
	memcpy(once->text + once->n, text, size);
	once->n += size;
}

static void
once_print(struct top_interval *interval)
{
	const char *columns = getenv("COLUMNS");
	long n_columns = columns != NULL ? strtol(columns, NULL, 10) : 0;
	struct top_view view = { .sort = TOP_BY_ID };
	struct once_out once = { .out = {
					 .n_columns = n_columns > MIN_COLUMNS && n_columns <= MAX_COLUMNS
							      ? (int)n_columns
							      : MIN_COLUMNS,
					 .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
					 .write = once_write,
				 } };

	top_view_page(&view, interval, &once.out);
	once_flush(&once);
}

static double
once_rate(const struct top_interval *interval, uint64_t now, uint64_t before)
{
	return (double)(now - before) / interval->seconds;
}

static json_t *
json_of_ratio(uint64_t n, uint64_t of)
{
	return of > 0 ? json_real((double)n / (double)of) : json_null();
}

/* A bound of a histogram; null: nothing happened, or it took longer than the bounds. */
static json_t *
json_of_bound(uint64_t ns)
{
	return ns != 0 && ns != UINT64_MAX ? json_integer((json_int_t)ns) : json_null();
}

static json_t *
json_of_pool(const struct top_interval *interval, size_t i)
{
	const struct paged_pool_entry *now = &interval->now->pools[i], *before = top_pool_before(interval, i);
	uint64_t n_asked = now->n_tokens_asked - before->n_tokens_asked;
	uint64_t n_found = now->n_tokens_found - before->n_tokens_found;

	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "pool", now->name, "pages", (json_int_t)now->n_pages, "referenced",
			 (json_int_t)now->n_referenced, "cached", (json_int_t)now->n_cached, "quarantined",
			 (json_int_t)now->n_quarantined, "free", (json_int_t)now->n_free, "hit_rate",
			 json_of_ratio(n_found, n_asked), "hit_rate_total",
			 json_of_ratio(now->n_tokens_found, now->n_tokens_asked), "evicted_per_s",
			 once_rate(interval, now->n_evicted, before->n_evicted), "published_per_s",
			 once_rate(interval, now->n_published, before->n_published), "tables",
			 (json_int_t)now->table_used, "table_memory", (json_int_t)now->table_limit, "displaced",
			 (json_int_t)now->n_displaced, "stopped_removed", (json_int_t)now->n_stopped_removed,
			 "stopped_trimmed", (json_int_t)now->n_stopped_trimmed, "stopped_other",
			 (json_int_t)now->n_stopped_other, "stopped_bucket", (json_int_t)now->n_stopped_bucket);
}

static json_t *
json_of_session(const struct top_session *session)
{
	return json_pack("{s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:f, s:s}", "session", (json_int_t)session->id, "name",
			 session->name, "pid", session->pid != 0 ? json_integer(session->pid) : json_null(), "members",
			 (json_int_t)session->n_members, "sequences", (json_int_t)session->n_sequences, "pages",
			 (json_int_t)session->n_pages, "quarantined", (json_int_t)session->n_quarantined,
			 "requests_per_s", session->requests_s, "state", top_session_state(session));
}

static void
once_print_json(const struct top_interval *interval)
{
	const struct top_sample *now = interval->now, *before = interval->before;
	json_t *pools = json_array(), *sessions = json_array();

	for (size_t i = 0; i < now->n_pools; i++)
		json_array_append_new(pools, json_of_pool(interval, i));
	for (size_t i = 0; i < now->n_sessions; i++)
		json_array_append_new(sessions, json_of_session(&now->sessions[i]));
	print_json(json_pack("{s:s, s:I, s:I, s:b, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "version",
			     now->daemon.version, "pid", (json_int_t)now->daemon.pid, "uptime_ms",
			     (json_int_t)now->daemon.uptime_ms, "stopping", (int)now->daemon.stopping, "interval_s",
			     interval->seconds, "requests_per_s",
			     once_rate(interval, now->n_replies, before->n_replies), "refused_per_s",
			     once_rate(interval, now->n_refused, before->n_refused), "latency_p50_ns",
			     json_of_bound(top_percentile_ns(&now->latency, &before->latency, 50)), "latency_p99_ns",
			     json_of_bound(top_percentile_ns(&now->latency, &before->latency, 99)), "loop_p99_ns",
			     json_of_bound(top_percentile_ns(&now->turns, &before->turns, 99)), "pools", pools,
			     "sessions", sessions));
}

enum ctl_exit
top_once(struct ctl *ctl)
{
	struct top_sample before, now = { 0 };
	enum paged_status status = top_sample_take(ctl->client, &before);
	struct top_interval interval;
	struct turns turns;

	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	turns_begin(&turns);
	if (turns_wait(&turns, NULL, 0, before.time_ms + ctl->delay_ms) == TURNS_DUE)
		status = top_sample_take(ctl->client, &now);
	if (status == PAGED_OK && now.time_ms != 0) {
		interval = top_interval_make(&now, &before);
		if (ctl->json)
			once_print_json(&interval);
		else
			once_print(&interval);
	}
	top_sample_free(&before);
	top_sample_free(&now);
	return status == PAGED_OK ? CTL_OK : ctl_fail(ctl, status);
}
