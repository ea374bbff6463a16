/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics in Prometheus's format: without a daemon, labels, histograms. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "events/metrics_text.h"

static char *text;

static void
write_text(const struct metrics_snapshot *snapshot)
{
	size_t size;
	FILE *out = open_memstream(&text, &size);

	cr_assert_not_null(out);
	metrics_text_write(out, snapshot);
	fclose(out);
}

static void
expect_lines(const char *lines)
{
	cr_assert_not_null(strstr(text, lines), "%s\nis not in\n%s", lines, text);
}

Test(metrics_text, no_daemon)
{
	static const char expected[] = "# HELP paged_up 1: pagedd answered; 0: it is not there, or does not answer.\n"
				       "# TYPE paged_up gauge\n"
				       "paged_up 0\n";

	write_text(&(struct metrics_snapshot){ .n_pools = 0 });
	cr_assert_str_eq(text, expected);
	free(text);
}

/* Labels escape quotes, backslashes and line ends; buckets are cumulative, in seconds. */
Test(metrics_text, labels_and_histograms)
{
	static struct paged_request_entry requests[] = {
		{ .name = "reserve",
		  .n_replies = { 3, [PAGED_ERR_FULL] = 2, [PAGED_ERR_NO_DAEMON] = 1 },
		  .latency = { .sum_ns = 12000000345, .counts = { 1, 0, 3, [PAGED_HISTOGRAM_BUCKETS - 1] = 2 } } },
		{ .name = "kick" },
	};
	static struct paged_pool_entry pools[] = {
		{ .name = "a\"b\\c",
		  .backend = "cuda",
		  .model = "two\nlines",
		  .dtype = PAGED_BF16,
		  .n_free = 4294967295u },
		{ .name = "second", .n_taken = UINT64_MAX, .n_cached = 7 },
	};
	const struct metrics_snapshot snapshot = {
		.up = true,
		.daemon = { .version = "1.2", .stopping = 1 },
		.metrics = { .uptime_ms = 61007 },
		.requests = requests,
		.n_requests = 2,
		.pools = pools,
		.n_pools = 2,
	};

	write_text(&snapshot);
	expect_lines("\npaged_up 1\n");
	expect_lines("\npaged_build_info{version=\"1.2\"} 1\n");
	expect_lines("\npaged_uptime_seconds 61.007\n");
	expect_lines("\npaged_stopping 1\n");
	expect_lines("\npaged_requests_total{request=\"reserve\",status=\"ok\"} 3\n"
		     "paged_requests_total{request=\"reserve\",status=\"full\"} 2\n"
		     "paged_requests_total{request=\"reserve\",status=\"no_daemon\"} 1\n"
		     "paged_requests_total{request=\"kick\",status=\"ok\"} 0\n");
	expect_lines("\n# TYPE paged_request_duration_seconds histogram\n"
		     "paged_request_duration_seconds_bucket{request=\"reserve\",le=\"1.024e-06\"} 1\n"
		     "paged_request_duration_seconds_bucket{request=\"reserve\",le=\"2.048e-06\"} 1\n"
		     "paged_request_duration_seconds_bucket{request=\"reserve\",le=\"4.096e-06\"} 4\n");
	expect_lines("\npaged_request_duration_seconds_bucket{request=\"reserve\",le=\"4.294967296\"} 4\n"
		     "paged_request_duration_seconds_bucket{request=\"reserve\",le=\"+Inf\"} 6\n"
		     "paged_request_duration_seconds_sum{request=\"reserve\"} 12.000000345\n"
		     "paged_request_duration_seconds_count{request=\"reserve\"} 6\n"
		     "# HELP ");
	expect_lines("\npaged_loop_turn_duration_seconds_bucket{le=\"1.024e-06\"} 0\n");
	expect_lines("\npaged_loop_turn_duration_seconds_sum 0.000000000\npaged_loop_turn_duration_seconds_count 0\n");
	expect_lines("\npaged_pool_info{pool=\"a\\\"b\\\\c\",backend=\"cuda\",device=\"\",dtype=\"bf16\",model="
		     "\"two\\nlines\"} 1\n");
	expect_lines("\npaged_pool_pages{pool=\"a\\\"b\\\\c\",state=\"free\"} 4294967295\n");
	expect_lines("\npaged_pool_pages{pool=\"second\",state=\"cached\"} 7\n");
	expect_lines("\npaged_pool_pages_taken_total{pool=\"a\\\"b\\\\c\"} 0\n"
		     "paged_pool_pages_taken_total{pool=\"second\"} 18446744073709551615\n");
	free(text);
}
