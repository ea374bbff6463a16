/* SPDX-License-Identifier: Apache-2.0 */
/**
 * engine.h - continuous batching
 *
 * A step processes one token of every answer that is being generated and, up to
 * the batch's limit, parts of prompts that are still being read.  Requests join
 * and leave between steps.  When the pool is full, rows wait while others
 * continue.  When no row can continue, the youngest of several running requests
 * is preempted: its pages are freed and it is recomputed later.  A single request
 * waits for other processes to free pages.
 *
 * A request starts on the longest beginning of its tokens that the cache has (a
 * prefix cache), and what a step has written is published for other requests.
 * Published K and V have the bits with which they were computed first.  These
 * depend on whether their step had few or many tokens of the sequence (decode or
 * prefill, kernels/kernels.h), so tokens of an answer are the same with and without
 * the prefix cache, except where two logits are equal up to rounding.
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

	/** Written by the engine. */
	uint64_t sequence;
	bool open;
	size_t n_cached;      /* tokens that need not be computed any more */
	size_t n_found;       /* tokens with which the sequence started */
	double added_s;       /* time of engine_add() */
	double first_token_s; /* seconds from then to the first token of the answer */
	struct request *next;
};

/** Called for every token of an answer, including the end token; `last` marks the last one. */
typedef void (*engine_token_fn)(void *argument, struct request *request, uint32_t token, bool last);

struct engine_params {
	uint32_t max_running;  /* requests with a sequence at a time, at most ENGINE_MAX_RUNNING */
	uint32_t end_token;    /* UINT32_MAX: none */
	engine_token_fn token; /* may be NULL */
	void *argument;
};

#define ENGINE_MAX_RUNNING 64u

struct engine_stats {
	uint64_t n_prompt_tokens, n_tokens; /* prompt tokens computed, answer tokens written */
	uint64_t n_found_tokens;            /* tokens that were not computed, because the cache had them */
	uint64_t n_steps;
	uint32_t peak_pages; /* most that all sequences held together */
	double seconds;      /* inside engine_step() */
};

/** Rows of a step and their requests, in the same order. */
struct engine_step {
	struct request *requests[ENGINE_MAX_RUNNING];
	struct attention_row rows[ENGINE_MAX_RUNNING];
	bool waits[ENGINE_MAX_RUNNING];
	uint32_t n_rows;
	uint32_t *tokens, *positions, *logit_tokens; /* [forward->max_tokens] */
};

struct engine {
	struct forward *forward;
	struct attention *attention;
	struct engine_params params;
	struct engine_stats stats;

	/** Internal. */
	struct request *queue;                       /* waiting for a place, in order */
	struct request *running[ENGINE_MAX_RUNNING]; /* in order of admission */
	uint32_t n_running;
	bool preempted;      /* a request gave pages back: admit none until an answer ends */
	double full_since_s; /* no row could continue since then; 0: some could */
	struct engine_step step;
};

/** engine_create - borrows forward, which was created for max_running logits, and attention */
void engine_create(struct engine *engine, struct forward *forward, struct attention *attention,
		   const struct engine_params *params);

/** engine_destroy - close the sequences of requests that are still running, and free the engine's arrays */
void engine_destroy(struct engine *engine);

/**
 * engine_add - queue a new request, or a finished one whose tokens and n_prompt the caller has extended
 *
 * An open request continues its sequence, which has the K and V of its first n_cached tokens; another process may have
 * written them.
 */
void engine_add(struct engine *engine, struct request *request);

/** engine_release - free a kept sequence's pages */
void engine_release(struct engine *engine, struct request *request);

/** engine_is_idle - every request is finished */
static inline bool
engine_is_idle(const struct engine *engine)
{
	return engine->n_running == 0 && engine->queue == NULL;
}

/** engine_step - run one step, or wait a few milliseconds if the pool is full; requests may be added between steps */
void engine_step(struct engine *engine);

/** engine_run - run steps until every request is finished */
void engine_run(struct engine *engine);

/** engine_warm_up - touch code, weights and buffers, which would otherwise count as part of the first answer */
void engine_warm_up(struct engine *engine);

/** engine_answer - create an engine, add n requests, run and destroy it */
struct engine_stats engine_answer(struct forward *forward, struct attention *attention,
				  const struct engine_params *params, struct request *requests, size_t n);

#endif
