/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix cache: match, start, fork, publish and evict, in the core and with a daemon. */
#include <stdio.h>
#include <string.h>

#include "bench/base.h"
#include "bench/machine.h"
#include "bench/rounds.h"
#include "bench/sharing/cached_pool.h"
#include "bench/sharing/sharing_core.h"
#include "bench/sharing/sharing_daemon.h"
#include "bench/suite.h"

#define LIMIT_S 60
#define FRESH_PAGES 1100000u /* more than BENCH_MAX_SAMPLES samples take */
#define MAX_FIGURES 3
#define MAX_NAME 64

/** A figure, measured in pools of each size.  The last one of a group is the limit of the others. */
struct figure {
	const char *name, *suffix; /* of cases: "NAME, SIZE SUFFIX" */
	double (*sample)(const void *pool);
	const char *target, *target_largest; /* of the value; target_largest: of 10 million pages, NULL: the same */
	const char *limit_target;            /* of the ratio to the limit */
	bool free;                           /* in a pool of free pages */
};

/** Figures that are sampled in rotation. */
struct group {
	const char *name, *unit;
	size_t n_figures;
	struct figure figures[MAX_FIGURES];
};

static const struct group groups[] = {
	{ "match",
	  "us",
	  2,
	  { { "match 32k", "", sharing_match_us, "<= 150 us", "<= 250 us", "<= 2", false },
	    { "match 32k", ": lines read", sharing_lines_us, NULL, NULL, NULL, false } } },
	{ "start",
	  "us",
	  2,
	  { { "start 32k", "", sharing_start_us, "<= 60 us", NULL, NULL, false },
	    { "start 32k", ": counts and table", sharing_counts_us, NULL, NULL, NULL, false } } },
	{ "reserve",
	  "ns",
	  3,
	  { { "reserve evicted pages", "", sharing_reserve_evicted_ns, NULL, NULL, "<= 1.1", false },
	    { "reserve and evict", "", sharing_reserve_evicting_ns, "<= 250 ns", NULL, NULL, false },
	    { "reserve free pages", "", sharing_reserve_free_ns, NULL, NULL, NULL, true } } },
	{ "publish",
	  "ns",
	  3,
	  { { "publish a prompt", "", sharing_publish_ns, "<= 300 ns", NULL, NULL, false },
	    { "publish 64 sequences", "", sharing_publish_decode_ns, "<= 300 ns", NULL, NULL, false },
	    { "publish", ": keys written", sharing_keys_ns, NULL, NULL, NULL, false } } },
	{ "trim",
	  "ns",
	  3,
	  { { "trim published pages", "", sharing_trim_published_ns, "<= 100 ns", NULL, NULL, false },
	    { "trim private pages", "", sharing_trim_private_ns, "<= 100 ns", NULL, NULL, true },
	    { "trim", ": sequences erased", sharing_erase_ns, NULL, NULL, NULL, true } } },
	{ "fork",
	  "us",
	  2,
	  { { "fork 32k", "", sharing_fork_us, "<= 20 us", NULL, NULL, false },
	    { "fork 32k", ": table copied", sharing_table_us, NULL, NULL, NULL, false } } },
	{ "64 forks",
	  "us",
	  2,
	  { { "64 forks of 32k", "", sharing_forks_us, "<= 1000 us", NULL, NULL, false },
	    { "64 forks of 32k", ": tables copied", sharing_tables_us, NULL, NULL, NULL, false } } },
};

static struct size {
	const char *name;
	uint32_t n_pages;
	struct cached_pool full, free;
	char skipped[96]; /* why its pools are not open; "": they are */
} sizes[] = { { .name = "10k", .n_pages = 10000 },
	      { .name = "100k", .n_pages = 100000 },
	      { .name = "1m", .n_pages = 1000000 },
	      { .name = "10m", .n_pages = 10000000 } };

static struct cached_pool fresh = { .n_pages = FRESH_PAGES, .fill = CACHED_POOL_FRESH };

static void
sizes_open(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct size *size = &sizes[i];
		double needed = cached_pool_bytes(size->n_pages), available = machine_memory_bytes();

		if (needed * 1.25 > available) {
			snprintf(size->skipped, sizeof(size->skipped), "needs %.1f GB of memory, %.1f GB are available",
				 needed * 1.25 / 1e9, available / 1e9);
			continue;
		}
		size->full = (struct cached_pool){ .n_pages = size->n_pages, .fill = CACHED_POOL_FULL };
		size->free = (struct cached_pool){ .n_pages = size->n_pages, .fill = CACHED_POOL_FREE };
		cached_pool_open(&size->full);
		cached_pool_open(&size->free);
	}
	cached_pool_open(&fresh);
}

static void
sizes_close(size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (sizes[i].skipped[0] == '\0') {
			cached_pool_close(&sizes[i].full);
			cached_pool_close(&sizes[i].free);
		}
	cached_pool_close(&fresh);
}

/* A case's name is used until the report is printed. */
static const char *
case_name(const struct figure *figure, const struct size *size)
{
	static char names[BENCH_N(groups) * MAX_FIGURES * BENCH_N(sizes)][MAX_NAME];
	static size_t n_names;
	char *name = names[n_names++];

	snprintf(name, MAX_NAME, "%s, %s%s", figure->name, size->name, figure->suffix);
	return name;
}

static void
case_relate(struct bench_case *bench_case, size_t i, const char *other, const char *target)
{
	bench_case->relations[i] = (struct bench_relation){ BENCH_REFERENCE_LIMIT, BENCH_SLOWDOWN, other, target };
}

/* The cases of a group in pools of one size.  `smallest`: names of these figures in the smallest pool. */
static void
group_cases(const struct group *group, const struct size *size, const char **smallest, struct bench_case *cases)
{
	size_t n = group->n_figures;
	bool largest = size == &sizes[BENCH_N(sizes) - 1];

	for (size_t i = 0; i < n; i++) {
		const struct figure *figure = &group->figures[i];

		cases[i] = (struct bench_case){
			.name = case_name(figure, size),
			.unit = group->unit,
			.target = largest && figure->target_largest != NULL ? figure->target_largest : figure->target,
			.sample = figure->sample,
			.context = figure->free ? &size->free : &size->full,
			.skipped = size->skipped[0] != '\0' ? size->skipped : NULL,
		};
	}
	for (size_t i = 0; i + 1 < n; i++) {
		case_relate(&cases[i], 0, cases[n - 1].name, group->figures[i].limit_target);
		if (size == sizes)
			smallest[i] = cases[i].name;
		else
			case_relate(&cases[i], 1, smallest[i], "<= 3");
	}
}

static void
group_run(struct bench_report *report, const struct group *group, size_t n_sizes)
{
	struct bench_case cases[BENCH_MAX_CASES];
	const char *smallest[MAX_FIGURES];
	size_t n = 0;

	for (size_t i = 0; i < n_sizes; i++, n += group->n_figures)
		group_cases(group, &sizes[i], smallest, &cases[n]);
	if (group->figures[0].sample == sharing_publish_ns) {
		cases[n] = (struct bench_case){ .name = "publish a prompt, memory never written",
						.unit = "ns",
						.sample = sharing_publish_ns,
						.context = &fresh };
		case_relate(&cases[n++], 0, cases[(n_sizes - 1) * group->n_figures].name, NULL);
	}
	bench_rounds(report, cases, n, LIMIT_S);
}

static bool
group_chosen(const struct bench_report *report, const char *name)
{
	return report->options->only == NULL || strstr(name, report->options->only) != NULL;
}

static void
suite_sharing_run(struct bench_report *report)
{
	size_t n_sizes = report->options->quick ? 2 : BENCH_N(sizes), n_chosen = 0;

	/* The daemon starts before the pools take memory. */
	if (group_chosen(report, SHARING_REQUESTS))
		sharing_requests_run(report);
	if (group_chosen(report, SHARING_DECODE))
		sharing_decode_run(report);
	if (group_chosen(report, SHARING_GIVE))
		sharing_give_run(report);
	for (size_t i = 0; i < BENCH_N(groups); i++)
		n_chosen += group_chosen(report, groups[i].name);
	if (n_chosen > 0)
		sizes_open(n_sizes);
	for (size_t i = 0; i < BENCH_N(groups); i++)
		if (group_chosen(report, groups[i].name))
			group_run(report, &groups[i], n_sizes);
	if (n_chosen > 0)
		sizes_close(n_sizes);
	if (report->n_results == 0)
		bench_die("suite sharing has no group %s", report->options->only);
}

const struct bench_suite bench_suite_sharing = {
	.name = "sharing",
	.description =
		"the prefix cache in pools of 10 thousand to 10 million pages: match, start, fork, publish, trim and "
		"evict; give and adopt",
	.run = suite_sharing_run,
};
