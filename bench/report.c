/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

struct bench_result *
report_add(struct bench_report *report, const char *name, const char *unit)
{
	struct bench_result *result;

	report->results = realloc(report->results, (report->n_results + 1) * sizeof(*report->results));
	if (report->results == NULL)
		bench_die("out of memory");
	result = &report->results[report->n_results++];
	*result = (struct bench_result){ .unit = unit };
	snprintf(result->name, sizeof(result->name), "%s", name);
	return result;
}

void
report_free(struct bench_report *report)
{
	free(report->results);
	report->results = NULL;
	report->n_results = 0;
}

static int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void
report_summarise(struct bench_result *result, const double *samples, const double *limit, size_t n)
{
	static double sorted[BENCH_MAX_SAMPLES];

	if (limit != samples) {
		for (size_t s = 0; s < n; s++)
			sorted[s] = samples[s] / limit[s];
		qsort(sorted, n, sizeof(*sorted), compare_doubles);
		result->ratio = sorted[n / 2];
	}
	memcpy(sorted, samples, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_doubles);
	result->median = sorted[n / 2];
	result->low = sorted[n / 10];
	result->high = sorted[n - 1 - n / 10];
}

/* Machine */

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

/* Text */

static void
print_text_row(const struct bench_result *row)
{
	if (row->skipped[0] != 0) {
		printf("%-34s skipped: %s\n", row->name, row->skipped);
		return;
	}
	printf("%-34s %10.2f %10.2f - %10.2f %-8s", row->name, row->median, row->low, row->high, row->unit);
	/* A sample is in microseconds where these are given. */
	if (row->bytes > 0)
		printf(" %.2f TB/s", row->bytes / row->median / 1e6);
	if (row->flops > 0)
		printf(" %.1f TF/s", row->flops / row->median / 1e6);
	if (row->limit[0] != 0)
		printf(" %.2f x %s", row->ratio, row->limit);
	if (row->target != NULL)
		printf(" (target %s)", row->target);
	putchar('\n');
}

static void
print_text(const struct bench_report *report)
{
	struct utsname system;
	char cpu[128];

	uname(&system);
	cpu_name(cpu, sizeof(cpu));
	printf("%s: %s\n%s, %ld cores, Linux %s, %zu samples of each in turn\n", report->suite->name,
	       report->suite->what, cpu, sysconf(_SC_NPROCESSORS_ONLN), system.release, report->n_samples);
	if (report->machine[0] != 0)
		printf("%s\n", report->machine);
	printf("%-34s %10s %23s %-8s %s\n", "FIGURE", "MEDIAN", "10TH - 90TH", "UNIT", "RATIO");
	for (size_t i = 0; i < report->n_results; i++)
		print_text_row(&report->results[i]);
}

/* JSON */

static json_t *
row_json(const struct bench_result *row)
{
	json_t *entry = json_pack("{s:s, s:s}", "name", row->name, "unit", row->unit);

	if (row->skipped[0] != 0) {
		json_object_set_new(entry, "skipped", json_string(row->skipped));
		return entry;
	}
	json_object_set_new(entry, "median", json_real(row->median));
	json_object_set_new(entry, "p10", json_real(row->low));
	json_object_set_new(entry, "p90", json_real(row->high));
	if (row->bytes > 0)
		json_object_set_new(entry, "bytes", json_real(row->bytes));
	if (row->flops > 0)
		json_object_set_new(entry, "flops", json_real(row->flops));
	if (row->limit[0] != 0) {
		json_object_set_new(entry, "limit", json_string(row->limit));
		json_object_set_new(entry, "ratio", json_real(row->ratio));
	}
	return entry;
}

static void
print_json(const struct bench_report *report)
{
	json_t *list = json_array(), *top;
	struct utsname system;
	char cpu[128];

	uname(&system);
	cpu_name(cpu, sizeof(cpu));
	for (size_t i = 0; i < report->n_results; i++)
		json_array_append_new(list, row_json(&report->results[i]));
	top = json_pack("{s:s, s:i, s:s, s:i, s:s, s:o}", "suite", report->suite->name, "samples",
			(int)report->n_samples, "cpu", cpu, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "kernel",
			system.release, "figures", list);
	if (report->machine[0] != 0)
		json_object_set_new(top, "machine", json_string(report->machine));
	json_dumpf(top, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(top);
}

void
report_print(const struct bench_report *report, bool json)
{
	if (json)
		print_json(report);
	else
		print_text(report);
	fflush(stdout);
}
