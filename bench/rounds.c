/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/rounds.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LEAST_ROUNDS 5u

void
rounds_progress(const char *suite, const char *name, size_t i, size_t n)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (name != NULL)
		fprintf(stderr, "\r%s: %-60.60s %zu of %zu ", suite, name, i, n);
	else
		fprintf(stderr, "\r%*s\r", 90, "");
}

static size_t
find(const struct rounds_figure *figures, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(figures[i].name, name) == 0 && figures[i].skipped == NULL)
			return i;
	return n;
}

static void
relate(const struct rounds_figure *figures, size_t n, size_t i, double (*samples)[BENCH_MAX_SAMPLES], size_t n_rounds,
       enum bench_against against, struct bench_result *result)
{
	for (size_t r = 0; r < BENCH_MAX_RATIOS && figures[i].relations[r].to != NULL; r++) {
		const struct bench_relation *relation = &figures[i].relations[r];
		size_t to = find(figures, n, relation->to);

		if (to < n && relation->against == against)
			report_relate(result, relation, samples[i], samples[to], n_rounds);
	}
}

void
rounds_measure(const struct rounds_figure *figures, size_t n, const struct bench_options *options, double limit_s,
	       struct bench_report *report)
{
	static double samples[ROUNDS_MAX_FIGURES][BENCH_MAX_SAMPLES];
	uint64_t start = bench_now_ns();
	size_t n_rounds = 0, least = options->quick ? 1 : LEAST_ROUNDS;

	if (options->limit_s > 0)
		limit_s = options->limit_s;
	if (options->quick)
		limit_s = 0;
	if (n > ROUNDS_MAX_FIGURES)
		bench_die("%s: %zu figures, room for %d", figures[0].name, n, ROUNDS_MAX_FIGURES);
	for (size_t round = 0; n_rounds < options->n_samples; round++) {
		for (size_t i = 0; i < n; i++)
			if (figures[i].skipped == NULL) {
				rounds_progress(report->suite->name, figures[i].name, n_rounds, options->n_samples);
				samples[i][n_rounds] = figures[i].sample(figures[i].context);
			}
		n_rounds += round > 0 || options->quick;
		if (n_rounds >= least && (double)(bench_now_ns() - start) / 1e9 > limit_s)
			break;
	}
	rounds_progress(NULL, NULL, 0, 0);
	for (size_t i = 0; i < n; i++) {
		struct bench_result *result = report_add(report, figures[i].name, figures[i].unit);

		result->target = figures[i].target;
		if (figures[i].skipped != NULL) {
			snprintf(result->skipped, sizeof(result->skipped), "%s", figures[i].skipped);
			continue;
		}
		report_summarise(result, samples[i], samples[i], n_rounds);
		result->n_samples = n_rounds;
		snprintf(result->how, sizeof(result->how), "%s", figures[i].how != NULL ? figures[i].how : "");
		result->bytes = figures[i].bytes;
		result->flops = figures[i].flops;
		relate(figures, n, i, samples, n_rounds, options->against, result);
	}
}
