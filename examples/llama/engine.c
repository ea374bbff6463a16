/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A full pool is looked at again after this long, and given up after that long. */
#define FULL_PAUSE_MS 5u
#define FULL_LIMIT_S 30.0

/* Rows of a step and what they are about; packed alike. */
struct step {
	struct request *requests[ENGINE_MAX_RUNNING];
	struct attention_row rows[ENGINE_MAX_RUNNING];
	bool waits[ENGINE_MAX_RUNNING];
	uint32_t n_rows;
};

struct engine {
	const struct model *model;
	struct forward *forward;
	struct attention *attention;
	struct engine_params params;
	struct request *queue;                       /* waiting for a place, in order */
	struct request *running[ENGINE_MAX_RUNNING]; /* in order of admission */
	uint32_t n_running;
	bool crowded; /* somebody gave pages back: admit nobody until an answer ends */
	uint32_t *tokens, *positions, *wanted;
	struct step step;
	struct engine_stats stats;
};

static double
now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool
engine_create(const struct model *model, struct forward *forward, struct attention *attention,
	      const struct engine_params *params, struct engine **engine_p, struct error *error)
{
	struct engine *engine = calloc(1, sizeof(*engine));

	if (engine != NULL) {
		engine->model = model;
		engine->forward = forward;
		engine->attention = attention;
		engine->params = *params;
		engine->tokens = calloc(params->max_tokens, sizeof(uint32_t));
		engine->positions = calloc(params->max_tokens, sizeof(uint32_t));
		engine->wanted = calloc(params->max_tokens, sizeof(uint32_t));
	}
	if (engine == NULL || engine->tokens == NULL || engine->positions == NULL || engine->wanted == NULL) {
		engine_destroy(engine);
		return error_set(error, "no memory for steps of %u tokens", params->max_tokens);
	}
	*engine_p = engine;
	return true;
}

void
engine_destroy(struct engine *engine)
{
	if (engine == NULL)
		return;
	for (uint32_t i = 0; i < engine->n_running; i++)
		engine_release(engine, engine->running[i]);
	free(engine->wanted);
	free(engine->positions);
	free(engine->tokens);
	free(engine);
}

const struct engine_stats *
engine_stats(const struct engine *engine)
{
	return &engine->stats;
}

/* -------------------------------------------------------- coming and going */

bool
engine_add(struct engine *engine, struct request *request, struct error *error)
{
	struct request **place = &engine->queue;

	if (request->n_prompt >= engine->params.max_length)
		return error_set(error, "prompt of %zu tokens: a sequence has at most %u, and the answer needs room",
				 request->n_prompt, engine->params.max_length);
	request->finished = false;
	request->next = NULL;
	while (*place != NULL)
		place = &(*place)->next;
	*place = request;
	return true;
}

void
engine_release(struct engine *engine, struct request *request)
{
	if (request->open)
		engine->attention->ops->close(engine->attention, request->sequence);
	request->open = false;
	request->n_cached = 0;
}

static bool
admit(struct engine *engine, struct error *error)
{
	while (engine->queue != NULL && engine->n_running < engine->params.max_running &&
	       (!engine->crowded || engine->n_running == 0)) {
		struct request *request = engine->queue;

		if (!request->open) {
			switch (engine->attention->ops->open(engine->attention, &request->sequence, error)) {
			case ATTENTION_OK:
				request->open = true;
				break;
			case ATTENTION_FULL:
				return true;
			case ATTENTION_FAILED:
				return false;
			}
		}
		engine->queue = request->next;
		engine->running[engine->n_running++] = request;
	}
	return true;
}

static void
remove_running(struct engine *engine, const struct request *request)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < engine->n_running; i++)
		if (engine->running[i] != request)
			engine->running[kept++] = engine->running[i];
	engine->n_running = kept;
}

/* The youngest starts over when there is room again; what it has answered stays. */
static void
give_way(struct engine *engine)
{
	struct request *youngest = engine->running[engine->n_running - 1];

	engine_release(engine, youngest);
	remove_running(engine, youngest);
	youngest->next = engine->queue;
	engine->queue = youngest;
	engine->crowded = true;
}

static void
finish(struct engine *engine, struct request *request)
{
	request->n_pages = engine->attention->ops->n_pages(engine->attention, request->sequence);
	request->finished = true;
	remove_running(engine, request);
	if (!request->keep)
		engine_release(engine, request);
	engine->crowded = false;
}

/* -------------------------------------------------------------------- step */

/* One token of each answer first, then prompts with the room that is left. */
static void
choose_rows(struct engine *engine)
{
	struct step *step = &engine->step;
	uint32_t room = engine->params.max_tokens;

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
							.kv_len = (uint32_t)request->n_cached + q_len };
			room -= q_len;
		}
}

static void
drop_waiting(struct step *step)
{
	uint32_t kept = 0;
	bool any = false;

	for (uint32_t r = 0; r < step->n_rows; r++)
		any = any || step->waits[r];
	if (!any)
		step->waits[step->n_rows - 1] = true;
	for (uint32_t r = 0; r < step->n_rows; r++)
		if (!step->waits[r]) {
			step->requests[kept] = step->requests[r];
			step->rows[kept++] = step->rows[r];
		}
	step->n_rows = kept;
}

/* Plan with as many rows as there are pages for: perhaps none. */
static bool
plan(struct engine *engine, struct error *error)
{
	struct step *step = &engine->step;

	while (step->n_rows > 0) {
		memset(step->waits, 0, sizeof(step->waits));
		switch (engine->attention->ops->plan(engine->attention, step->rows, step->n_rows, step->waits, error)) {
		case ATTENTION_OK:
			return true;
		case ATTENTION_FULL:
			drop_waiting(step);
			break;
		case ATTENTION_FAILED:
			return false;
		}
	}
	return true;
}

static void
pack(struct engine *engine, struct forward_step *packed)
{
	struct step *step = &engine->step;
	uint32_t n = 0, n_wanted = 0, n_pages = 0;

	for (uint32_t r = 0; r < step->n_rows; r++) {
		struct request *request = step->requests[r];

		for (uint32_t i = 0; i < step->rows[r].q_len; i++, n++) {
			engine->tokens[n] = request->tokens.ids[request->n_cached + i];
			engine->positions[n] = (uint32_t)request->n_cached + i;
		}
		if (step->rows[r].kv_len == request->tokens.n)
			engine->wanted[n_wanted++] = n - 1;
		if (request->n_cached < request->n_prompt)
			engine->stats.n_prompt_tokens += step->rows[r].q_len;
	}
	for (uint32_t i = 0; i < engine->n_running; i++)
		n_pages += engine->attention->ops->n_pages(engine->attention, engine->running[i]->sequence);
	engine->stats.peak_pages = n_pages > engine->stats.peak_pages ? n_pages : engine->stats.peak_pages;
	*packed = (struct forward_step){ .n_tokens = n,
					 .tokens = engine->tokens,
					 .positions = engine->positions,
					 .n_logits = n_wanted,
					 .wanted = engine->wanted };
}

static bool
take_token(struct engine *engine, struct request *request, uint32_t token, struct error *error)
{
	if (!token_list_add(&request->tokens, token, error))
		return false;
	engine->stats.n_tokens++;
	if (engine->params.token != NULL)
		engine->params.token(engine->params.argument, request, token);
	if (token == engine->params.end_token || request->tokens.n - request->n_prompt >= request->max_tokens ||
	    request->tokens.n >= engine->params.max_length)
		finish(engine, request);
	return true;
}

static bool
run_step(struct engine *engine, struct error *error)
{
	struct step *step = &engine->step;
	struct forward_step packed;
	const float *logits;

	pack(engine, &packed);
	engine->stats.n_steps++;
	if (!forward_run(engine->forward, engine->attention, &packed, &logits, error))
		return false;
	for (uint32_t r = 0; r < step->n_rows; r++) {
		struct request *request = step->requests[r];

		request->n_cached = step->rows[r].kv_len;
		if (request->n_cached < request->tokens.n)
			continue;
		if (!take_token(engine, request, forward_best(logits, engine->model->n_vocabulary), error))
			return false;
		logits += engine->model->n_vocabulary;
	}
	return true;
}

/* No row can go on: make room if it is ours to make, or wait for other workers. */
static bool
wait_for_pages(struct engine *engine, double *since_p, struct error *error)
{
	const struct timespec pause = { .tv_nsec = FULL_PAUSE_MS * 1000000L };

	if (engine->n_running > 1) {
		give_way(engine);
		return true;
	}
	if (*since_p == 0)
		*since_p = now_s();
	if (now_s() - *since_p > FULL_LIMIT_S)
		return error_set(error, "the pool has been full for %.0f s: a sequence of %zu tokens lacks pages",
				 FULL_LIMIT_S,
				 engine->n_running > 0 ? engine->running[0]->tokens.n : engine->queue->tokens.n);
	nanosleep(&pause, NULL);
	return true;
}

bool
engine_run(struct engine *engine, struct error *error)
{
	double start = now_s(), full_since = 0;
	bool ok = true;

	while (ok && (engine->n_running > 0 || engine->queue != NULL)) {
		ok = admit(engine, error);
		if (!ok)
			break;
		choose_rows(engine);
		ok = plan(engine, error);
		if (ok && engine->step.n_rows == 0) {
			ok = wait_for_pages(engine, &full_since, error);
		} else if (ok) {
			full_since = 0;
			ok = run_step(engine, error);
		}
	}
	engine->stats.seconds += now_s() - start;
	return ok;
}
