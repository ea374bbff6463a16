/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/compare_caches.h"

#include <stdio.h>
#include <stdlib.h>

#include "examples/llama/contiguous.h"
#include "examples/llama/engine.h"
#include "examples/llama/xalloc.h"

enum side { SIDE_POOL, SIDE_PRIVATE, N_SIDES };

/* Measurements of one side (pool or private cache) in each round. */
struct samples {
	double rate[OPTIONS_MAX_ROUNDS];                                                /* tokens written a second */
	double attention[OPTIONS_MAX_ROUNDS];                                           /* seconds */
	double products_share[OPTIONS_MAX_ROUNDS], attention_share[OPTIONS_MAX_ROUNDS]; /* percent of all time */
};

static int
compare_samples(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the values. */
static double
median(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), compare_samples);
	return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Answer all prompts, up to max_running at a time. */
static struct engine_stats
compare_answer(struct pipeline *pipeline, const struct options *options, struct request *requests,
	       struct attention *attention, struct samples *samples, uint32_t round)
{
	const struct forward_times before = pipeline->forward->times, *after = &pipeline->forward->times;
	struct engine_params params = { .max_running = options->max_running, .end_token = UINT32_MAX };
	struct engine_stats stats;

	/* Remove the last round's answers. */
	for (size_t i = 0; i < options->n_prompts; i++)
		requests[i].tokens.n = requests[i].n_prompt;
	stats = engine_answer(pipeline->forward, attention, &params, requests, options->n_prompts);
	samples->rate[round] = (double)stats.n_tokens / stats.seconds;
	samples->attention[round] = after->attention - before.attention;
	samples->attention_share[round] = 100 * samples->attention[round] / stats.seconds;
	samples->products_share[round] = 100 * (after->products - before.products) / stats.seconds;
	return stats;
}

static void
compare_print(const struct options *options, const struct engine_stats *stats, struct samples samples[N_SIDES])
{
	static const char *const names[N_SIDES] = { "the pool", "a private cache" };
	uint32_t n = options->compare_rounds;
	double rates[OPTIONS_MAX_ROUNDS], times[OPTIONS_MAX_ROUNDS];

	/* Compute ratios before medians, because medians sort the arrays. */
	for (uint32_t i = 0; i < n; i++) {
		rates[i] = samples[SIDE_POOL].rate[i] / samples[SIDE_PRIVATE].rate[i];
		times[i] = samples[SIDE_POOL].attention[i] / samples[SIDE_PRIVATE].attention[i];
	}
	printf("\nwith and without the pool, medians of %u alternating rounds: %llu tokens read, %llu written, %u "
	       "thread%s\n",
	       n, (unsigned long long)stats->n_prompt_tokens, (unsigned long long)stats->n_tokens, options->n_threads,
	       options->n_threads == 1 ? "" : "s");
	printf("%-16s  %8s  %8s  %9s  %4s\n", "", "tokens/s", "products", "attention", "rest");
	for (unsigned int side = 0; side < N_SIDES; side++) {
		double products = median(samples[side].products_share, n);
		double attention = median(samples[side].attention_share, n);

		printf("%-16s  %8.1f  %6.1f %%  %7.1f %%  %2.0f %%\n", names[side], median(samples[side].rate, n),
		       products, attention, 100 - products - attention);
	}
	printf("the pool over the private cache: tokens/s %.2f, time of cache and attention %.2f\n", median(rates, n),
	       median(times, n));
}

void
compare_caches(struct pipeline *pipeline, const struct options *options)
{
	struct attention *sides[N_SIDES] = { [SIDE_POOL] = pipeline->attention,
					     [SIDE_PRIVATE] = contiguous_create(pipeline->model, PAGED_F32,
										&pipeline->forward->matmul) };
	struct request *requests = xcalloc(options->n_prompts, sizeof(*requests));
	struct samples samples[N_SIDES];
	struct engine_stats stats;

	for (size_t i = 0; i < options->n_prompts; i++) {
		requests[i].max_tokens = options->max_tokens;
		pipeline_encode(pipeline, options->prompts[i], true, &requests[i].tokens);
		requests[i].n_prompt = requests[i].tokens.n;
	}
	/* Alternate which side is measured first in a round. */
	for (uint32_t i = 0; i < N_SIDES * options->compare_rounds; i++) {
		uint32_t round = i / N_SIDES, side = (round + i) % N_SIDES;

		stats = compare_answer(pipeline, options, requests, sides[side], &samples[side], round);
	}
	compare_print(options, &stats, samples);
	for (size_t i = 0; i < options->n_prompts; i++)
		free(requests[i].tokens.ids);
	free(requests);
	contiguous_destroy(sides[SIDE_PRIVATE]);
}
