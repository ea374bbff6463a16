/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/target.h"

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

void
report_relate(struct bench_result *result, const struct bench_relation *relation, const double *samples,
	      const double *other, size_t n)
{
	static double sorted[BENCH_MAX_SAMPLES];
	struct bench_ratio *ratio = &result->ratios[result->n_ratios++];

	double own = samples[0], others = other[0];

	for (size_t s = 0; s < n; s++) {
		sorted[s] = relation->sense == BENCH_TIMES ? samples[s] / other[s] : other[s] / samples[s];
		own = samples[s] < own ? samples[s] : own;
		others = other[s] < others ? other[s] : others;
	}
	qsort(sorted, n, sizeof(*sorted), compare_doubles);
	*ratio = (struct bench_ratio){ .sense = relation->sense, .median = sorted[n / 2], .low = sorted[n / 10] };
	ratio->high = sorted[n - 1 - n / 10];
	ratio->fastest = relation->sense == BENCH_TIMES ? own / others : others / own;
	snprintf(ratio->to, sizeof(ratio->to), "%s", relation->to);
	snprintf(ratio->target, sizeof(ratio->target), "%s", relation->target != NULL ? relation->target : "");
}

/* Text */

/* A sample is in microseconds where its bytes or operations are given. */
static void
print_rate(double a_us, const char *unit)
{
	if (a_us >= 1e6)
		printf(" %.2f T%s", a_us / 1e6, unit);
	else if (a_us > 0)
		printf(" %.1f G%s", a_us / 1e3, unit);
}

static void
print_target(const char *target, double value, double ratio)
{
	enum target_verdict verdict = target_judge(target, value, ratio);

	if (verdict != TARGET_NONE)
		printf(" (target %s: %s)", target, target_verdict_name(verdict));
}

/* What is named after the figure that it stands beside is told without its name. */
static const char *
told(const char *name, const char *to)
{
	size_t n = strlen(name);

	if (strncmp(name, to, n) != 0 || (to[n] != ':' && to[n] != ','))
		return to;
	return to + n + strspn(to + n, ":, ");
}

static void
print_text_row(const struct bench_result *row)
{
	if (row->skipped[0] != 0) {
		printf("%-46s skipped: %s\n", row->name, row->skipped);
		return;
	}
	printf("%-46s %10.2f %10.2f - %10.2f %-8s", row->name, row->median, row->low, row->high, row->unit);
	print_rate(row->bytes / row->median, "B/s");
	print_rate(row->flops / row->median, "FLOP/s");
	if (row->limit[0] != 0)
		printf(" %.2f x %s", row->ratio, row->limit);
	for (size_t i = 0; i < row->n_ratios; i++) {
		const struct bench_ratio *ratio = &row->ratios[i];
		static const char *const senses[] = { "of", "x", "times faster than" };

		printf("%s %.2f (fastest %.2f) %s %s", i > 0 ? "," : "", ratio->median, ratio->fastest,
		       senses[ratio->sense], told(row->name, ratio->to));
		print_target(ratio->target, ratio->median, ratio->median);
	}
	print_target(row->target, row->median, row->ratio);
	if (row->how[0] != 0)
		printf(" by %s", row->how);
	putchar('\n');
}

void
report_print(const struct bench_report *report)
{
	struct machine machine;

	machine_describe(&machine);
	printf("%s: %s\n", report->suite->name, report->suite->what);
	printf("%s, %ld cores, %s\n%s of memory, Linux %s, %s\n", machine.cpu, machine.n_cores, machine.caches,
	       machine.memory, machine.kernel, machine.flags[0] != 0 ? machine.flags : "no vector extensions");
	if (report->machine[0] != 0)
		printf("%s\n", report->machine);
	printf("at most %zu samples of each in turn, ratios to %s; others had %.0f %% of the cores meanwhile\n",
	       report->n_samples, bench_against_name(report->against), 100 * report->others);
	printf("%-46s %10s %23s %-8s %s\n", "FIGURE", "MEDIAN", "10TH - 90TH", "UNIT", "RATIO");
	for (size_t i = 0; i < report->n_results; i++)
		print_text_row(&report->results[i]);
	fflush(stdout);
}

/* JSON */

static void
target_set(json_t *entry, const char *target, double value, double ratio)
{
	enum target_verdict verdict = target_judge(target, value, ratio);

	if (verdict == TARGET_NONE)
		return;
	json_object_set_new(entry, "target", json_string(target));
	json_object_set_new(entry, "met", json_boolean(verdict == TARGET_MET));
}

static json_t *
ratios_json(const struct bench_result *row)
{
	static const char *const senses[] = { "share", "times", "faster" };
	json_t *list = json_array();

	for (size_t i = 0; i < row->n_ratios; i++) {
		const struct bench_ratio *ratio = &row->ratios[i];
		json_t *entry = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "to", ratio->to, "sense",
					  senses[ratio->sense], "median", ratio->median, "p10", ratio->low, "p90",
					  ratio->high, "fastest", ratio->fastest);

		target_set(entry, ratio->target, ratio->median, ratio->median);
		json_array_append_new(list, entry);
	}
	return list;
}

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
	target_set(entry, row->target, row->median, row->ratio);
	if (row->how[0] != 0)
		json_object_set_new(entry, "how", json_string(row->how));
	if (row->n_samples != 0)
		json_object_set_new(entry, "samples", json_integer((json_int_t)row->n_samples));
	if (row->n_ratios != 0)
		json_object_set_new(entry, "ratios", ratios_json(row));
	return entry;
}

static json_t *
run_json(const struct bench_report *report)
{
	json_t *list = json_array(), *top;
	struct machine machine;

	machine_describe(&machine);
	for (size_t i = 0; i < report->n_results; i++)
		json_array_append_new(list, row_json(&report->results[i]));
	top = json_pack("{s:s, s:s, s:i, s:f, s:s, s:i, s:s, s:s, s:s, s:s, s:o}", "suite", report->suite->name,
			"against", bench_against_name(report->against), "samples", (int)report->n_samples, "others",
			report->others, "cpu", machine.cpu, "cores", (int)machine.n_cores, "caches", machine.caches,
			"memory", machine.memory, "flags", machine.flags, "kernel", machine.kernel, "figures", list);
	if (report->machine[0] != 0)
		json_object_set_new(top, "machine", json_string(report->machine));
	return top;
}

void
report_print_json(const struct bench_report *reports, size_t n)
{
	json_t *runs = json_array(), *top;

	for (size_t i = 0; i < n; i++)
		json_array_append_new(runs, run_json(&reports[i]));
	top = n == 1 ? json_incref(json_array_get(runs, 0)) : json_pack("{s:O}", "runs", runs);
	json_dumpf(top, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(top);
	json_decref(runs);
}
