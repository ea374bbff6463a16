/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "examples/llama/clock.h"
#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

/* Interval between retries while the pool is full, and the time after which the engine gives up. */
#define FULL_PAUSE_MS 5u
#define FULL_LIMIT_S 30.0
#define WARM_UP_TOKENS 32u

void
engine_create(struct engine *engine, struct forward *forward, struct attention *attention,
	      const struct engine_params *params)
{
	*engine = (struct engine){ .forward = forward, .attention = attention, .params = *params };
	engine->step.tokens = xcalloc(forward->max_tokens, sizeof(uint32_t));
	engine->step.positions = xcalloc(forward->max_tokens, sizeof(uint32_t));
	engine->step.logit_tokens = xcalloc(forward->max_tokens, sizeof(uint32_t));
}

void
engine_destroy(struct engine *engine)
{
	for (uint32_t i = 0; i < engine->n_running; i++)
		engine_release(engine, engine->running[i]);
	free(engine->step.logit_tokens);
	free(engine->step.positions);
	free(engine->step.tokens);
}

/* -------------------------------------------------------- coming and going */

void
engine_add(struct engine *engine, struct request *request)
{
	struct request **place = &engine->queue;

	if (request->n_prompt >= engine->attention->max_length)
		die("prompt of %zu tokens: a sequence has at most %u, and the answer needs room", request->n_prompt,
		    engine->attention->max_length);
	request->next = NULL;
	request->added_s = clock_now_s();
	while (*place != NULL)
		place = &(*place)->next;
	*place = request;
}

void
engine_release(struct engine *engine, struct request *request)
{
	if (request->open)
		engine->attention->ops->close(engine->attention, request->sequence);
	request->open = false;
	request->n_cached = 0;
}

/* False: no room now. */
static bool
engine_open(struct engine *engine, struct request *request)
{
	uint32_t n_tokens = (uint32_t)request->tokens.n, n_found = 0;

	request->open = engine->attention->ops->open(engine->attention, request->tokens.ids, n_tokens,
						     &request->sequence, &n_found);
	if (!request->open)
		return false;
	request->n_found = n_found;
	/* The next token depends on the last one's query, which is computed even if its K and V were found. */
	request->n_cached = n_found < n_tokens ? n_found : n_tokens - 1;
	engine->stats.n_found_tokens += request->n_cached;
	return true;
}

static void
engine_admit(struct engine *engine)
{
	while (engine->queue != NULL && engine->n_running < engine->params.max_running &&
	       (!engine->preempted || engine->n_running == 0)) {
		struct request *request = engine->queue;

		if (!request->open && !engine_open(engine, request))
			return;
		engine->queue = request->next;
		engine->running[engine->n_running++] = request;
	}
}

static void
engine_remove_running(struct engine *engine, const struct request *request)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < engine->n_running; i++)
		if (engine->running[i] != request)
			engine->running[kept++] = engine->running[i];
	engine->n_running = kept;
}

/* Preempt the youngest request: it is recomputed when there is room again, and keeps the tokens of its answer. */
static void
engine_preempt(struct engine *engine)
{
	struct request *youngest = engine->running[engine->n_running - 1];

	engine_release(engine, youngest);
	engine_remove_running(engine, youngest);
	youngest->next = engine->queue;
	engine->queue = youngest;
	engine->preempted = true;
}

static void
engine_finish(struct engine *engine, struct request *request)
{
	engine_remove_running(engine, request);
	if (!request->keep)
		engine_release(engine, request);
	engine->preempted = false;
}

/* -------------------------------------------------------------------- step */

/* First one token of each running answer, then parts of prompts in the remaining room. */
static void
engine_choose_rows(struct engine *engine)
{
	struct engine_step *step = &engine->step;
	uint32_t room = engine->forward->max_tokens;

	step->n_rows = 0;
	for (int reading = 0; reading < 2; reading++)
		for (uint32_t i = 0; i < engine->n_running && room > 0; i++) {
			struct request *request = engine->running[i];
			size_t pending = request->tokens.n - request->n_cached;
			uint32_t q_len = pending < room ? (uint32_t)pending : room;

			if ((pending > 1) != (reading == 1))
				continue;
			step->requests[step->n_rows] = request;
			step->rows[step->n_rows++] =
				(struct attention_row){ .sequence = request->sequence,
							.q_len = q_len,
							.kv_len = (uint32_t)request->n_cached + q_len,
							.is_written = request->n_cached + q_len <= request->n_found };
			room -= q_len;
		}
}

/* Plan as many rows as there are pages for, possibly none. */
static void
engine_plan(struct engine *engine)
{
	struct engine_step *step = &engine->step;
	uint32_t kept = 0;

	while (step->n_rows > 0) {
		memset(step->waits, 0, sizeof(step->waits));
		if (engine->attention->ops->plan(engine->attention, step->rows, step->n_rows, step->waits))
			return;
		kept = 0;
		for (uint32_t r = 0; r < step->n_rows; r++)
			if (!step->waits[r]) {
				step->requests[kept] = step->requests[r];
				step->rows[kept++] = step->rows[r];
			}
		/* Each row alone may get its pages although all together do not: drop the last row. */
		step->n_rows = kept < step->n_rows ? kept : kept - 1;
	}
}

static void
engine_pack(struct engine *engine, struct forward_step *packed)
{
	struct engine_step *step = &engine->step;
	uint32_t n = 0, n_logits = 0, n_pages = 0;

	for (uint32_t r = 0; r < step->n_rows; r++) {
		struct request *request = step->requests[r];

		for (uint32_t i = 0; i < step->rows[r].q_len; i++, n++) {
			step->tokens[n] = request->tokens.ids[request->n_cached + i];
			step->positions[n] = (uint32_t)request->n_cached + i;
		}
		if (step->rows[r].kv_len == request->tokens.n)
			step->logit_tokens[n_logits++] = n - 1;
		if (request->n_cached < request->n_prompt)
			engine->stats.n_prompt_tokens += step->rows[r].q_len;
	}
	for (uint32_t i = 0; i < engine->n_running; i++)
		n_pages += engine->attention->ops->n_pages(engine->attention, engine->running[i]->sequence);
	engine->stats.peak_pages = n_pages > engine->stats.peak_pages ? n_pages : engine->stats.peak_pages;
	*packed = (struct forward_step){ .n_tokens = n,
					 .tokens = step->tokens,
					 .positions = step->positions,
					 .n_logits = n_logits,
					 .logit_tokens = step->logit_tokens };
}

static void
engine_add_token(struct engine *engine, struct request *request, uint32_t token)
{
	bool last;

	token_list_add(&request->tokens, &token, 1);
	engine->stats.n_tokens++;
	if (request->tokens.n == request->n_prompt + 1)
		request->first_token_s = clock_now_s() - request->added_s;
	last = token == engine->params.end_token || request->tokens.n - request->n_prompt >= request->max_tokens ||
	       request->tokens.n >= engine->attention->max_length;
	if (engine->params.token != NULL)
		engine->params.token(engine->params.argument, request, token, last);
	if (last)
		engine_finish(engine, request);
}

static void
engine_publish(struct engine *engine)
{
	struct attention_tokens written[ENGINE_MAX_RUNNING];
	struct engine_step *step = &engine->step;

	for (uint32_t r = 0; r < step->n_rows; r++)
		written[r] = (struct attention_tokens){ .sequence = step->rows[r].sequence,
							.ids = step->requests[r]->tokens.ids,
							.n = step->rows[r].kv_len };
	engine->attention->ops->publish(engine->attention, written, step->n_rows);
}

static void
engine_run_step(struct engine *engine)
{
	uint32_t n_vocabulary = engine->forward->model->n_vocabulary;
	struct engine_step *step = &engine->step;
	struct forward_step packed;
	const float *logits;

	engine_pack(engine, &packed);
	engine->stats.n_steps++;
	logits = forward_run(engine->forward, engine->attention, &packed);
	engine_publish(engine);
	for (uint32_t r = 0; r < step->n_rows; r++) {
		struct request *request = step->requests[r];

		request->n_cached = step->rows[r].kv_len;
		if (request->n_cached < request->tokens.n)
			continue;
		engine_add_token(engine, request, forward_best(logits, n_vocabulary));
		logits += n_vocabulary;
	}
}

/* No row can continue: preempt a request of this process, or wait for other workers. */
static void
engine_wait_for_pages(struct engine *engine)
{
	const struct timespec pause = { .tv_nsec = FULL_PAUSE_MS * 1000000L };

	if (engine->n_running > 1) {
		engine_preempt(engine);
		return;
	}
	if (engine->full_since_s == 0)
		engine->full_since_s = clock_now_s();
	if (clock_now_s() - engine->full_since_s > FULL_LIMIT_S)
		die("the pool has been full for %.0f s: a sequence of %zu tokens lacks pages", FULL_LIMIT_S,
		    engine->n_running > 0 ? engine->running[0]->tokens.n : engine->queue->tokens.n);
	nanosleep(&pause, NULL);
}

void
engine_step(struct engine *engine)
{
	double start = clock_now_s();

	if (engine_is_idle(engine))
		return;
	engine_admit(engine);
	engine_choose_rows(engine);
	engine_plan(engine);
	if (engine->step.n_rows > 0) {
		engine->full_since_s = 0;
		engine_run_step(engine);
	} else {
		engine_wait_for_pages(engine);
	}
	engine->stats.seconds += clock_now_s() - start;
}

void
engine_run(struct engine *engine)
{
	while (!engine_is_idle(engine))
		engine_step(engine);
}

void
engine_warm_up(struct engine *engine)
{
	struct request request = { .max_tokens = 1, .n_prompt = WARM_UP_TOKENS };

	for (uint32_t i = 0; i < WARM_UP_TOKENS; i++)
		token_list_add(&request.tokens, &i, 1);
	engine_add(engine, &request);
	engine_run(engine);
	free(request.tokens.ids);
}

struct engine_stats
engine_answer(struct forward *forward, struct attention *attention, const struct engine_params *params,
	      struct request *requests, size_t n)
{
	struct engine engine;

	engine_create(&engine, forward, attention, params);
	for (size_t i = 0; i < n; i++)
		engine_add(&engine, &requests[i]);
	engine_run(&engine);
	engine_destroy(&engine);
	return engine.stats;
}
