/* SPDX-License-Identifier: Apache-2.0 */
/**
 * report.h - what a run measured, as a table or as JSON
 *
 * Life: a struct bench_report of zeros but for suite and n_samples; results
 * are added and filled in, printed, freed.
 */
#ifndef PAGED_BENCH_REPORT_H
#define PAGED_BENCH_REPORT_H

#include "bench/bench.h"

/** How a ratio is told; figures that have relations are times. */
enum bench_sense {
	BENCH_SHARE,  /* other's time over ours, where the other is what can be reached */
	BENCH_TIMES,  /* our time over the other's */
	BENCH_FASTER, /* other's time over ours */
};

/** What a figure is compared with. */
struct bench_relation {
	enum bench_against against;
	enum bench_sense sense;
	const char *to;     /* another figure's name */
	const char *target; /* or NULL */
};

#define BENCH_MAX_RATIOS 4

struct bench_ratio {
	char to[56];
	enum bench_sense sense;
	double median, low, high; /* 10th and 90th percentile of the rounds' */
	double fastest;           /* of the fastest sample of each: near the median, unless others took the cores */
	char target[24];
};

struct bench_result {
	char name[56];
	char limit[56];           /* the figure that the ratio is to; "": none */
	char skipped[256];        /* why there is no number; "": there is one */
	char how[96];             /* it came about, of a peer; or "" */
	const char *unit;         /* static, as the target is */
	const char *target;       /* or NULL */
	double median, low, high; /* 10th and 90th percentile */
	double ratio;             /* the median of the rounds' ratios */
	double bytes, flops;      /* what one sample moved and computed; 0: not said */
	size_t n_samples;         /* if not the report's */
	struct bench_ratio ratios[BENCH_MAX_RATIOS];
	size_t n_ratios;
};

struct bench_report {
	const struct bench_suite *suite;
	size_t n_samples; /* of each figure, at most */
	enum bench_against against;
	char machine[512]; /* more than the CPU; "": nothing */
	double others;     /* the share of all cores that others had meanwhile */
	struct bench_result *results;
	size_t n_results;
};

/** report_add - a new result, valid until the next one is added; the report keeps it */
struct bench_result *report_add(struct bench_report *report, const char *name, const char *unit);

/**
 * report_summarise - medians and percentiles of a figure, and its ratio to its limit
 *
 * Each sample over the limit's of the same round: what slowed both down cancels out.
 * @param[in] limit  the figure's own samples: there is none
 */
void report_summarise(struct bench_result *result, const double *samples, const double *limit, size_t n);

/** report_relate - one more ratio of a figure, of its samples to another's of the same rounds */
void report_relate(struct bench_result *result, const struct bench_relation *relation, const double *samples,
		   const double *other, size_t n);

/** report_print - a table for people */
void report_print(const struct bench_report *report);

/** report_print_json - a document of one run, or of several in "runs" */
void report_print_json(const struct bench_report *reports, size_t n);

void report_free(struct bench_report *report);

#endif
