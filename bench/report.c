/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of a run as a table or as JSON. */
#include "bench/report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/machine.h"
#include "bench/suite.h"
#include "kernels/kernels.h"

#define WITH_AMX "(AMX "
/* Precedes microseconds that a target adds to its ratio. */
#define AND_MORE " and "

const char *
bench_reference_name(enum bench_reference reference)
{
	static const char *const names[BENCH_N_REFERENCES] = { "limit", "contiguous", "torch", "vllm" };

	return names[reference];
}

/* A bound without a unit applies to the ratio; "<= 1.03 and 3 us" allows 1.03 times the limit plus 3 us. */
static bool
target_met(const char *target, double value, double ratio)
{
	const char *tiles, *more;
	double goal;
	char *end;

	if (strncmp(target, ">= ", 3) != 0 && strncmp(target, "<= ", 3) != 0)
		bench_die("target %s is no bound", target);
	goal = strtod(target + 3, &end);
	tiles = strstr(end, WITH_AMX);
	if (tiles != NULL && kernel_isa_supported(KERNEL_AMX))
		goal = strtod(tiles + strlen(WITH_AMX), NULL);
	more = strstr(end, AND_MORE);
	if (more != NULL)
		goal += strtod(more + strlen(AND_MORE), NULL) * ratio / value;
	if (end[0] == 0 || tiles != NULL || more != NULL)
		value = ratio;
	return target[0] == '>' ? value >= goal : value <= goal;
}

/* Text */

/* Cases with bytes or flops have samples in microseconds. */
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
	if (target != NULL)
		printf(" (target %s: %s)", target, target_met(target, value, ratio) ? "met" : "missed");
}

/* If the other case's name begins with this case's name, print only the rest. */
static const char *
case_short_name(const char *name, const char *to)
{
	size_t n = strlen(name);

	if (strncmp(name, to, n) != 0 || (to[n] != ':' && to[n] != ','))
		return to;
	return to + n + strspn(to + n, ":, ");
}

static void
print_result(const struct bench_result *result)
{
	static const char *const ratio_kinds[] = { "of", "x", "times faster than" };
	const struct bench_case *bench_case = &result->bench_case;
	const char *separator = "";

	if (bench_case->skipped != NULL) {
		printf("%-46s skipped: %s\n", bench_case->name, bench_case->skipped);
		return;
	}
	printf("%-46s %10.2f %10.2f - %10.2f %-8s", bench_case->name, result->value.median, result->value.low,
	       result->value.high, bench_case->unit);
	print_rate(bench_case->bytes / result->value.median, "B/s");
	print_rate(bench_case->flops / result->value.median, "FLOP/s");
	if (bench_case->limit != NULL)
		printf(" %.2f x %s", result->limit.median, bench_case->limit);
	for (size_t i = 0; i < BENCH_MAX_RELATIONS; i++) {
		const struct bench_ratio *ratio = &result->ratios[i];
		const struct bench_relation *relation = &bench_case->relations[i];

		if (ratio->median == 0)
			continue;
		printf("%s %.2f (fastest %.2f) %s %s", separator, ratio->median, ratio->fastest,
		       ratio_kinds[relation->ratio_kind], case_short_name(bench_case->name, relation->other));
		print_target(relation->target, ratio->median, ratio->median);
		separator = ",";
	}
	print_target(bench_case->target, result->value.median, result->limit.median);
	if (bench_case->method != NULL)
		printf(" by %s", bench_case->method);
	putchar('\n');
}

void
bench_print(const struct bench_report *report)
{
	struct machine machine;

	machine_describe(&machine);
	printf("%s: %s\n", report->suite->name, report->suite->description);
	printf("%s, %ld cores, %s\n%s of memory, Linux %s, %s\n", machine.cpu, machine.n_cores, machine.caches,
	       machine.memory, machine.kernel, machine.flags[0] != 0 ? machine.flags : "no vector extensions");
	if (report->machine[0] != 0)
		printf("%s\n", report->machine);
	printf("at most %zu interleaved samples of each, ratios to %s; other processes used %.0f %% of the cores\n",
	       report->options->n_samples, bench_reference_name(report->options->reference), 100 * report->other_load);
	printf("%-46s %10s %23s %-8s %s\n", "CASE", "MEDIAN", "10TH - 90TH", "UNIT", "RATIO");
	for (size_t i = 0; i < report->n_results; i++)
		print_result(&report->results[i]);
	fflush(stdout);
}

/* JSON; members that are NULL or 0 are omitted. */

static void
json_set_number(json_t *entry, const char *key, double value)
{
	if (value > 0)
		json_object_set_new(entry, key, json_real(value));
}

static void
json_set_target(json_t *entry, const char *target, double value, double ratio)
{
	if (target == NULL)
		return;
	json_object_set_new(entry, "target", json_string(target));
	json_object_set_new(entry, "met", json_boolean(target_met(target, value, ratio)));
}

static json_t *
ratios_json(const struct bench_result *result)
{
	static const char *const ratio_kinds[] = { "fraction", "slowdown", "speedup" };
	json_t *list = json_array();

	for (size_t i = 0; i < BENCH_MAX_RELATIONS; i++) {
		const struct bench_ratio *ratio = &result->ratios[i];
		const struct bench_relation *relation = &result->bench_case.relations[i];
		json_t *entry;

		if (ratio->median == 0)
			continue;
		entry = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "reference", relation->other, "kind",
				  ratio_kinds[relation->ratio_kind], "median", ratio->median, "p10", ratio->low, "p90",
				  ratio->high, "fastest", ratio->fastest);
		json_set_target(entry, relation->target, ratio->median, ratio->median);
		json_array_append_new(list, entry);
	}
	return list;
}

static json_t *
result_json(const struct bench_result *result)
{
	const struct bench_case *bench_case = &result->bench_case;
	json_t *entry, *ratios = ratios_json(result);

	entry = json_pack("{s:s, s:s, s:s*, s:s*}", "name", bench_case->name, "unit", bench_case->unit, "skipped",
			  bench_case->skipped, "method", bench_case->method);
	json_set_number(entry, "median", result->value.median);
	json_set_number(entry, "p10", result->value.low);
	json_set_number(entry, "p90", result->value.high);
	json_set_number(entry, "samples", (double)result->n_samples);
	if (bench_case->skipped == NULL) {
		json_set_number(entry, "bytes", bench_case->bytes);
		json_set_number(entry, "flops", bench_case->flops);
		json_set_target(entry, bench_case->target, result->value.median, result->limit.median);
	}
	if (result->limit.median > 0) {
		json_object_set_new(entry, "limit", json_string(bench_case->limit));
		json_set_number(entry, "ratio", result->limit.median);
	}
	if (json_array_size(ratios) > 0)
		json_object_set(entry, "ratios", ratios);
	json_decref(ratios);
	return entry;
}

/* What does not depend on the results. */
static json_t *
header_json(const struct bench_report *report)
{
	struct machine machine;

	machine_describe(&machine);
	return json_pack("{s:s, s:s, s:i, s:s, s:i, s:s, s:s, s:s, s:s, s:s*}", "suite", report->suite->name,
			 "reference", bench_reference_name(report->options->reference), "samples",
			 (int)report->options->n_samples, "cpu", machine.cpu, "cores", (int)machine.n_cores, "caches",
			 machine.caches, "memory", machine.memory, "flags", machine.flags, "kernel", machine.kernel,
			 "machine", report->machine[0] != 0 ? report->machine : NULL);
}

static json_t *
run_json(const struct bench_report *report)
{
	json_t *run = header_json(report), *list = json_array();

	for (size_t i = 0; i < report->n_results; i++)
		json_array_append_new(list, result_json(&report->results[i]));
	json_object_set_new(run, "other_load", json_real(report->other_load));
	json_object_set_new(run, "cases", list);
	return run;
}

static void
line_print(json_t *line)
{
	json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	putchar('\n');
	fflush(stdout);
	json_decref(line);
}

void
bench_print_lines(struct bench_report *report)
{
	if (report->n_printed == 0 && report->n_results > 0)
		line_print(header_json(report));
	for (; report->n_printed < report->n_results; report->n_printed++) {
		json_t *line = result_json(&report->results[report->n_printed]);

		json_object_set_new(line, "suite", json_string(report->suite->name));
		line_print(line);
	}
}

void
bench_print_json(struct bench_report *const *reports, size_t n)
{
	json_t *runs = json_array(), *top;

	for (size_t i = 0; i < n; i++)
		json_array_append_new(runs, run_json(reports[i]));
	top = n == 1 ? json_incref(json_array_get(runs, 0)) : json_pack("{s:O}", "runs", runs);
	json_dumpf(top, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(top);
	json_decref(runs);
}
