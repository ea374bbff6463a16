/* SPDX-License-Identifier: Apache-2.0 */
/**
 * target.h - what the project asks of a figure, and whether it is so
 *
 * A target is written for people: ">= 0.85" of a ratio, "<= 100 ns" of the figure itself,
 * and with another number for machines that have AMX, ">= 0.65 (AMX 0.40)".
 */
#ifndef PAGED_BENCH_TARGET_H
#define PAGED_BENCH_TARGET_H

enum target_verdict { TARGET_NONE, TARGET_MET, TARGET_MISSED };

/**
 * target_judge - whether what was measured is as it should be; target NULL or "": nothing is asked
 *
 * @param[in] value  the figure itself, in the target's unit
 * @param[in] ratio  to its limit, for a target without a unit
 */
enum target_verdict target_judge(const char *target, double value, double ratio);

/** target_verdict_name - "met", "missed"; "" for none */
const char *target_verdict_name(enum target_verdict verdict);

#endif
