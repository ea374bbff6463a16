/* SPDX-License-Identifier: Apache-2.0 */
/* paged-bench: runs suites and prints medians, spreads and ratios. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/base.h"
#include "bench/kv/kv.h"
#include "bench/machine.h"
#include "bench/report.h"
#include "bench/rounds.h"
#include "bench/suite.h"

static const struct bench_suite *const suites[] = {
	&bench_suite_append,  &bench_suite_compile, &bench_suite_control,      &bench_suite_decode,
	&bench_suite_gpu,     &bench_suite_limits,  &bench_suite_masks,        &bench_suite_mods,
	&bench_suite_prefill, &bench_suite_scale,   &bench_suite_remote_masks, &bench_suite_sharing,
};

static bool
suite_has_reference(const struct bench_suite *suite, enum bench_reference reference)
{
	return reference == BENCH_REFERENCE_LIMIT || (suite->references >> reference & 1) != 0;
}

/* Only suites on the host that use no thread but those of kv_host.c can measure CPU time. */
static bool
suite_has_clock(const struct bench_suite *suite)
{
	return !bench_uses_cpu_time() || (suite->kv_cases != NULL && !suite->special);
}

static struct bench_report *
suite_run(const struct bench_suite *suite, const struct bench_options *options)
{
	struct bench_report *report =
		mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct machine_cpu_time before;

	if (report == MAP_FAILED)
		bench_die("no memory for a report");
	report->suite = suite;
	report->options = options;
	if (!suite_has_clock(suite))
		bench_die("suite %s has no --cpu-time", suite->name);
	if (!suite_has_reference(suite, options->reference))
		bench_die("suite %s has no ratios to %s", suite->name, bench_reference_name(options->reference));
	machine_cpu_time_now(&before);
	if (suite->run != NULL) {
		suite->run(report);
	} else {
		if (options->only != NULL || options->group != NULL)
			bench_die("suite %s has no --only and no --group", suite->name);
		suite->setup();
		bench_rounds(report, suite->cases, suite->n_cases, INFINITY);
		if (suite->teardown != NULL)
			suite->teardown();
	}
	report->other_load = machine_other_load(&before);
	if (options->lines)
		bench_print_lines(report);
	return report;
}

/* "all" is the suites that any machine can run and that have ratios of the selected kind and the selected clock. */
static size_t
suites_select(char **names, size_t n_names, const struct bench_options *options, const struct bench_suite **selected)
{
	bool all = n_names == 1 && strcmp(names[0], "all") == 0;
	size_t n = 0;

	for (size_t i = 0; i < BENCH_N(suites) && all; i++)
		if (!suites[i]->special && suite_has_reference(suites[i], options->reference) &&
		    suite_has_clock(suites[i]))
			selected[n++] = suites[i];
	for (size_t j = 0; j < n_names && !all; j++) {
		size_t i = 0;

		while (i < BENCH_N(suites) && strcmp(suites[i]->name, names[j]) != 0)
			i++;
		if (i == BENCH_N(suites) || n == BENCH_N(suites))
			bench_die("no suite %s; paged-bench list shows them", names[j]);
		selected[n++] = suites[i];
	}
	return n;
}

static int
suites_list(void)
{
	for (size_t i = 0; i < BENCH_N(suites); i++) {
		printf("%-12s %s\n", suites[i]->name, suites[i]->description);
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
		    "       paged-bench run SUITE...|all [--json | --lines] [--reference limit|contiguous|torch|vllm]\n"
		    "                   [--samples N] [--threads N] [--isa NAME] [--quick] [--only TEXT] [--long]\n"
		    "                   [--group NAME] [--group-limit S] [--in-process] [--seconds S] [--cpu-time]\n");
	return code;
}

static enum bench_reference
reference_parse(const char *name)
{
	for (enum bench_reference reference = 0; reference < BENCH_N_REFERENCES; reference++)
		if (strcmp(name, bench_reference_name(reference)) == 0)
			return reference;
	bench_die("--reference %s: limit, contiguous, torch or vllm", name);
}

static unsigned int
option_number_parse(const char *option, const char *text, size_t most)
{
	char *end;
	size_t n = strtoul(text, &end, 10);

	if (n < 1 || n > most || *end != 0)
		bench_die("--%s %s: 1 to %zu", option, text, most);
	return (unsigned int)n;
}

/* A process opens the GPU for one group and frees nothing of it. */
static void
options_check(const struct bench_options *options, bool json)
{
	if (options->lines && json)
		bench_die("--lines and --json exclude each other");
	if (options->only != NULL && options->group != NULL)
		bench_die("--only and --group exclude each other");
	if (options->in_process && options->group == NULL)
		bench_die("--in-process measures one group: --group NAME selects it");
}

/* On a machine that others use, CPU time changes less than time; it has a meaning for one thread only. */
static void
cpu_time_choose(struct bench_options *options)
{
	options->n_threads = 1;
	bench_use_cpu_time();
}

int
main(int argc, char **argv)
{
	static int json, lines, quick, with_long, in_process, cpu_time;
	static const struct option options[] = { { "json", no_argument, &json, true },
						 { "lines", no_argument, &lines, true },
						 { "group", required_argument, NULL, 'g' },
						 { "group-limit", required_argument, NULL, 'l' },
						 { "in-process", no_argument, &in_process, true },
						 { "samples", required_argument, NULL, 'n' },
						 { "quick", no_argument, &quick, true },
						 { "only", required_argument, NULL, 'o' },
						 { "reference", required_argument, NULL, 'r' },
						 { "threads", required_argument, NULL, 't' },
						 { "isa", required_argument, NULL, 'i' },
						 { "long", no_argument, &with_long, true },
						 { "seconds", required_argument, NULL, 's' },
						 { "cpu-time", no_argument, &cpu_time, true },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	struct bench_options chosen = { .n_samples = 31, .n_threads = 2, .group_limit_s = 120 };
	const struct bench_suite *selected[BENCH_N(suites)];
	struct bench_report *reports[BENCH_N(suites)];
	int option;
	size_t n;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 0: /* a flag */
			break;
		case 'n':
			chosen.n_samples = option_number_parse("samples", optarg, BENCH_MAX_SAMPLES);
			break;
		case 'r':
			chosen.reference = reference_parse(optarg);
			break;
		case 't':
			chosen.n_threads = option_number_parse("threads", optarg, 64);
			break;
		case 'i':
			setenv("PAGED_ISA", optarg, 1); /* the library reads and validates it */
			break;
		case 's':
			chosen.limit_s = option_number_parse("seconds", optarg, 3600);
			break;
		case 'o':
			chosen.only = optarg;
			break;
		case 'g':
			chosen.group = optarg;
			break;
		case 'l':
			chosen.group_limit_s = option_number_parse("group-limit", optarg, 3600);
			break;
		case 'h':
			return usage(stdout, 0);
		default:
			return usage(stderr, 2);
		}
	chosen.quick = quick;
	chosen.with_long = with_long;
	chosen.in_process = in_process;
	chosen.lines = lines;
	options_check(&chosen, json);
	if (cpu_time)
		cpu_time_choose(&chosen);
	if (optind + 1 == argc && strcmp(argv[optind], "list") == 0)
		return suites_list();
	if (optind + 2 > argc || strcmp(argv[optind], "run") != 0)
		return usage(stderr, 2);
	n = suites_select(argv + optind + 1, (size_t)(argc - optind - 1), &chosen, selected);
	/* A table is printed as soon as it is measured; a JSON document holds all suites. */
	for (size_t i = 0; i < n; i++) {
		reports[i] = suite_run(selected[i], &chosen);
		if (!json && !lines)
			bench_print(reports[i]);
	}
	if (json)
		bench_print_json(reports, n);
	return 0;
}
