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

struct bench_result {
	char name[56];
	char limit[56];           /* the figure that the ratio is to; "": none */
	char skipped[256];        /* why there is no number; "": there is one */
	const char *unit;         /* static, as the target is */
	const char *target;       /* or NULL */
	double median, low, high; /* 10th and 90th percentile */
	double ratio;             /* the median of the rounds' ratios */
	double bytes, flops;      /* what one sample moved and computed; 0: not said */
};

struct bench_report {
	const struct bench_suite *suite;
	size_t n_samples;  /* of each figure */
	char machine[512]; /* more than the CPU; "": nothing */
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

void report_print(const struct bench_report *report, bool json);
void report_free(struct bench_report *report);

#endif
