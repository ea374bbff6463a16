/* SPDX-License-Identifier: Apache-2.0 */
/* histogram.h - adds to a struct paged_histogram */
#ifndef PAGED_DAEMON_HISTOGRAM_H
#define PAGED_DAEMON_HISTOGRAM_H

#include "common/paged_reports.h"

/** histogram_add - count a duration */
static inline void
histogram_add(struct paged_histogram *histogram, uint64_t ns)
{
	uint64_t units = ns > PAGED_BUCKET_NS(0) ? (ns - 1) / PAGED_BUCKET_NS(0) : 0;
	unsigned int i = units > 0 ? 64 - (unsigned int)__builtin_clzll(units) : 0;

	histogram->counts[i < PAGED_HISTOGRAM_BUCKETS ? i : PAGED_HISTOGRAM_BUCKETS - 1]++;
	histogram->sum_ns += ns;
}

#endif
