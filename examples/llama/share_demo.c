/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/share_demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/clock.h"
#include "examples/llama/die.h"
#include "examples/llama/engine.h"
#include "examples/llama/pipeline.h"
#include "examples/llama/worker_process.h"
#include "examples/llama/xalloc.h"

/* Order of the phases, and what the parent process asks a worker to do. */
enum share_command { SHARE_PRIVATE, SHARE_CACHED, SHARE_N_PHASES, SHARE_RELEASE = SHARE_N_PHASES };

/* A worker's answer to a command. */
struct share_reply {
	uint32_t n_prompt, n_found, n_tokens; /* tokens of the prompt, of these found in the cache, and of the answer */
	double first_token_s;
	bool equal; /* SHARE_CACHED: the answer's tokens are those of SHARE_PRIVATE */
};

struct share_worker {
	int socket;
	struct share_reply replies[SHARE_N_PHASES];
};

/* What the parent process sees of the pool. */
struct share_observer {
	struct paged_client *client;
	const struct options *options;
	struct paged_pool_entry before[SHARE_N_PHASES], during[SHARE_N_PHASES];
};

/* ------------------------------------------------------------------ worker */

struct share_answers {
	struct pipeline pipeline;
	struct engine engine;
	const char *prompt;
	uint32_t max_tokens;
	struct request requests[SHARE_N_PHASES];
};

static struct share_reply
share_answer(struct share_answers *answers, enum share_command phase)
{
	struct request *request = &answers->requests[phase], *reference = &answers->requests[SHARE_PRIVATE];
	size_t size;

	*request = (struct request){ .max_tokens = answers->max_tokens, .keep = true };
	pipeline_encode(&answers->pipeline, answers->prompt, true, &request->tokens);
	request->n_prompt = request->tokens.n;
	paged_cache_share(answers->pipeline.attention, phase == SHARE_CACHED);
	engine_add(&answers->engine, request);
	engine_run(&answers->engine);
	size = request->tokens.n * sizeof(*request->tokens.ids);
	return (struct share_reply){ .n_prompt = (uint32_t)request->n_prompt,
				     .n_found = (uint32_t)request->n_found,
				     .n_tokens = (uint32_t)(request->tokens.n - request->n_prompt),
				     .first_token_s = request->first_token_s,
				     .equal = request->tokens.n == reference->tokens.n &&
					      memcmp(request->tokens.ids, reference->tokens.ids, size) == 0 };
}

static void
share_write(int socket, const struct share_reply *reply)
{
	if (write(socket, reply, sizeof(*reply)) != (ssize_t)sizeof(*reply))
		die("the parent process is gone");
}

/* Follow the parent's commands until it closes the socket. */
static void
share_serve(const struct options *options, uint32_t number, int socket)
{
	struct share_answers answers = { .prompt = options->prompts[number], .max_tokens = options->max_tokens };
	struct engine_params params = { .max_running = 1 };
	struct share_reply reply = { 0 };
	enum share_command command;

	pipeline_load(&answers.pipeline, options, number == 0);
	pipeline_attach(&answers.pipeline, options, die_label);
	params.end_token = tokenizer_end(answers.pipeline.tokenizer);
	engine_create(&answers.engine, answers.pipeline.forward, answers.pipeline.attention, &params);
	paged_cache_share(answers.pipeline.attention, false);
	engine_warm_up(&answers.engine);
	share_write(socket, &reply);
	while (read(socket, &command, sizeof(command)) == (ssize_t)sizeof(command)) {
		if (command == SHARE_RELEASE)
			for (unsigned int i = 0; i < SHARE_N_PHASES; i++)
				engine_release(&answers.engine, &answers.requests[i]);
		else
			reply = share_answer(&answers, command);
		share_write(socket, &reply);
	}
	for (unsigned int i = 0; i < SHARE_N_PHASES; i++)
		free(answers.requests[i].tokens.ids);
	engine_destroy(&answers.engine);
	pipeline_destroy(&answers.pipeline);
}

/* ------------------------------------------------------------------ parent */

static void
share_receive(struct share_worker *workers, uint32_t number, struct share_reply *reply)
{
	if (read(workers[number].socket, reply, sizeof(*reply)) != (ssize_t)sizeof(*reply))
		die("--share: worker %u ended early", number);
}

static void
share_command(struct share_worker *workers, uint32_t number, enum share_command command, struct share_reply *reply)
{
	if (write(workers[number].socket, &command, sizeof(command)) != (ssize_t)sizeof(command))
		die("--share: worker %u ended early", number);
	share_receive(workers, number, reply);
}

static struct paged_pool_entry
share_observe(const struct share_observer *observer)
{
	struct paged_pool_entry *list, found = { 0 };
	size_t n;

	if (paged_admin_pools(observer->client, sizeof(*list), &list, &n) != PAGED_OK)
		die("--share: %s", paged_client_error(observer->client));
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i].name, observer->options->pool) == 0)
			found = list[i];
	paged_free(list);
	return found;
}

static void
share_run_phases(struct share_observer *observer, struct share_worker *workers)
{
	uint32_t n = observer->options->n_workers;
	struct share_reply reply;

	for (uint32_t i = 0; i < n; i++)
		share_receive(workers, i, &reply);
	for (enum share_command phase = 0; phase < SHARE_N_PHASES; phase++) {
		observer->before[phase] = share_observe(observer);
		for (uint32_t i = 0; i < n; i++)
			share_command(workers, i, phase, &workers[i].replies[phase]);
		observer->during[phase] = share_observe(observer);
		for (uint32_t i = 0; i < n; i++)
			share_command(workers, i, SHARE_RELEASE, &reply);
	}
}

static int
share_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median, over all workers but the first, of the time from the cache over that of a whole prompt. */
static double
share_ratio(const struct share_worker *workers, uint32_t n)
{
	double *ratios = xcalloc(n, sizeof(*ratios)), median;

	for (uint32_t i = 1; i < n; i++)
		ratios[i - 1] = workers[i].replies[SHARE_CACHED].first_token_s /
				workers[i].replies[SHARE_PRIVATE].first_token_s;
	qsort(ratios, n - 1, sizeof(*ratios), share_compare);
	median = (ratios[(n - 1) / 2] + ratios[(n - 2) / 2]) / 2;
	free(ratios);
	return median;
}

/* Returns whether all tokens are equal. */
static bool
share_print(const struct share_observer *observer, const struct share_worker *workers)
{
	const struct paged_pool_entry *before = &observer->before[SHARE_CACHED],
				      *after = &observer->during[SHARE_CACHED];
	uint64_t n_asked = after->n_tokens_asked - before->n_tokens_asked;
	uint64_t n_found = after->n_tokens_found - before->n_tokens_found;
	uint32_t n = observer->options->n_workers, n_equal = 0;

	printf("%10s  %6s  %16s  %16s  %5s\n", "", "", "own pages only", "prefix cache", "");
	printf("%10s  %6s  %16s  %16s  %5s  %s\n", "", "prompt", "first token", "first token", "found", "same answer");
	for (uint32_t i = 0; i < n; i++) {
		const struct share_reply *own = &workers[i].replies[SHARE_PRIVATE];
		const struct share_reply *cached = &workers[i].replies[SHARE_CACHED];

		printf("worker %-3u  %6u  %13.0f ms  %13.0f ms  %5u  %s, %u tokens\n", i, own->n_prompt,
		       1e3 * own->first_token_s, 1e3 * cached->first_token_s, cached->n_found,
		       cached->equal ? "yes" : "NO", cached->n_tokens);
		n_equal += cached->equal;
	}
	printf("%-18s  %16u  %16u\n", "pages in use",
	       observer->during[SHARE_PRIVATE].n_referenced - observer->before[SHARE_PRIVATE].n_referenced,
	       after->n_referenced - before->n_referenced);
	printf("hit rate %.0f %%: %llu of %llu tokens in whole pages; time to the first token from the cache: %.3f of "
	       "that without\n",
	       n_asked > 0 ? 100.0 * (double)n_found / (double)n_asked : 0.0, (unsigned long long)n_found,
	       (unsigned long long)n_asked, share_ratio(workers, n));
	fflush(stdout);
	return n_equal == n;
}

int
share_demo_run(const struct options *options)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "paged-llama", .observer = 1 };
	struct options own = *options;
	struct share_observer observer = { .options = &own };
	struct share_worker *workers = xcalloc(options->n_workers, sizeof(*workers));
	struct worker_process *processes;
	bool equal, succeeded;
	char salt[64];

	snprintf(salt, sizeof(salt), "share %ld at %.9f s", (long)getpid(), clock_now_s());
	if (own.salt == NULL)
		own.salt = salt;
	processes = worker_processes_start(&own, share_serve);
	for (uint32_t i = 0; i < own.n_workers; i++)
		workers[i].socket = processes[i].socket;
	if (paged_client_open(own.runtime_dir, &params, &observer.client) != PAGED_OK)
		die("--share: %s", paged_client_error(observer.client));
	share_run_phases(&observer, workers);
	succeeded = worker_processes_end(processes, own.n_workers);
	equal = share_print(&observer, workers);
	paged_client_close(observer.client);
	free(workers);
	return !succeeded ? EXIT_FAILED : equal ? EXIT_ANSWERED : EXIT_DIFFERENT;
}
