/* SPDX-License-Identifier: Apache-2.0 */
/**
 * report.h - prints the results of runs
 */
#ifndef PAGED_BENCH_REPORT_H
#define PAGED_BENCH_REPORT_H

#include "bench/suite.h"

/** bench_reference_name - "limit", "contiguous", "torch" */
const char *bench_reference_name(enum bench_reference reference);

/** bench_print - print a table to read */
void bench_print(const struct bench_report *report);

/**
 * bench_print_lines - print the results that were not printed yet, as lines of JSON
 *
 * The first line of a report describes the run and has no "name".  A line is printed at once, so a run
 * that is killed has printed all cases that it has measured.
 */
void bench_print_lines(struct bench_report *report);

/** bench_print_json - print a JSON document of one run, or of several in "runs" */
void bench_print_json(struct bench_report *const *reports, size_t n);

#endif
