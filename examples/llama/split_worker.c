/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/split_worker.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/clock.h"
#include "examples/llama/die.h"
#include "examples/llama/engine.h"
#include "examples/llama/pipeline.h"
#include "examples/llama/xalloc.h"

struct split_request {
	struct request request; /* the first member */
	enum split_kind kind;
	bool gives; /* the step that has just ended completed the prompt: give the sequence */
};

struct split_worker {
	const struct options *options;
	int socket;
	struct pipeline pipeline;
	struct engine engine;
	struct split_request *requests; /* [options->n_prompts]; the last one of each prompt */
};

/* An event about a request, with the time of now. */
static struct split_event
split_event(const struct split_worker *worker, const struct split_request *request, enum split_event_kind kind)
{
	return (struct split_event){ .kind = kind,
				     .prompt = (uint32_t)(request - worker->requests),
				     .n_prompt = (uint32_t)request->request.n_prompt,
				     .at_s = clock_now_s() };
}

static void
split_send(const struct split_worker *worker, const struct split_event *event)
{
	if (write(worker->socket, event, sizeof(*event)) != (ssize_t)sizeof(*event))
		die("the parent process is gone");
}

static void
split_on_token(void *argument, struct request *request, uint32_t token, bool last)
{
	struct split_worker *worker = argument;
	struct split_request *split = (struct split_request *)request;
	struct split_event event;

	event = split_event(worker, split, SPLIT_TOKEN);
	event.token = token;
	event.last = last;
	/* The engine ends an answer of one token; the whole answer may be longer. */
	if (split->kind == SPLIT_PREFILL) {
		event.last = token == worker->engine.params.end_token || worker->options->max_tokens == 1;
		split->gives = !event.last;
	}
	split_send(worker, &event);
}

/* ------------------------------------------------------------------ orders */

static void
split_adopt(struct split_worker *worker, struct split_request *split, const struct split_order *order)
{
	struct request *request = &split->request;
	double start = clock_now_s();
	struct split_event event;
	uint32_t n_written;

	request->sequence = paged_cache_adopt(worker->pipeline.attention, &order->ticket, &n_written);
	event = split_event(worker, split, SPLIT_ADOPTED);
	event.call_s = event.at_s - start;
	request->open = true;
	request->n_cached = n_written;
	token_list_add(&request->tokens, &order->first_token, 1);
	split_send(worker, &event);
}

static void
split_follow(struct split_worker *worker, const struct split_order *order)
{
	struct split_request *split = &worker->requests[order->prompt];
	struct request *request = &split->request;
	bool prefills = order->kind == SPLIT_PREFILL;

	free(request->tokens.ids);
	*split = (struct split_request){ .kind = order->kind };
	request->max_tokens = prefills ? 1 : worker->options->max_tokens;
	request->keep = prefills;
	pipeline_encode(&worker->pipeline, worker->options->prompts[order->prompt], true, &request->tokens);
	request->n_prompt = request->tokens.n;
	if (order->kind == SPLIT_DECODE)
		split_adopt(worker, split, order);
	engine_add(&worker->engine, request);
}

/* Follow all orders that have arrived; an idle worker waits for one.  False: there will be no more. */
static bool
split_receive(struct split_worker *worker)
{
	struct pollfd ready = { .fd = worker->socket, .events = POLLIN };
	struct split_order order;
	int n;

	for (;;) {
		n = poll(&ready, 1, engine_is_idle(&worker->engine) ? -1 : 0);
		if (n < 0 && errno != EINTR)
			die("poll: %s", strerror(errno));
		if (n == 0)
			return true;
		if (n < 0)
			continue;
		if (read(worker->socket, &order, sizeof(order)) != (ssize_t)sizeof(order))
			return false;
		split_follow(worker, &order);
	}
}

/* -------------------------------------------------------------------- give */

static void
split_give(struct split_worker *worker, struct split_request *split)
{
	struct attention *attention = worker->pipeline.attention;
	struct request *request = &split->request;
	struct split_event event = split_event(worker, split, SPLIT_GIVEN);

	event.n_pages = attention->ops->n_pages(attention, request->sequence);
	paged_cache_give(attention, request->sequence, (uint32_t)request->n_cached, &event.ticket);
	event.call_s = clock_now_s() - event.at_s;
	request->open = false;
	split_send(worker, &event);
}

/* Give the sequences of the prompts that the last step completed; answers of one token end here. */
static void
split_end_prompts(struct split_worker *worker)
{
	for (size_t i = 0; i < worker->options->n_prompts; i++) {
		struct split_request *split = &worker->requests[i];

		if (split->gives)
			split_give(worker, split);
		else if (split->kind == SPLIT_PREFILL && split->request.tokens.n > split->request.n_prompt)
			engine_release(&worker->engine, &split->request);
		split->gives = false;
	}
}

void
split_worker_serve(const struct options *options, uint32_t number, int socket)
{
	struct split_worker worker = { .options = options, .socket = socket };
	struct engine_params params = { .max_running = options->max_running, .argument = &worker };
	struct split_event ready = { .kind = SPLIT_READY };

	worker.requests = xcalloc(options->n_prompts, sizeof(*worker.requests));
	pipeline_load(&worker.pipeline, options, number == 0);
	pipeline_attach(&worker.pipeline, options, die_label);
	params.end_token = tokenizer_end(worker.pipeline.tokenizer);
	engine_create(&worker.engine, worker.pipeline.forward, worker.pipeline.attention, &params);
	engine_warm_up(&worker.engine);
	worker.engine.params.token = split_on_token;
	split_send(&worker, &ready);
	while (split_receive(&worker)) {
		engine_step(&worker.engine);
		split_end_prompts(&worker);
	}
	engine_destroy(&worker.engine);
	for (size_t i = 0; i < options->n_prompts; i++)
		free(worker.requests[i].request.tokens.ids);
	free(worker.requests);
	pipeline_destroy(&worker.pipeline);
}
