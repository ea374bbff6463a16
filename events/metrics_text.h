/* SPDX-License-Identifier: Apache-2.0 */
/**
 * metrics_text.h - a snapshot in Prometheus's text format, version 0.0.4
 *
 * Names and units follow Prometheus's rules: base units (seconds, bytes), "_total" for counters, labels for what is
 * summed or compared.
 */
#ifndef PAGED_EVENTS_METRICS_TEXT_H
#define PAGED_EVENTS_METRICS_TEXT_H

#include <stdio.h>

#include "events/metrics_snapshot.h"

#define METRICS_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/** metrics_text_write - write the text; a snapshot of no daemon has paged_up alone */
void metrics_text_write(FILE *out, const struct metrics_snapshot *snapshot);

#endif
