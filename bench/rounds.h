/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rounds.h - interleaved sampling of a group of cases
 */
#ifndef PAGED_BENCH_ROUNDS_H
#define PAGED_BENCH_ROUNDS_H

#include "bench/suite.h"

/**
 * bench_rounds - interleaved rounds of a group of cases; results are added to the report
 *
 * At most options->n_samples rounds, as many as `limit_s` allows, and at least 5.
 * Omits relations of another kind than options->reference, and ratios to cases
 * that are not in the group.
 */
void bench_rounds(struct bench_report *report, const struct bench_case *cases, size_t n, double limit_s);

/** bench_skip - add a result without a value: the reason why the case was not measured */
void bench_skip(struct bench_report *report, const char *name, const char *unit, const char *why);

/** bench_progress - show on a terminal that the case is measured, i of n; name NULL: clear the line */
void bench_progress(const struct bench_report *report, const char *name, size_t i, size_t n);

#endif
