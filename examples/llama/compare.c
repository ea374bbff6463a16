/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/compare.h"

#include <stdio.h>
#include <stdlib.h>

#include "examples/llama/contiguous.h"
#include "examples/llama/engine.h"

/* One side in one round. */
struct sample {
	uint64_t n_read, n_written; /* tokens */
	double seconds;
	struct forward_times times;
};

enum side { SIDE_POOL, SIDE_PRIVATE, N_SIDES };

struct comparison {
	struct setup *setup;
	const struct options *options;
	struct token_list *prompts;
	struct sample *samples[N_SIDES]; /* [rounds] */
};

static int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double
median(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), compare_doubles);
	return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double
rate(const struct sample *sample)
{
	return (double)sample->n_written / sample->seconds;
}

static double
products(const struct sample *sample)
{
	return 100 * sample->times.products / sample->seconds;
}

static double
attending(const struct sample *sample)
{
	return 100 * sample->times.attention / sample->seconds;
}

static double
median_of(const struct sample *samples, uint32_t n, double (*what)(const struct sample *sample))
{
	double values[OPTIONS_MAX_ROUNDS];

	for (uint32_t i = 0; i < n; i++)
		values[i] = what(&samples[i]);
	return median(values, n);
}

/* All prompts to their ends, together as far as max_running goes. */
static bool
answer(const struct comparison *comparison, struct attention *attention, struct sample *sample, struct error *error)
{
	const struct options *options = comparison->options;
	struct forward *forward = comparison->setup->forward;
	const struct forward_times before = *forward_times(forward), *after = forward_times(forward);
	struct engine_params params = { .max_running = options->max_running,
					.max_tokens = SETUP_STEP_TOKENS,
					.end_token = UINT32_MAX, /* none */
					.max_length = attention->max_length };
	struct request *requests = calloc(options->n_prompts, sizeof(*requests));
	struct engine *engine = NULL;
	bool ok;

	ok = requests != NULL || error_set(error, "no memory for %zu prompts", options->n_prompts);
	ok = ok && engine_create(comparison->setup->model, forward, attention, &params, &engine, error);
	for (size_t i = 0; i < options->n_prompts && ok; i++) {
		const struct token_list *prompt = &comparison->prompts[i];

		requests[i] = (struct request){ .max_tokens = options->max_tokens, .n_prompt = prompt->n };
		for (size_t t = 0; t < prompt->n && ok; t++)
			ok = token_list_add(&requests[i].tokens, prompt->ids[t], error);
		ok = ok && engine_add(engine, &requests[i], error);
	}
	ok = ok && engine_run(engine, error);
	if (ok)
		*sample = (struct sample){ .n_read = engine_stats(engine)->n_prompt_tokens,
					   .n_written = engine_stats(engine)->n_tokens,
					   .seconds = engine_stats(engine)->seconds,
					   .times = { .products = after->products - before.products,
						      .attention = after->attention - before.attention } };
	engine_destroy(engine);
	for (size_t i = 0; i < options->n_prompts && requests != NULL; i++)
		free(requests[i].tokens.ids);
	free(requests);
	return ok;
}

static void
print(const struct comparison *comparison)
{
	static const char *const names[N_SIDES] = { "the pool", "a private cache" };
	const struct options *options = comparison->options;
	const struct sample *first = &comparison->samples[SIDE_POOL][0];
	uint32_t n = options->compare;
	double all[OPTIONS_MAX_ROUNDS], attention[OPTIONS_MAX_ROUNDS];

	printf("\nwith and without the pool, medians of %u rounds in turn: %llu tokens read, %llu written, %u "
	       "thread%s\n",
	       n, (unsigned long long)first->n_read, (unsigned long long)first->n_written, options->n_threads,
	       options->n_threads == 1 ? "" : "s");
	printf("%-16s  %8s  %8s  %9s  %4s\n", "", "tokens/s", "products", "attention", "rest");
	for (unsigned int side = 0; side < N_SIDES; side++) {
		double p = median_of(comparison->samples[side], n, products);
		double a = median_of(comparison->samples[side], n, attending);

		printf("%-16s  %8.1f  %6.1f %%  %7.1f %%  %2.0f %%\n", names[side],
		       median_of(comparison->samples[side], n, rate), p, a, 100 - p - a);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct sample *pool = &comparison->samples[SIDE_POOL][i];
		const struct sample *private = &comparison->samples[SIDE_PRIVATE][i];

		all[i] = rate(pool) / rate(private);
		attention[i] = pool->times.attention / private->times.attention;
	}
	printf("the pool over the private cache: tokens/s %.2f, time of cache and attention %.2f\n", median(all, n),
	       median(attention, n));
}

static bool
prepare(struct comparison *comparison, struct error *error)
{
	const struct options *options = comparison->options;
	bool ok = true;

	comparison->prompts = calloc(options->n_prompts, sizeof(*comparison->prompts));
	for (unsigned int side = 0; side < N_SIDES; side++) {
		comparison->samples[side] = calloc(options->compare, sizeof(struct sample));
		ok = ok && comparison->samples[side] != NULL;
	}
	if (comparison->prompts == NULL || !ok)
		return error_set(error, "no memory for %u rounds of %zu prompts", options->compare, options->n_prompts);
	for (size_t i = 0; i < options->n_prompts && ok; i++)
		ok = setup_encode(comparison->setup, options->prompts[i], true, &comparison->prompts[i], error);
	return ok;
}

static void
release(struct comparison *comparison)
{
	for (size_t i = 0; comparison->prompts != NULL && i < comparison->options->n_prompts; i++)
		free(comparison->prompts[i].ids);
	free(comparison->prompts);
	for (unsigned int side = 0; side < N_SIDES; side++)
		free(comparison->samples[side]);
}

bool
compare_run(struct setup *setup, const struct options *options, struct error *error)
{
	struct comparison comparison = { .setup = setup, .options = options };
	struct attention *sides[N_SIDES] = { [SIDE_POOL] = setup->attention };
	bool ok;

	ok = prepare(&comparison, error) &&
	     contiguous_create_fast(setup->model, setup->forward, &sides[SIDE_PRIVATE], error);
	/* Who begins takes turns, too. */
	for (uint32_t i = 0; i < options->compare && ok; i++)
		for (uint32_t turn = 0; turn < N_SIDES && ok; turn++) {
			uint32_t side = (i + turn) % N_SIDES;

			ok = answer(&comparison, sides[side], &comparison.samples[side][i], error);
		}
	if (ok)
		print(&comparison);
	contiguous_destroy(sides[SIDE_PRIVATE]);
	release(&comparison);
	return ok;
}
