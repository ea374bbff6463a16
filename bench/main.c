/* SPDX-License-Identifier: Apache-2.0 */
/* paged-bench: runs suites and prints medians, spreads and ratios. */
#include "bench/bench.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/report.h"

static const struct bench_suite *const suites[] = {
	&bench_suite_append, &bench_suite_compile, &bench_suite_control, &bench_suite_decode,  &bench_suite_gpu,
	&bench_suite_limits, &bench_suite_masks,   &bench_suite_mods,    &bench_suite_prefill, &bench_suite_scale,
	&bench_suite_served,
};

#define N_SUITES (sizeof(suites) / sizeof(suites[0]))
#define MAX_FIGURES 32

void
bench_die(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "paged-bench: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

uint64_t
bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *
bench_against_name(enum bench_against against)
{
	static const char *const names[BENCH_N_AGAINST] = { "limit", "contiguous", "torch" };

	return names[against];
}

static size_t
limit_find(const struct bench_suite *suite, size_t i)
{
	for (size_t j = 0; suite->figures[i].limit != NULL && j < suite->n_figures; j++)
		if (strcmp(suite->figures[j].name, suite->figures[i].limit) == 0)
			return j;
	return i;
}

static void
measure(const struct bench_suite *suite, size_t n_samples, struct bench_report *report)
{
	static double samples[MAX_FIGURES][BENCH_MAX_SAMPLES];

	if (suite->n_figures > MAX_FIGURES)
		bench_die("%s: %zu figures, room for %d", suite->name, suite->n_figures, MAX_FIGURES);
	suite->setup();
	/* The first round warms caches and is not counted. */
	for (size_t s = 0; s <= n_samples; s++) {
		for (size_t i = 0; i < suite->n_figures; i++) {
			double value = suite->figures[i].sample();

			if (s > 0)
				samples[i][s - 1] = value;
		}
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "\r%s: %zu of %zu ", suite->name, s, n_samples);
	}
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%*s\r", 60, "");
	suite->teardown();
	for (size_t i = 0; i < suite->n_figures; i++) {
		const struct bench_figure *figure = &suite->figures[i];
		struct bench_result *result = report_add(report, figure->name, figure->unit);

		report_summarise(result, samples[i], samples[limit_find(suite, i)], n_samples);
		result->target = figure->target;
		if (figure->limit != NULL)
			snprintf(result->limit, sizeof(result->limit), "%s", figure->limit);
	}
}

static int
run(const struct bench_suite *suite, const struct bench_options *options, bool json)
{
	struct bench_report report = { .suite = suite, .n_samples = options->n_samples, .against = options->against };

	if (options->against != BENCH_AGAINST_LIMIT && (suite->against >> options->against & 1) == 0)
		bench_die("suite %s has no ratios to %s", suite->name, bench_against_name(options->against));
	if (suite->run != NULL)
		suite->run(options, &report);
	else if (options->quick || options->only != NULL)
		bench_die("suite %s has no --quick and no --only", suite->name);
	else
		measure(suite, options->n_samples, &report);
	report_print(&report, json);
	report_free(&report);
	return 0;
}

static int
list(void)
{
	for (size_t i = 0; i < N_SUITES; i++) {
		printf("%-10s %s\n", suites[i]->name, suites[i]->what);
		if (suites[i]->list != NULL)
			suites[i]->list();
		for (size_t j = 0; j < suites[i]->n_figures; j++)
			printf("    %-22s %s\n", suites[i]->figures[j].name, suites[i]->figures[j].unit);
	}
	return 0;
}

static int
usage(FILE *to, int code)
{
	fprintf(to, "usage: paged-bench list\n"
		    "       paged-bench run SUITE [--json] [--against limit|contiguous|torch]\n"
		    "                   [--samples N] [--threads N] [--isa NAME] [--quick] [--only TEXT]\n");
	return code;
}

static enum bench_against
against_parse(const char *name)
{
	for (enum bench_against against = 0; against < BENCH_N_AGAINST; against++)
		if (strcmp(name, bench_against_name(against)) == 0)
			return against;
	bench_die("--against %s: limit, contiguous or torch", name);
}

static size_t
number_parse(const char *option, const char *text, size_t most)
{
	char *end;
	size_t n = strtoul(text, &end, 10);

	if (n < 1 || n > most || *end != 0)
		bench_die("--%s %s: 1 to %zu", option, text, most);
	return n;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },  { "samples", required_argument, NULL, 'n' },
		{ "quick", no_argument, NULL, 'q' }, { "only", required_argument, NULL, 'o' },
		{ "against", required_argument, NULL, 'a' },
		{ "threads", required_argument, NULL, 't' },
		{ "isa", required_argument, NULL, 'i' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	struct bench_options chosen = { .n_samples = 31, .n_threads = 2 };
	bool json = false;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 'j':
			json = true;
			break;
		case 'n':
			chosen.n_samples = number_parse("samples", optarg, BENCH_MAX_SAMPLES);
			break;
		case 'a':
			chosen.against = against_parse(optarg);
			break;
		case 't':
			chosen.n_threads = (unsigned int)number_parse("threads", optarg, 64);
			break;
		case 'i':
			setenv("PAGED_ISA", optarg, 1); /* which the library reads, and judges */
			break;
		case 'q':
			chosen.quick = true;
			break;
		case 'o':
			chosen.only = optarg;
			break;
		case 'h':
			return usage(stdout, 0);
		default:
			return usage(stderr, 2);
		}
	if (optind + 1 == argc && strcmp(argv[optind], "list") == 0)
		return list();
	if (optind + 2 != argc || strcmp(argv[optind], "run") != 0)
		return usage(stderr, 2);
	for (size_t i = 0; i < N_SUITES; i++)
		if (strcmp(suites[i]->name, argv[optind + 1]) == 0)
			return run(suites[i], &chosen, json);
	bench_die("no suite %s; paged-bench list shows them", argv[optind + 1]);
}
