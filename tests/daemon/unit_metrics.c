/* SPDX-License-Identifier: Apache-2.0 */
/* The buckets of histograms, and counts of replies. */
#include <criterion/criterion.h>

#include "daemon/metrics.h"

/* The bucket of a duration by its definition. */
static unsigned int
bucket_of(uint64_t ns)
{
	unsigned int i = 0;

	while (i < PAGED_HISTOGRAM_BUCKETS - 1 && ns > PAGED_BUCKET_NS(i))
		i++;
	return i;
}

static void
expect_bucket(uint64_t ns)
{
	struct paged_histogram histogram = { .sum_ns = 0 }, expected = { .sum_ns = ns };

	histogram_add(&histogram, ns);
	expected.counts[bucket_of(ns)] = 1;
	cr_assert_arr_eq(&histogram, &expected, sizeof(expected), "%llu ns", (unsigned long long)ns);
}

Test(metrics, buckets)
{
	for (unsigned int i = 0; i < 64 - 10; i++) {
		expect_bucket(PAGED_BUCKET_NS(i) - 1);
		expect_bucket(PAGED_BUCKET_NS(i));
		expect_bucket(PAGED_BUCKET_NS(i) + 1);
	}
	expect_bucket(0);
	expect_bucket(1);
	expect_bucket(UINT64_MAX);
}

Test(metrics, replies)
{
	static struct metrics metrics;

	metrics_open(&metrics);
	metrics_name(&metrics, WIRE_RESERVE, "reserve");
	metrics_replied(&metrics, WIRE_RESERVE, PAGED_OK, 1000);
	metrics_replied(&metrics, WIRE_RESERVE, PAGED_ERR_FULL, 3000);
	metrics_replied(&metrics, METRICS_ATTACH, PAGED_ERR_QUOTA, UINT64_MAX / 2);
	cr_assert_str_eq(metrics.requests[WIRE_RESERVE].name, "reserve");
	cr_assert_str_eq(metrics.requests[METRICS_ATTACH].name, "attach");
	cr_assert_str_eq(metrics.requests[METRICS_INVALID].name, "invalid");
	cr_assert_eq(metrics.requests[WIRE_RESERVE].n_replies[PAGED_OK], 1);
	cr_assert_eq(metrics.requests[WIRE_RESERVE].n_replies[PAGED_ERR_FULL], 1);
	cr_assert_eq(metrics.requests[WIRE_RESERVE].latency.counts[0], 1);
	cr_assert_eq(metrics.requests[WIRE_RESERVE].latency.counts[2], 1);
	cr_assert_eq(metrics.requests[WIRE_RESERVE].latency.sum_ns, 4000);
	cr_assert_eq(metrics.requests[METRICS_ATTACH].n_replies[PAGED_ERR_QUOTA], 1);
	cr_assert_eq(metrics.requests[METRICS_ATTACH].latency.counts[PAGED_HISTOGRAM_BUCKETS - 1], 1);
}
