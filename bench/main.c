/* SPDX-License-Identifier: Apache-2.0 */
/* paged-bench: runs suites and prints medians, spreads and ratios. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/base.h"
#include "bench/kv.h"
#include "bench/machine.h"
#include "bench/report.h"
#include "bench/rounds.h"
#include "bench/suite.h"

static const struct bench_suite *const suites[] = {
	&bench_suite_append,  &bench_suite_compile, &bench_suite_control, &bench_suite_decode,
	&bench_suite_gpu,     &bench_suite_limits,  &bench_suite_masks,   &bench_suite_mods,
	&bench_suite_prefill, &bench_suite_scale,   &bench_suite_served,
};

static bool
has(const struct bench_suite *suite, enum bench_against against)
{
	return against == BENCH_AGAINST_LIMIT || (suite->against >> against & 1) != 0;
}

static struct bench_report *
run(const struct bench_suite *suite, const struct bench_options *options)
{
	struct bench_report *report =
		mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct machine_work before;

	if (report == MAP_FAILED)
		bench_die("no memory for a report");
	report->suite = suite;
	report->options = options;
	if (!has(suite, options->against))
		bench_die("suite %s has no ratios to %s", suite->name, bench_against_name(options->against));
	machine_work_now(&before);
	if (suite->run != NULL) {
		suite->run(report);
	} else {
		if (options->only != NULL)
			bench_die("suite %s has no --only", suite->name);
		suite->setup();
		bench_rounds(report, suite->cases, suite->n_cases, INFINITY);
		if (suite->teardown != NULL)
			suite->teardown();
	}
	report->others = machine_others(&before);
	return report;
}

/* "all" is the suites that any machine can run and that have ratios of the selected kind. */
static size_t
wanted_list(char **names, size_t n_names, const struct bench_options *options, const struct bench_suite **wanted)
{
	bool all = n_names == 1 && strcmp(names[0], "all") == 0;
	size_t n = 0;

	for (size_t i = 0; i < BENCH_N(suites) && all; i++)
		if (!suites[i]->special && has(suites[i], options->against))
			wanted[n++] = suites[i];
	for (size_t j = 0; j < n_names && !all; j++) {
		size_t i = 0;

		while (i < BENCH_N(suites) && strcmp(suites[i]->name, names[j]) != 0)
			i++;
		if (i == BENCH_N(suites) || n == BENCH_N(suites))
			bench_die("no suite %s; paged-bench list shows them", names[j]);
		wanted[n++] = suites[i];
	}
	return n;
}

static int
list(void)
{
	for (size_t i = 0; i < BENCH_N(suites); i++) {
		printf("%-10s %s\n", suites[i]->name, suites[i]->what);
		kv_list(suites[i]);
		for (size_t j = 0; j < suites[i]->n_cases; j++)
			printf("    %-22s %s\n", suites[i]->cases[j].name, suites[i]->cases[j].unit);
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

static unsigned int
number_parse(const char *option, const char *text, size_t most)
{
	char *end;
	size_t n = strtoul(text, &end, 10);

	if (n < 1 || n > most || *end != 0)
		bench_die("--%s %s: 1 to %zu", option, text, most);
	return (unsigned int)n;
}

int
main(int argc, char **argv)
{
	static int json, quick, more;
	static const struct option options[] = { { "json", no_argument, &json, true },
						 { "samples", required_argument, NULL, 'n' },
						 { "quick", no_argument, &quick, true },
						 { "only", required_argument, NULL, 'o' },
						 { "against", required_argument, NULL, 'a' },
						 { "threads", required_argument, NULL, 't' },
						 { "isa", required_argument, NULL, 'i' },
						 { "long", no_argument, &more, true },
						 { "seconds", required_argument, NULL, 's' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	struct bench_options chosen = { .n_samples = 31, .n_threads = 2 };
	const struct bench_suite *wanted[BENCH_N(suites)];
	struct bench_report *reports[BENCH_N(suites)];
	int option;
	size_t n;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 0: /* a flag */
			break;
		case 'n':
			chosen.n_samples = number_parse("samples", optarg, BENCH_MAX_SAMPLES);
			break;
		case 'a':
			chosen.against = against_parse(optarg);
			break;
		case 't':
			chosen.n_threads = number_parse("threads", optarg, 64);
			break;
		case 'i':
			setenv("PAGED_ISA", optarg, 1); /* the library reads and validates it */
			break;
		case 's':
			chosen.limit_s = number_parse("seconds", optarg, 3600);
			break;
		case 'o':
			chosen.only = optarg;
			break;
		case 'h':
			return usage(stdout, 0);
		default:
			return usage(stderr, 2);
		}
	chosen.quick = quick;
	chosen.more = more;
	if (optind + 1 == argc && strcmp(argv[optind], "list") == 0)
		return list();
	if (optind + 2 > argc || strcmp(argv[optind], "run") != 0)
		return usage(stderr, 2);
	n = wanted_list(argv + optind + 1, (size_t)(argc - optind - 1), &chosen, wanted);
	/* A table is printed as soon as it is measured; a JSON document holds all suites. */
	for (size_t i = 0; i < n; i++) {
		reports[i] = run(wanted[i], &chosen);
		if (!json)
			bench_print(reports[i]);
	}
	if (json)
		bench_print_json(reports, n);
	return 0;
}
