/* SPDX-License-Identifier: Apache-2.0 */
/* This machine's best speed of reading, copying, multiplying: the limits of other suites' cases. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/memory_limits.h"
#include "bench/peak.h"
#include "bench/pinned_threads.h"
#include "bench/processes.h"
#include "bench/random.h"
#include "bench/rounds.h"
#include "bench/suite.h"

#define SPAN_BYTES (64u << 10) /* a page of 16 tokens of 8 heads of 128 in bf16 */
#define LIMIT_S 20

static double
sample_read(const void *read)
{
	limit_read_us(read); /* brings it into the cache, if it fits */
	return limit_read_us(read);
}

static double
sample_copy(const void *copy)
{
	return limit_copy_us(copy);
}

/* Time of a million operations. */
static double
sample_peak(const void *unit)
{
	return 1e3 / peak_gflops(*(const enum kernel_isa *)unit);
}

/* Spans in an order that no prefetcher predicts. */
static void
suite_limits_read_open(struct limit_read *read, const uint8_t *memory, uint32_t n_spans)
{
	const uint8_t **spans = bench_alloc(n_spans, sizeof(*spans));
	uint32_t *order = bench_permutation(n_spans);

	for (uint32_t i = 0; i < n_spans; i++)
		spans[i] = memory + (size_t)order[i] * SPAN_BYTES;
	limit_read_open(read, spans, n_spans, SPAN_BYTES);
	free(order);
	free(spans);
	limit_read_tune(read);
}

static void
suite_limits_copy_open(struct limit_copy *copy, uint8_t *memory, size_t n_chunks)
{
	struct limit_copy_chunk *chunks = bench_alloc(n_chunks, sizeof(*chunks));

	for (size_t i = 0; i < n_chunks; i++)
		chunks[i] = (struct limit_copy_chunk){ memory + i * SPAN_BYTES, memory + (n_chunks + i) * SPAN_BYTES,
						       SPAN_BYTES };
	*copy = (struct limit_copy){ .chunks = chunks, .n_chunks = n_chunks };
	limit_copy_tune(copy);
}

static void
suite_limits_run(struct bench_report *report)
{
	static const enum kernel_isa units[] = { KERNEL_GENERIC, KERNEL_AVX2, KERNEL_AVX512, KERNEL_AVX512_BF16,
						 KERNEL_AMX };
	bool quick = report->options->quick;
	uint32_t n_near = quick ? 4 : 256, n_far = quick ? 8 : 8192;
	double near_bytes = (double)n_near * SPAN_BYTES, far_bytes = (double)n_far * SPAN_BYTES;
	uint8_t *memory = aligned_alloc(4096, (size_t)n_far * SPAN_BYTES);
	struct bench_case cases[KERNEL_N_ISAS + 4] = { 0 };
	struct limit_read near, far;
	struct limit_copy copy;
	struct bench_dealer dealer;

	bench_dealer_open(&dealer, bench_echo_start()); /* before anything is pinned */
	snprintf(report->machine, sizeof(report->machine), "%u pinned threads, streams by %s",
		 pinned_threads_start(report->options->n_threads), limit_isa_name());
	if (memory == NULL)
		bench_die("no memory for %u spans", n_far);
	memset(memory, 1, (size_t)n_far * SPAN_BYTES);
	suite_limits_read_open(&near, memory, n_near);
	suite_limits_read_open(&far, memory, n_far);
	suite_limits_copy_open(&copy, memory, n_far / 2);
	for (size_t i = 0; i < KERNEL_N_ISAS; i++)
		cases[i] = (struct bench_case){ .name = peak_unit_name(units[i]),
						.unit = "us",
						.sample = sample_peak,
						.context = &units[i],
						.skipped = kernel_isa_unsupported_reason(units[i]),
						.flops = 1e6 };
	cases[KERNEL_N_ISAS] = (struct bench_case){ "16 MiB read from the cache", "us", .sample = sample_read,
						    .context = &near, .bytes = near_bytes };
	cases[KERNEL_N_ISAS + 1] =
		(struct bench_case){ "512 MiB read", "us", .sample = sample_read, .context = &far, .bytes = far_bytes };
	cases[KERNEL_N_ISAS + 2] = (struct bench_case){ "256 MiB copied", "us", .sample = sample_copy, .context = &copy,
							.bytes = far_bytes };
	cases[KERNEL_N_ISAS + 3] =
		(struct bench_case){ "ZeroMQ round trip", "us", .sample = bench_dealer_trip_us, .context = &dealer };
	bench_rounds(report, cases, BENCH_N(cases), LIMIT_S);
	pinned_threads_unpin();
	bench_dealer_close(&dealer);
	bench_echo_stop();
	limit_read_close(&near);
	limit_read_close(&far);
	free((void *)copy.chunks);
	free(memory);
}

const struct bench_suite bench_suite_limits = {
	.name = "limits",
	.description = "the machine's best speed of reading, copying and multiplying, and a ZeroMQ round trip",
	.run = suite_limits_run,
};
