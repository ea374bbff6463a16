/* SPDX-License-Identifier: Apache-2.0 */
/* paged-bench: runs suites and prints medians, spreads and ratios. */
#include "bench/bench.h"

#include <getopt.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static const struct bench_suite *const suites[] = { &bench_suite_control, &bench_suite_masks, &bench_suite_mods,
						    &bench_suite_scale, &bench_suite_served };

#define N_SUITES (sizeof(suites) / sizeof(suites[0]))
#define MAX_FIGURES 32
#define MAX_SAMPLES 1000

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

static void
cpu_name(char *name, size_t size)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(name, size, "unknown CPU");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
			snprintf(name, size, "%s", strchr(line, ':') + 2);
			name[strcspn(name, "\n")] = 0;
			break;
		}
	if (file != NULL)
		fclose(file);
}

struct row {
	double median, low, high; /* 10th and 90th percentile */
	double ratio;             /* to the limit: the median of the rounds' ratios; 0: no limit */
};

static int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct row
summarise(double *samples, size_t n)
{
	qsort(samples, n, sizeof(*samples), compare_doubles);
	return (struct row){ .median = samples[n / 2], .low = samples[n / 10], .high = samples[n - 1 - n / 10] };
}

/* Each sample over the limit's of the same round: what slowed both down cancels out. */
static double
ratio_to_limit(const struct bench_suite *suite, double (*samples)[MAX_SAMPLES], size_t n, size_t i)
{
	static double ratios[MAX_SAMPLES];

	for (size_t j = 0; j < suite->n_figures; j++) {
		if (suite->figures[i].limit == NULL || strcmp(suite->figures[j].name, suite->figures[i].limit) != 0)
			continue;
		for (size_t s = 0; s < n; s++)
			ratios[s] = samples[i][s] / samples[j][s];
		return summarise(ratios, n).median;
	}
	return 0;
}

static void
measure(const struct bench_suite *suite, size_t n_samples, struct row *rows)
{
	static double samples[MAX_FIGURES][MAX_SAMPLES];
	double ratios[MAX_FIGURES];

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
	for (size_t i = 0; i < suite->n_figures; i++)
		ratios[i] = ratio_to_limit(suite, samples, n_samples, i);
	for (size_t i = 0; i < suite->n_figures; i++) {
		rows[i] = summarise(samples[i], n_samples);
		rows[i].ratio = ratios[i];
	}
}

static void
print_text(const struct bench_suite *suite, const struct row *rows)
{
	printf("%-22s %10s %23s %-8s %s\n", "FIGURE", "MEDIAN", "10TH - 90TH", "UNIT", "RATIO");
	for (size_t i = 0; i < suite->n_figures; i++) {
		const struct bench_figure *figure = &suite->figures[i];

		printf("%-22s %10.2f %10.2f - %10.2f %-8s", figure->name, rows[i].median, rows[i].low, rows[i].high,
		       figure->unit);
		if (figure->limit != NULL)
			printf(" %.2f x %s", rows[i].ratio, figure->limit);
		if (figure->target != NULL)
			printf(" (target %s)", figure->target);
		putchar('\n');
	}
}

static void
print_json(const struct bench_suite *suite, const struct row *rows, size_t n_samples)
{
	json_t *list = json_array(), *top;
	struct utsname system;
	char cpu[128];

	uname(&system);
	cpu_name(cpu, sizeof(cpu));
	for (size_t i = 0; i < suite->n_figures; i++) {
		const struct bench_figure *figure = &suite->figures[i];
		json_t *entry = json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", figure->name, "unit", figure->unit,
					  "median", rows[i].median, "p10", rows[i].low, "p90", rows[i].high);

		if (figure->limit != NULL) {
			json_object_set_new(entry, "limit", json_string(figure->limit));
			json_object_set_new(entry, "ratio", json_real(rows[i].ratio));
		}
		json_array_append_new(list, entry);
	}
	top = json_pack("{s:s, s:i, s:s, s:i, s:s, s:o}", "suite", suite->name, "samples", (int)n_samples, "cpu", cpu,
			"cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "kernel", system.release, "figures", list);
	json_dumpf(top, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(top);
}

static int
run(const struct bench_suite *suite, size_t n_samples, int json)
{
	struct row rows[MAX_FIGURES];
	struct utsname system;
	char cpu[128];

	if (suite->n_figures > MAX_FIGURES)
		bench_die("%s: %zu figures, room for %d", suite->name, suite->n_figures, MAX_FIGURES);
	measure(suite, n_samples, rows);
	if (json) {
		print_json(suite, rows, n_samples);
		return 0;
	}
	uname(&system);
	cpu_name(cpu, sizeof(cpu));
	printf("%s: %s\n%s, %ld cores, Linux %s, %zu samples of each in turn\n", suite->name, suite->what, cpu,
	       sysconf(_SC_NPROCESSORS_ONLN), system.release, n_samples);
	print_text(suite, rows);
	return 0;
}

static int
list(void)
{
	for (size_t i = 0; i < N_SUITES; i++) {
		printf("%-10s %s\n", suites[i]->name, suites[i]->what);
		for (size_t j = 0; j < suites[i]->n_figures; j++)
			printf("    %-22s %s\n", suites[i]->figures[j].name, suites[i]->figures[j].unit);
	}
	return 0;
}

static int
usage(FILE *to, int code)
{
	fprintf(to, "usage: paged-bench list\n"
		    "       paged-bench run [--json] [--samples N] SUITE\n");
	return code;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' },
						 { "samples", required_argument, NULL, 'n' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	size_t n_samples = 31;
	int json = 0, option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 'j':
			json = 1;
			break;
		case 'n':
			n_samples = strtoul(optarg, NULL, 10);
			if (n_samples < 1 || n_samples > MAX_SAMPLES)
				bench_die("--samples %s: 1 to %d", optarg, MAX_SAMPLES);
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
			return run(suites[i], n_samples, json);
	bench_die("no suite %s; paged-bench list shows them", argv[optind + 1]);
}
