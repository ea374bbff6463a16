/* SPDX-License-Identifier: Apache-2.0 */
/**
 * top_view.h - the page that top shows, on a screen or as text
 */
#ifndef PAGED_CTL_TOP_VIEW_H
#define PAGED_CTL_TOP_VIEW_H

#include "pagedctl/top_out.h"
#include "pagedctl/top_sample.h"

enum top_sort { TOP_BY_ID, TOP_BY_NAME, TOP_BY_SEQUENCES, TOP_BY_PAGES, TOP_BY_LOAD };

enum { TOP_MAX_FILTER = PAGED_MAX_NAME };

/** What the user chose. */
struct top_view {
	enum top_sort sort;
	bool reverse;
	char filter[TOP_MAX_FILTER + 1]; /* of names of pools and sessions; "": all */
	size_t first_session;            /* of those sorted and filtered, the first one that is shown */
	bool entering;                   /* the filter is being typed */
	bool help;
	char notice[256]; /* "": none; else it explains why the numbers are old */
};

/** top_view_has_name - whether the filter admits a name */
bool top_view_has_name(const struct top_view *view, const char *name);

/**
 * top_view_sessions - the sessions that the filter admits, sorted
 *
 * @param[out] sessions  [interval->now->n_sessions]
 * @return number of them
 */
size_t top_view_sessions(const struct top_view *view, const struct top_interval *interval,
			 const struct top_session **sessions);

/** top_session_state - "active", "draining", "ended" */
const char *top_session_state(const struct top_session *session);

/** top_view_page - write the page; with a limited number of lines, the last one lists keys or asks for the filter */
void top_view_page(struct top_view *view, const struct top_interval *interval, struct top_out *out);

#endif
