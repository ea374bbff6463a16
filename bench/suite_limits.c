/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do at best: what other suites' figures are held to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/limits.h"
#include "bench/rounds.h"
#include "bench/threads.h"

#define SPAN_BYTES (64u << 10) /* a page of 16 tokens of 8 heads of 128 in bf16 */
#define N_TRIPS 50
#define LIMIT_S 20

static struct limit_read cached, far;
static struct limit_copy copy;
static struct limit_copy_piece *pieces;
static struct bench_dealer dealer;

static double
sample_read(void *read)
{
	limit_read_us(read); /* brings it into the cache, if it fits */
	return limit_read_us(read);
}

static double
sample_copy(void *context)
{
	return limit_copy_us(context);
}

/* Of a million operations. */
static double
sample_peak(void *unit)
{
	return 1e3 / limit_peak(*(const enum limit_unit *)unit);
}

static double
sample_round_trip(void *to)
{
	uint64_t start = bench_now_ns();

	for (int i = 0; i < N_TRIPS; i++)
		bench_dealer_trip(to);
	return (double)(bench_now_ns() - start) / 1e3 / N_TRIPS;
}

static uint8_t *
memory_open(size_t size)
{
	uint8_t *memory = aligned_alloc(4096, size);

	if (memory == NULL)
		bench_die("no memory for %zu bytes", size);
	memset(memory, 1, size);
	return memory;
}

/* Spans in an order that no prefetcher knows. */
static void
read_open(struct limit_read *read, const uint8_t *memory, size_t n_spans)
{
	const uint8_t **spans = calloc(n_spans, sizeof(*spans));
	uint64_t state = 1;

	if (spans == NULL)
		bench_die("no memory for %zu spans", n_spans);
	for (size_t i = 0; i < n_spans; i++) {
		size_t j = (state = state * 6364136223846793005u + 1442695040888963407u) % (i + 1);

		spans[i] = spans[j];
		spans[j] = memory + i * SPAN_BYTES;
	}
	limit_read_open(read, spans, n_spans, SPAN_BYTES);
	free(spans);
	limit_read_tune(read);
}

static void
copy_open(uint8_t *memory, size_t n_pieces)
{
	pieces = calloc(n_pieces, sizeof(*pieces));
	if (pieces == NULL)
		bench_die("no memory for %zu pieces", n_pieces);
	for (size_t i = 0; i < n_pieces; i++)
		pieces[i] = (struct limit_copy_piece){ memory + i * SPAN_BYTES, memory + (n_pieces + i) * SPAN_BYTES,
						       SPAN_BYTES };
	copy = (struct limit_copy){ .pieces = pieces, .n_pieces = n_pieces };
	limit_copy_tune(&copy);
}

static size_t
list_peaks(struct rounds_figure *figures)
{
	static enum limit_unit units[LIMIT_N_UNITS];

	for (size_t i = 0; i < LIMIT_N_UNITS; i++) {
		units[i] = (enum limit_unit)i;
		figures[i] = (struct rounds_figure){ .name = limit_unit_name(units[i]),
						     .unit = "us",
						     .sample = sample_peak,
						     .context = &units[i],
						     .skipped = limit_unit_missing(units[i]),
						     .flops = 1e6 };
	}
	return LIMIT_N_UNITS;
}

static void
run(const struct bench_options *options, struct bench_report *report)
{
	size_t n_near = options->quick ? 4 : 256, n_far = options->quick ? 8 : 8192, n;
	struct rounds_figure figures[ROUNDS_MAX_FIGURES];
	uint8_t *memory = memory_open(n_far * SPAN_BYTES);

	bench_dealer_open(&dealer, bench_echo_start()); /* before anything is pinned */
	snprintf(report->machine, sizeof(report->machine), "%u pinned threads, streams by %s",
		 threads_start(options->n_threads), limit_isa_name());
	read_open(&cached, memory, n_near);
	read_open(&far, memory, n_far);
	copy_open(memory, n_far / 2);
	n = list_peaks(figures);
	figures[n++] = (struct rounds_figure){ .name = "16 MiB read again and again",
					       .unit = "us",
					       .sample = sample_read,
					       .context = &cached,
					       .bytes = (double)n_near * SPAN_BYTES };
	figures[n++] = (struct rounds_figure){ .name = "512 MiB read",
					       .unit = "us",
					       .sample = sample_read,
					       .context = &far,
					       .bytes = (double)n_far * SPAN_BYTES };
	figures[n++] = (struct rounds_figure){ .name = "256 MiB copied",
					       .unit = "us",
					       .sample = sample_copy,
					       .context = &copy,
					       .bytes = (double)n_far * SPAN_BYTES };
	figures[n++] = (struct rounds_figure){
		.name = "ZeroMQ round trip", .unit = "us", .sample = sample_round_trip, .context = &dealer
	};
	rounds_measure(figures, n, options, LIMIT_S, report);
	threads_release();
	bench_dealer_close(&dealer);
	bench_echo_stop();
	limit_read_close(&cached);
	limit_read_close(&far);
	free(pieces);
	free(memory);
}

const struct bench_suite bench_suite_limits = {
	.name = "limits",
	.what = "what this machine can do at best: read, copy, multiply, send a message there and back",
	.run = run,
};
