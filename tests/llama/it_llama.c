/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo's model against transformers in float32 (tests/golden/llama).
 * PAGED_MODEL names the GGUF file; without it everything is skipped.
 *
 * Fed with the reference's tokens, the best logit must be the reference's
 * at every step whose lead exceeds 0.05.  The logits themselves differ by
 * what f32 sums in another order do over 30 layers (measured: 0.00003)
 * and, in an f16 pool, by K and V rounded to 11 bits (measured: 0.012).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/contiguous.h"
#include "examples/llama/forward.h"
#include "examples/llama/model.h"
#include "examples/llama/paged_cache.h"
#include "tests/llama/golden_llama.h"
#include "tests/support/geometry.h"
#include "tests/support/harness.h"

#define CLEAR_LEAD 0.05f
#define CLEAR_STEPS 590u
/* The sanitizers make everything ten times slower: a few prompts must do. */
#ifdef __SANITIZE_ADDRESS__
#define N_CASES 4u
#else
#define N_CASES GOLDEN_LLAMA_CASES
#endif
#define CHUNK 256u
#define MAX_LOGITS 64u
#define F32_TOLERANCE 0.0003f
#define F16_TOLERANCE 0.05f

static struct gguf *gguf;
static struct model *model;
static struct forward *forward;

static void
load(void)
{
	const char *path = getenv("PAGED_MODEL");

	if (path == NULL)
		it_skip("PAGED_MODEL names no model");
	gguf = gguf_open(path);
	model = model_create(gguf, false);
	forward = forward_create(model, 1, CHUNK, MAX_LOGITS);
}

static void
unload(void)
{
	forward_destroy(forward);
	model_destroy(model);
	gguf_close(gguf);
}

struct score {
	unsigned int n_steps, n_clear, n_clear_equal, n_equal;
	float first_error; /* largest difference of the first logits */
};

/* One chunk of the forced tokens; the logits from position `first_wanted` on are judged. */
static void
run_chunk(struct attention *attention, uint64_t sequence, const uint32_t *tokens, uint32_t start, uint32_t n,
	  const struct golden_llama *golden, struct score *score)
{
	uint32_t first_wanted = (uint32_t)golden->n_prompt - 1, positions[CHUNK], logit_tokens[CHUNK], n_logits = 0;
	struct attention_row row = { .sequence = sequence, .q_len = n, .kv_len = start + n };
	const float *logits;
	bool waits;

	for (uint32_t i = 0; i < n; i++) {
		positions[i] = start + i;
		if (start + i >= first_wanted)
			logit_tokens[n_logits++] = i;
	}
	it_require(attention->ops->plan(attention, &row, 1, &waits));
	logits = forward_run(forward, attention,
			     &(struct forward_step){ n, tokens + start, positions, n_logits, logit_tokens });
	for (uint32_t i = 0; i < n_logits; i++, logits += model->n_vocabulary) {
		uint32_t step = positions[logit_tokens[i]] - first_wanted;
		bool equal = forward_best(logits, model->n_vocabulary) == golden->greedy[step];
		bool clear = golden->lead[step] > CLEAR_LEAD;

		score->n_steps++;
		score->n_equal += equal;
		score->n_clear += clear;
		score->n_clear_equal += clear && equal;
		for (unsigned int f = 0; step == 0 && f < GOLDEN_LLAMA_FIRST; f++)
			score->first_error =
				fmaxf(score->first_error, fabsf(logits[golden->first_id[f]] - golden->first_logit[f]));
	}
}

static void
run_case(struct attention *attention, unsigned int number, struct score *score)
{
	struct golden_llama golden;
	uint32_t *tokens, n, n_found;
	uint64_t sequence;

	golden_llama_read(number, &golden);
	n = (uint32_t)(golden.n_prompt + golden.n_greedy - 1);
	tokens = malloc((golden.n_prompt + golden.n_greedy) * sizeof(*tokens));
	memcpy(tokens, golden.prompt, golden.n_prompt * sizeof(*tokens));
	memcpy(tokens + golden.n_prompt, golden.greedy, golden.n_greedy * sizeof(*tokens));
	it_require(attention->ops->open(attention, tokens, n, &sequence, &n_found));
	/* The forced steps go one chunk: at most 64 logits are wanted of it. */
	for (uint32_t start = 0, end; start < n; start = end) {
		uint32_t limit = start < golden.n_prompt - 1 ? (uint32_t)golden.n_prompt - 1 : n;

		end = limit - start < CHUNK ? limit : start + CHUNK;
		run_chunk(attention, sequence, tokens, start, end - start, &golden, score);
	}
	attention->ops->close(attention, sequence);
	free(tokens);
	golden_llama_free(&golden);
}

static void
report(const struct score *score)
{
	it_note("%u of %u steps equal, %u of %u clear ones; first logits within %.5f", score->n_equal, score->n_steps,
		score->n_clear_equal, score->n_clear, (double)score->first_error);
}

/* The plain cache; the long prompt is left to the others. */
IT_TEST(contiguous_cache_equals_the_reference)
{
	struct attention *attention;
	struct score score = { 0 };

	load();
	attention = contiguous_create(model, PAGED_F32, NULL);
	for (unsigned int i = 0; i < N_CASES && i + 1 < GOLDEN_LLAMA_CASES; i++)
		run_case(attention, i, &score);
	report(&score);
	it_require(score.n_clear_equal == score.n_clear);
	it_require(score.first_error <= F32_TOLERANCE);
	contiguous_destroy(attention);
	unload();
}

static void
run_paged(enum paged_dtype dtype, struct score *score)
{
	struct options options = { .pool = "llama", .embedded_pages = 128, .dtype = dtype, .max_running = 4 };
	struct attention *attention;

	load();
	attention = paged_cache_create(model, &options, forward->matmul.thread_pool, NULL);
	for (unsigned int i = 0; i < N_CASES; i++)
		run_case(attention, i, score);
	report(score);
	it_require(score->n_clear_equal == score->n_clear);
	it_require(score->n_clear == CLEAR_STEPS || N_CASES < GOLDEN_LLAMA_CASES);
	paged_cache_destroy(attention);
	unload();
}

IT_TEST(f32_pool_equals_the_reference)
{
	struct score score = { 0 };

	run_paged(PAGED_F32, &score);
	it_require(score.first_error <= F32_TOLERANCE);
}

IT_TEST(f16_pool_equals_the_reference)
{
	struct score score = { 0 };

	run_paged(PAGED_F16, &score);
	it_require(score.first_error <= F16_TOLERANCE);
}

/* What --compare prints, line by line; the numbers are the machine's. */
IT_TEST(compare_prints_both_caches)
{
	unsigned int n_rounds, n_read, n_written, n_threads;
	double rate[2], products[2], attention[2], rest[2], ratio, time;
	const char *output, *line;
	int code, n = 0;

	if (getenv("PAGED_MODEL") == NULL)
		it_skip("PAGED_MODEL names no model");
	output = it_command(&code, (const char *const[]){ "examples/llama/paged-llama", "--embedded=64", "--threads",
							  "2", "--max-tokens", "4", "--compare=2", "--prompt",
							  "What is the capital of France?", "--prompt",
							  "Name three prime numbers.", NULL });
	it_require(code == 0, "%s", output);
	line = strstr(output, "with and without the pool");
	it_require(line != NULL, "%s", output);
	it_require(sscanf(line,
			  "with and without the pool, medians of %u alternating rounds: %u tokens read, %u written, %u "
			  "threads "
			  "tokens/s products attention rest "
			  "the pool %lf %lf %% %lf %% %lf %% a private cache %lf %lf %% %lf %% %lf %% "
			  "the pool over the private cache: tokens/s %lf, time of cache and attention %lf%n",
			  &n_rounds, &n_read, &n_written, &n_threads, &rate[0], &products[0], &attention[0], &rest[0],
			  &rate[1], &products[1], &attention[1], &rest[1], &ratio, &time, &n) == 14 &&
			   line[n] == '\n',
		   "%s", output);
	it_require(n_rounds == 2 && n_read > 60 && n_written == 8 && n_threads == 2, "%s", output);
	for (unsigned int side = 0; side < 2; side++)
		it_require(rate[side] > 0 && products[side] > 0 && attention[side] > 0 && rest[side] >= 0 &&
				   fabs(products[side] + attention[side] + rest[side] - 100) < 1,
			   "%s", output);
	it_require(ratio > 0 && time > 0, "%s", output);
	it_command(&code, (const char *const[]){ "examples/llama/paged-llama", "--compare", "--workers", "1",
						 "--prompt", "a", NULL });
	it_require(code == 2);
}

/* Two processes on a daemon's pool; each answer is compared with one from a private cache, and nothing is left. */
IT_TEST(workers_share_a_pool)
{
	struct it_daemon daemon;
	const char *output;
	int code;

	if (getenv("PAGED_MODEL") == NULL)
		it_skip("PAGED_MODEL names no model");
	it_daemon_start(&daemon,
			"pool demo {\n" LLAMA_POOL_SHAPE " page-size = 16\n"
			" size = 32MiB\n}\n",
			NULL, NULL);
	output = it_command(&code, (const char *const[]){ "examples/llama/paged-llama", "--pool", "demo", "--workers",
							  "2", "--max-tokens", "16", "--verify", "--prompt",
							  "What is the capital of France?", "--prompt",
							  "Write a haiku about the sea.", "--prompt",
							  "Name three prime numbers greater than 100.", NULL });
	it_require(code == 0, "%s", output);
	it_require(strstr(output, "worker 0 | What is the capital of France?\n"
				  "         | The capital of France is Paris.\n") != NULL,
		   "%s", output);
	it_require(strstr(output, "worker 1          1      16") != NULL, "%s", output);
	it_require(strstr(output, "  yes\n") != NULL && strstr(output, "  no\n") == NULL, "%s", output);
	output = it_command(&code, (const char *const[]){ "pagedctl/pagedctl", "check", NULL });
	it_require(code == 0 && strstr(output, " free + 0 referenced + ") != NULL &&
			   strstr(output, " cached + 0 quarantined: holds") != NULL,
		   "%s", output);
	it_daemon_stop(&daemon);
}

IT_MAIN
