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

#include "bench/machine.h"
#include "bench/report.h"

static const struct bench_suite *const suites[] = {
	&bench_suite_append,  &bench_suite_compile, &bench_suite_control, &bench_suite_decode,
	&bench_suite_gpu,     &bench_suite_limits,  &bench_suite_masks,   &bench_suite_mods,
	&bench_suite_prefill, &bench_suite_scale,   &bench_suite_served,
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

static bool
has(const struct bench_suite *suite, enum bench_against against)
{
	return against == BENCH_AGAINST_LIMIT || (suite->against >> against & 1) != 0;
}

static struct bench_report
run(const struct bench_suite *suite, const struct bench_options *options)
{
	struct bench_report report = { .suite = suite, .n_samples = options->n_samples, .against = options->against };
	struct machine_work before;

	if (!has(suite, options->against))
		bench_die("suite %s has no ratios to %s", suite->name, bench_against_name(options->against));
	machine_work_now(&before);
	if (suite->run != NULL)
		suite->run(options, &report);
	else if (options->only != NULL)
		bench_die("suite %s has no --only", suite->name);
	else
		measure(suite, options->quick ? 1 : options->n_samples, &report);
	report.others = machine_others(&before);
	return report;
}

/* What each has measured is printed at once; a document is one for all. */
static int
run_all(const struct bench_suite *const *wanted, size_t n, const struct bench_options *options, bool json)
{
	struct bench_report reports[N_SUITES] = { 0 };

	for (size_t i = 0; i < n; i++) {
		reports[i] = run(wanted[i], options);
		if (!json)
			report_print(&reports[i]);
	}
	if (json)
		report_print_json(reports, n);
	for (size_t i = 0; i < n; i++)
		report_free(&reports[i]);
	return 0;
}

/* "all": those that any machine can run, of the kind of ratios asked for. */
static size_t
wanted_list(char **names, size_t n_names, const struct bench_options *options, const struct bench_suite **wanted)
{
	bool all = n_names == 1 && strcmp(names[0], "all") == 0;
	size_t n = 0;

	for (size_t i = 0; i < N_SUITES && all; i++)
		if (!suites[i]->special && has(suites[i], options->against))
			wanted[n++] = suites[i];
	for (size_t j = 0; j < n_names && !all; j++) {
		size_t i = 0;

		while (i < N_SUITES && strcmp(suites[i]->name, names[j]) != 0)
			i++;
		if (i == N_SUITES || n == N_SUITES)
			bench_die("no suite %s; paged-bench list shows them", names[j]);
		wanted[n++] = suites[i];
	}
	return n;
}

static int
list(void)
{
	for (size_t i = 0; i < N_SUITES; i++) {
		printf("%-10s %s\n", suites[i]->name, suites[i]->what);
		if (suites[i]->list != NULL)
			suites[i]->list(suites[i]);
		for (size_t j = 0; j < suites[i]->n_figures; j++)
			printf("    %-22s %s\n", suites[i]->figures[j].name, suites[i]->figures[j].unit);
	}
	return 0;
}

static int
usage(FILE *to, int code)
{
	fprintf(to, "usage: paged-bench list\n"
		    "       paged-bench run SUITE...|all [--json] [--against limit|contiguous|torch]\n"
		    "                   [--samples N] [--threads N] [--isa NAME] [--quick] [--only TEXT] [--long]\n"
		    "                   [--seconds S]\n");
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
	static const struct option options[] = { { "json", no_argument, NULL, 'j' },
						 { "samples", required_argument, NULL, 'n' },
						 { "quick", no_argument, NULL, 'q' },
						 { "only", required_argument, NULL, 'o' },
						 { "against", required_argument, NULL, 'a' },
						 { "threads", required_argument, NULL, 't' },
						 { "isa", required_argument, NULL, 'i' },
						 { "long", no_argument, NULL, 'l' },
						 { "seconds", required_argument, NULL, 's' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	struct bench_options chosen = { .n_samples = 31, .n_threads = 2 };
	const struct bench_suite *wanted[N_SUITES];
	bool json = false;
	int option;
	size_t n;

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
		case 'l':
			chosen.more = true;
			break;
		case 's':
			chosen.limit_s = (double)number_parse("seconds", optarg, 3600);
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
	if (optind + 2 > argc || strcmp(argv[optind], "run") != 0)
		return usage(stderr, 2);
	n = wanted_list(argv + optind + 1, (size_t)(argc - optind - 1), &chosen, wanted);
	return run_all(wanted, n, &chosen, json);
}
