/* SPDX-License-Identifier: Apache-2.0 */
/**
 * engine.h - many answers at once: continuous batching
 *
 * Each step carries one token of every answer that is being written and, with
 * the room left, parts of prompts that are still being read.  Requests join
 * and leave between steps.  When the pool is full, rows wait while others go
 * on; when none can, the youngest request gives its pages back and starts
 * over later.
 */
#ifndef LLAMA_ENGINE_H
#define LLAMA_ENGINE_H

#include "examples/llama/attention.h"
#include "examples/llama/forward.h"
#include "examples/llama/tokenizer.h"

struct request {
	/** Set by the caller: the prompt; the engine appends the answer. */
	struct token_list tokens;
	size_t n_prompt;
	size_t max_tokens; /* of the answer */
	/** The sequence stays when the answer ends, so that more tokens can follow; see engine_release(). */
	bool keep;
	void *argument; /* the caller's */

	/** Written by the engine. */
	bool finished;
	uint32_t n_pages; /* held when it finished */
	uint64_t sequence;
	bool open;
	size_t n_cached; /* tokens whose K and V are in the cache */
	struct request *next;
};

/** Told of every token of an answer; the end token is told too. */
typedef void (*engine_token_fn)(void *argument, struct request *request, uint32_t token);

struct engine_params {
	uint32_t max_running; /* requests with a sequence at a time, at most ENGINE_MAX_RUNNING */
	uint32_t max_tokens;  /* of a step; not below max_running */
	uint32_t end_token;
	uint32_t max_length;   /* of a sequence */
	engine_token_fn token; /* NULL: nobody listens */
	void *argument;
};

#define ENGINE_MAX_RUNNING 64u

struct engine_stats {
	uint64_t n_prompt_tokens, n_tokens; /* read and written */
	uint64_t n_steps;
	uint32_t peak_pages; /* most that all sequences held together */
	double seconds;      /* inside engine_run() */
};

struct engine;

/** engine_create - forward and attention are borrowed; forward was created for max_tokens and max_running logits */
bool engine_create(const struct model *model, struct forward *forward, struct attention *attention,
		   const struct engine_params *params, struct engine **engine_p, struct error *error);

/** engine_destroy - requests that are still open lose their sequences; takes NULL */
void engine_destroy(struct engine *engine);

/** engine_add - queue a request, or one whose answer ended and whose tokens and n_prompt grew */
bool engine_add(struct engine *engine, struct request *request, struct error *error);

/** engine_release - give a kept sequence's pages back */
void engine_release(struct engine *engine, struct request *request);

/** engine_run - until every request is finished */
bool engine_run(struct engine *engine, struct error *error);

const struct engine_stats *engine_stats(const struct engine *engine);

#endif
