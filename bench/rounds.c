/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/rounds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/base.h"
#include "bench/suite.h"

#define MIN_ROUNDS 5u

void
bench_progress(const struct bench_report *report, const char *name, size_t i, size_t n)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (name != NULL)
		fprintf(stderr, "\r%s: %-60.60s %zu of %zu ", report->suite->name, name, i, n);
	else
		fprintf(stderr, "\r%*s\r", 90, "");
}

static struct bench_result *
bench_result_add(struct bench_report *report, const struct bench_case *bench_case)
{
	struct bench_result *result = &report->results[report->n_results++];

	if (report->n_results > BENCH_MAX_RESULTS)
		bench_die("%s: more than %d cases", report->suite->name, BENCH_MAX_RESULTS);
	*result = (struct bench_result){ .bench_case = *bench_case };
	return result;
}

void
bench_skip(struct bench_report *report, const char *name, const char *unit, const char *why)
{
	bench_result_add(report, &(struct bench_case){ .name = name, .unit = unit, .skipped = why });
}

static int
rounds_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Divide samples of the same round, so that a slowdown of both cancels out. */
static struct bench_ratio
rounds_ratio(const double *over, const double *under, size_t n)
{
	double sorted[BENCH_MAX_SAMPLES], least = over[0], least_under = under != NULL ? under[0] : 1;

	for (size_t s = 0; s < n; s++) {
		sorted[s] = under != NULL ? over[s] / under[s] : over[s];
		least = fmin(least, over[s]);
		least_under = under != NULL ? fmin(least_under, under[s]) : 1;
	}
	qsort(sorted, n, sizeof(*sorted), rounds_compare);
	return (struct bench_ratio){ sorted[n / 2], sorted[n / 10], sorted[n - 1 - n / 10], least / least_under };
}

/* A case's samples; NULL: the case is not in this group. */
static const double *
rounds_find_samples(const struct bench_case *cases, size_t n, const double (*samples)[BENCH_MAX_SAMPLES],
		    const char *name)
{
	for (size_t i = 0; i < n && name != NULL; i++)
		if (strcmp(cases[i].name, name) == 0 && cases[i].skipped == NULL)
			return samples[i];
	return NULL;
}

static void
rounds_summarise(struct bench_report *report, const struct bench_case *cases, size_t n,
		 const double (*samples)[BENCH_MAX_SAMPLES], size_t n_rounds)
{
	for (size_t i = 0; i < n; i++) {
		struct bench_result *result = bench_result_add(report, &cases[i]);
		const double *own = samples[i], *other = rounds_find_samples(cases, n, samples, cases[i].limit);

		if (cases[i].skipped != NULL)
			continue;
		result->n_samples = n_rounds;
		result->value = rounds_ratio(own, NULL, n_rounds);
		if (other != NULL)
			result->limit = rounds_ratio(own, other, n_rounds);
		for (size_t r = 0; r < BENCH_MAX_RELATIONS; r++) {
			const struct bench_relation *relation = &cases[i].relations[r];

			other = rounds_find_samples(cases, n, samples, relation->other);
			if (other == NULL || relation->reference != report->options->reference)
				continue;
			result->ratios[r] = relation->ratio_kind == BENCH_SLOWDOWN ? rounds_ratio(own, other, n_rounds)
										   : rounds_ratio(other, own, n_rounds);
		}
	}
}

void
bench_rounds(struct bench_report *report, const struct bench_case *cases, size_t n, double limit_s)
{
	static double samples[BENCH_MAX_CASES][BENCH_MAX_SAMPLES];
	const struct bench_options *options = report->options;
	size_t n_rounds = 0, least = options->quick ? 1 : MIN_ROUNDS;
	uint64_t start = bench_now_ns();

	if (n > BENCH_MAX_CASES)
		bench_die("%s: %zu cases, room for %d", cases[0].name, n, BENCH_MAX_CASES);
	if (options->limit_s > 0)
		limit_s = options->limit_s;
	if (options->quick)
		limit_s = 0;
	for (bool warm = options->quick; n_rounds < options->n_samples; warm = true) {
		for (size_t i = 0; i < n; i++) {
			if (cases[i].skipped != NULL)
				continue;
			bench_progress(report, cases[i].name, n_rounds, options->n_samples);
			samples[i][n_rounds] = cases[i].sample(cases[i].context);
		}
		n_rounds += warm;
		if (n_rounds >= least && bench_since_us(start) > limit_s * 1e6)
			break;
	}
	bench_progress(report, NULL, 0, 0);
	rounds_summarise(report, cases, n, samples, n_rounds);
}
