/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rounds.h - figures that are sampled in turn, and their ratios to each other
 *
 * For suites that measure on their own: one round takes a sample of each
 * figure, the first round is not counted, and a ratio is the median of the
 * rounds' ratios.
 */
#ifndef PAGED_BENCH_ROUNDS_H
#define PAGED_BENCH_ROUNDS_H

#include "bench/report.h"

struct rounds_figure {
	const char *name;
	const char *unit;
	const char *target; /* of the figure itself, or NULL */
	double (*sample)(void *context);
	void *context;
	const char *skipped; /* why it is not sampled; NULL: it is */
	const char *how;     /* it came about; or NULL */
	double bytes, flops; /* of a sample in microseconds; 0: not said */
	struct bench_relation relations[BENCH_MAX_RATIOS];
};

#define ROUNDS_MAX_FIGURES 16

/**
 * rounds_measure - figures in turn, at most options->n_samples rounds, as many as `limit_s` allows and 5 in any case
 *
 * options->limit_s goes before it, unless it is 0.
 * Relations to figures that are not there, or of another kind than asked for, are left out.
 */
void rounds_measure(const struct rounds_figure *figures, size_t n, const struct bench_options *options, double limit_s,
		    struct bench_report *report);

/** rounds_progress - on a terminal: what is being measured, and how much of it is done; name NULL: nothing any more */
void rounds_progress(const char *suite, const char *name, size_t i, size_t n);

#endif
