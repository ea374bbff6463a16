/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pagedctl/top_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "pagedctl/print.h"

/* Lines that pools leave on a small screen: an empty one, headings, four sessions, the last line. */
enum { MIN_SESSION_LINES = 7 };

/* Columns of names on a line of 80. */
enum { POOL_NAME = 12, SESSION_NAME = 13 };

static const char *const help[] = {
	"pagedctl top: what the pagedd of this machine does",
	"",
	"Pages of a pool are referenced by sequences, cached (published, and in no",
	"sequence), quarantined (until the processes of an ended session are gone), or free.",
	"HIT is the part of the tokens looked for that were found in published pages, in",
	"the last interval; TOTAL since the daemon started.  EVICT/S and PUBL/S are pages.",
	"p50 and p99 are latencies, from the time when the daemon takes a request to its",
	"reply.  loop is the p99 of the turns of its loop.",
	"",
	"  i n s p l  sort by id, name, sequences, pages, load (requests a second)",
	"  r          reverse the order",
	"  /          show only pools and sessions whose name contains a text",
	"  Escape     show all again",
	"  arrows, Page Up, Page Down   scroll the sessions",
	"  blank      refresh now",
	"  q          quit",
	"",
	"Press a key.",
};

bool
top_view_has_name(const struct top_view *view, const char *name)
{
	return strstr(name, view->filter) != NULL;
}

const char *
top_session_state(const struct top_session *session)
{
	return session->ended ? "ended" : session->draining ? "draining" : "active";
}

/* ---------------------------------------------------------------- sorting */

/* Descending, as the largest numbers are the interesting ones. */
#define DESCENDING(x, y) (((x) < (y)) - ((x) > (y)))

static int
sessions_compare(const void *a, const void *b, void *argument)
{
	const struct top_session *x = *(const struct top_session *const *)a;
	const struct top_session *y = *(const struct top_session *const *)b;
	const struct top_view *view = argument;
	int order = 0;

	switch (view->sort) {
	case TOP_BY_ID:
		break;
	case TOP_BY_NAME:
		order = strcmp(x->name, y->name);
		break;
	case TOP_BY_SEQUENCES:
		order = DESCENDING(x->n_sequences, y->n_sequences);
		break;
	case TOP_BY_PAGES:
		order = DESCENDING(x->n_pages, y->n_pages);
		break;
	case TOP_BY_LOAD:
		order = DESCENDING(x->requests_s, y->requests_s);
		break;
	}
	if (order == 0)
		order = DESCENDING(y->id, x->id);
	return view->reverse ? -order : order;
}

size_t
top_view_sessions(const struct top_view *view, const struct top_interval *interval, const struct top_session **sessions)
{
	const struct top_sample *now = interval->now;
	size_t n = 0;

	for (size_t i = 0; i < now->n_sessions; i++)
		if (top_view_has_name(view, now->sessions[i].name))
			sessions[n++] = &now->sessions[i];
	qsort_r(sessions, n, sizeof(*sessions), sessions_compare, (void *)(uintptr_t)view);
	return n;
}

/* ---------------------------------------------------------------- numbers */

static void
put_rate(struct top_out *out, int width, double rate)
{
	if (rate >= 1e6)
		top_putf(out, TOP_PLAIN, width, "%.1f M", rate / 1e6);
	else
		top_putf(out, TOP_PLAIN, width, rate < 99.95 ? "%.1f" : "%.0f", rate);
}

/* "87 %"; "-" if nothing was looked for. */
static void
put_share(struct top_out *out, int width, uint64_t n, uint64_t of)
{
	if (of == 0)
		top_put(out, TOP_PLAIN, width, "-");
	else
		top_putf(out, TOP_PLAIN, width, "%.0f %%", 100.0 * (double)n / (double)of);
}

static double
per_second(const struct top_interval *interval, uint64_t now, uint64_t before)
{
	return (double)(now - before) / interval->seconds;
}

/* "<= 16 us" */
static const char *
bound_text(char text[PRINT_SMALL], const struct top_out *out, uint64_t ns)
{
	const char *at_most = out->utf8 ? "≤" : "<=", *us = out->utf8 ? "µs" : "us";

	if (ns == 0)
		snprintf(text, PRINT_SMALL, "-");
	else if (ns == UINT64_MAX)
		snprintf(text, PRINT_SMALL, "> %.0f s", (double)PAGED_BUCKET_NS(PAGED_HISTOGRAM_BUCKETS - 2) / 1e9);
	else if (ns < 1000000)
		snprintf(text, PRINT_SMALL, "%s %" PRIu64 " %s", at_most, ns / 1000, us);
	else if (ns < 1000000000)
		snprintf(text, PRINT_SMALL, "%s %" PRIu64 " ms", at_most, ns / 1000000);
	else
		snprintf(text, PRINT_SMALL, "%s %.0f s", at_most, (double)ns / 1e9);
	return text;
}

/* ----------------------------------------------------------------- the page */

static void
page_daemon(const struct top_view *view, const struct top_interval *interval, struct top_out *out)
{
	const struct top_sample *now = interval->now, *before = interval->before;
	const struct paged_daemon_info *daemon = &now->daemon;
	char p50[PRINT_SMALL], p99[PRINT_SMALL], turn[PRINT_SMALL], up[PRINT_SMALL];

	top_putf(out, TOP_PLAIN, 0, "pagedd %s, process %" PRIu32 ", up %s, %" PRIu32 " %s%s", daemon->version,
		 daemon->pid, print_duration(up, daemon->uptime_ms), daemon->n_sessions,
		 print_plural(daemon->n_sessions, "session", "sessions"), daemon->stopping ? ", stopping" : "");
	top_next_line(out, TOP_PLAIN);
	put_rate(out, 0, per_second(interval, now->n_replies, before->n_replies));
	top_put(out, TOP_PLAIN, 0, " requests/s, ");
	put_rate(out, 0, per_second(interval, now->n_refused, before->n_refused));
	top_putf(out, TOP_PLAIN, 0, " refused/s, p50 %s, p99 %s, loop %s",
		 bound_text(p50, out, top_percentile_ns(&now->latency, &before->latency, 50)),
		 bound_text(p99, out, top_percentile_ns(&now->latency, &before->latency, 99)),
		 bound_text(turn, out, top_percentile_ns(&now->turns, &before->turns, 99)));
	top_next_line(out, TOP_PLAIN);
	if (view->notice[0] != '\0' || out->n_lines != 0) {
		top_put(out, view->notice[0] != '\0' ? TOP_NOTICE : TOP_PLAIN, 0, view->notice);
		top_next_line(out, TOP_PLAIN);
	}
}

/* The states of pages, in the order of the bar. */
static const struct {
	enum top_style style;
	const char *name, *utf8, *ascii;
} states[] = { { TOP_REFERENCED, "referenced", "█", "#" },
	       { TOP_CACHED, "cached", "▒", "=" },
	       { TOP_QUARANTINED, "quarantined", "×", "!" },
	       { TOP_FREE, "free", "·", "." } };

enum { N_STATES = sizeof(states) / sizeof(states[0]) };

/* Divides the bar: a state that has pages has at least one column, at the cost of the largest. */
static void
bar_divide(const struct paged_pool_entry *pool, int width, int columns[N_STATES])
{
	const uint32_t pages[N_STATES] = { pool->n_referenced, pool->n_cached, pool->n_quarantined, pool->n_free };
	int sum = 0, largest = 0;

	for (int i = 0; i < N_STATES; i++) {
		columns[i] = pool->n_pages > 0 ? (int)((uint64_t)pages[i] * (uint64_t)width / pool->n_pages) : 0;
		if (pages[i] > 0 && columns[i] == 0)
			columns[i] = 1;
		sum += columns[i];
		largest = columns[i] > columns[largest] ? i : largest;
	}
	columns[largest] = MAX(0, columns[largest] + width - sum);
}

/* Columns of a name: min, and what a wide line has beyond 80. */
static int
name_width(const struct top_out *out, int min)
{
	return MIN(MAX(min, min + out->n_columns - 80), PAGED_MAX_NAME);
}

static void
page_pool(const struct top_interval *interval, size_t i, struct top_out *out)
{
	const struct paged_pool_entry *now = &interval->now->pools[i], *before = top_pool_before(interval, i);
	int columns[N_STATES], total_width;
	char total[PRINT_SMALL];

	top_put(out, TOP_PLAIN, name_width(out, POOL_NAME), now->name);
	top_putf(out, TOP_PLAIN, -12, "%" PRIu32, now->n_referenced);
	top_putf(out, TOP_PLAIN, -8, "%" PRIu32, now->n_cached);
	top_putf(out, TOP_PLAIN, -12, "%" PRIu32, now->n_quarantined);
	top_putf(out, TOP_PLAIN, -8, "%" PRIu32, now->n_free);
	put_share(out, -6, now->n_tokens_found - before->n_tokens_found, now->n_tokens_asked - before->n_tokens_asked);
	put_share(out, -6, now->n_tokens_found, now->n_tokens_asked);
	put_rate(out, -8, per_second(interval, now->n_evicted, before->n_evicted));
	put_rate(out, -8, per_second(interval, now->n_published, before->n_published));
	top_next_line(out, TOP_PLAIN);

	total_width = snprintf(total, sizeof(total), " %" PRIu32 " pages, tables %.0f %%", now->n_pages,
			       now->table_limit > 0 ? 100.0 * (double)now->table_used / (double)now->table_limit : 0.0);
	bar_divide(now, MAX(1, out->n_columns - total_width), columns);
	for (int s = 0; s < N_STATES; s++)
		top_fill(out, states[s].style, columns[s], states[s].utf8, states[s].ascii);
	top_put(out, TOP_PLAIN, 0, total);
	top_next_line(out, TOP_PLAIN);
}

/* What prefixes have lost, in one line; none as long as nothing is lost. */
static void
page_lost(const struct paged_pool_entry *now, struct top_out *out)
{
	uint64_t n_stopped =
		now->n_stopped_removed + now->n_stopped_trimmed + now->n_stopped_other + now->n_stopped_bucket;

	if (now->n_displaced == 0 && n_stopped == 0)
		return;
	top_putf(out, TOP_NOTICE, 0,
		 "displaced %" PRIu64 "; publishes ended early: removed %" PRIu64 ", trimmed %" PRIu64
		 ", other %" PRIu64 ", bucket %" PRIu64,
		 now->n_displaced, now->n_stopped_removed, now->n_stopped_trimmed, now->n_stopped_other,
		 now->n_stopped_bucket);
	top_next_line(out, TOP_PLAIN);
}

static void
page_pools(const struct top_view *view, const struct top_interval *interval, struct top_out *out)
{
	size_t n = 0, max = SIZE_MAX;

	top_put(out, TOP_HEADING, name_width(out, POOL_NAME), "POOL");
	top_put(out, TOP_HEADING, -12, "REFERENCED");
	top_put(out, TOP_HEADING, -8, "CACHED");
	top_put(out, TOP_HEADING, -12, "QUARANTINED");
	top_put(out, TOP_HEADING, -8, "FREE");
	top_put(out, TOP_HEADING, -6, "HIT");
	top_put(out, TOP_HEADING, -6, "TOTAL");
	top_put(out, TOP_HEADING, -8, "EVICT/S");
	top_put(out, TOP_HEADING, -8, "PUBL/S");
	top_next_line(out, TOP_HEADING);
	if (out->n_lines != 0)
		max = (size_t)MAX(1, (top_lines_left(out) - MIN_SESSION_LINES) / 2);
	for (size_t i = 0; i < interval->now->n_pools; i++)
		if (top_view_has_name(view, interval->now->pools[i].name) && n++ < max) {
			page_pool(interval, i, out);
			page_lost(&interval->now->pools[i], out);
		}
	if (n > max) {
		top_putf(out, TOP_NOTICE, 0, "%zu more %s; / shows those with a name", n - max,
			 print_plural(n - max, "pool", "pools"));
		top_next_line(out, TOP_PLAIN);
	}
}

static void
page_session(const struct top_session *session, struct top_out *out)
{
	top_putf(out, TOP_PLAIN, -7, "%" PRIu32, session->id);
	top_put(out, TOP_PLAIN, 2, "");
	top_put(out, TOP_PLAIN, name_width(out, SESSION_NAME), session->name);
	if (session->pid != 0)
		top_putf(out, TOP_PLAIN, -9, "%" PRIu32, session->pid);
	else
		top_put(out, TOP_PLAIN, -9, "-");
	top_putf(out, TOP_PLAIN, -9, "%" PRIu32, session->n_members);
	top_putf(out, TOP_PLAIN, -11, "%" PRIu32, session->n_sequences);
	top_putf(out, TOP_PLAIN, -9, "%" PRIu32, session->n_pages);
	put_rate(out, -9, session->requests_s);
	top_put(out, TOP_PLAIN, 2, "");
	top_put(out, session->ended || session->draining ? TOP_NOTICE : TOP_PLAIN, 9, top_session_state(session));
	top_next_line(out, TOP_PLAIN);
}

static void
page_session_headings(const struct top_view *view, struct top_out *out)
{
	const struct {
		const char *name;
		int width;
		enum top_sort sort;
	} columns[] = { { "SESSION", -7, TOP_BY_ID },
			{ "", 2, TOP_BY_ID },
			{ "NAME", name_width(out, SESSION_NAME), TOP_BY_NAME },
			{ "PID", -9, TOP_BY_ID },
			{ "MEMBERS", -9, TOP_BY_ID },
			{ "SEQUENCES", -11, TOP_BY_SEQUENCES },
			{ "PAGES", -9, TOP_BY_PAGES },
			{ "REQ/S", -9, TOP_BY_LOAD },
			{ "", 2, TOP_BY_ID },
			{ "STATE", 9, TOP_BY_ID } };

	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		bool sorted = columns[i].sort == view->sort && (i == 0 || columns[i].sort != TOP_BY_ID);

		top_put(out, sorted ? TOP_SORTED : TOP_HEADING, columns[i].width, columns[i].name);
	}
	top_next_line(out, TOP_HEADING);
}

static void
page_sessions(struct top_view *view, const struct top_interval *interval, struct top_out *out)
{
	const struct top_session **sessions = calloc(interval->now->n_sessions + 1, sizeof(*sessions));
	size_t n, room = SIZE_MAX;

	if (sessions == NULL)
		return;
	n = top_view_sessions(view, interval, sessions);
	page_session_headings(view, out);
	if (out->n_lines != 0)
		room = (size_t)MAX(0, top_lines_left(out) - 1);
	view->first_session = n > room ? MIN(view->first_session, n - room) : 0;
	for (size_t i = view->first_session; i < n && i - view->first_session < room; i++)
		page_session(sessions[i], out);
	free(sessions);
}

static void
page_legend(struct top_out *out)
{
	for (int s = 0; s < N_STATES; s++) {
		top_fill(out, states[s].style, 1, states[s].utf8, states[s].ascii);
		top_putf(out, TOP_PLAIN, 0, " %s%s", states[s].name, s + 1 < N_STATES ? "  " : "");
	}
}

/* The last line of a screen. */
static void
page_bottom(const struct top_view *view, struct top_out *out)
{
	while (top_lines_left(out) > 1)
		top_next_line(out, TOP_PLAIN);
	if (view->entering)
		top_putf(out, TOP_NOTICE, 0, "show names with: %s_", view->filter);
	else if (view->filter[0] != '\0')
		top_putf(out, TOP_NOTICE, 0, "only names with \"%s\"; Escape: all", view->filter);
	else
		page_legend(out);
	if (!view->entering)
		top_put(out, TOP_PLAIN, -MAX(1, out->n_columns - out->column), "h help  / filter  q quit");
	top_next_line(out, TOP_PLAIN);
}

static void
page_help(struct top_out *out)
{
	for (size_t i = 0; i < sizeof(help) / sizeof(help[0]); i++) {
		top_put(out, i == 0 ? TOP_HEADING : TOP_PLAIN, 0, help[i]);
		top_next_line(out, TOP_PLAIN);
	}
	while (top_lines_left(out) > 0)
		top_next_line(out, TOP_PLAIN);
}

void
top_view_page(struct top_view *view, const struct top_interval *interval, struct top_out *out)
{
	out->line = out->column = 0;
	if (view->help) {
		page_help(out);
		return;
	}
	page_daemon(view, interval, out);
	page_pools(view, interval, out);
	top_next_line(out, TOP_PLAIN);
	page_sessions(view, interval, out);
	if (out->n_lines != 0) {
		page_bottom(view, out);
		return;
	}
	top_next_line(out, TOP_PLAIN);
	page_legend(out);
	top_next_line(out, TOP_PLAIN);
}
