/* SPDX-License-Identifier: Apache-2.0 */
/**
 * forward.h - one step of the model over a packed, ragged batch of tokens
 *
 * Activations are f32.  Each row is computed independently of the others, so
 * that its result has the same bits whichever rows share the step.  All buffers
 * are allocated at creation.  One forward runs one step at a time.
 */
#ifndef LLAMA_FORWARD_H
#define LLAMA_FORWARD_H

#include "examples/llama/attention.h"
#include "examples/llama/model.h"

/** Seconds inside forward_run() since forward_create(), by kind of work. */
struct forward_times {
	double products; /* with weights */
	double attention;
};

struct forward {
	const struct model *model;
	struct matmul matmul; /* other code may use its threads and products between steps */
	struct forward_times times;
	uint32_t max_tokens, max_logits;

	/** Internal. */
	uint32_t n_q, n_kv; /* width of a token's queries, and of its K or V */
	float *frequencies; /* [head_dim / 2] */
	/* [max_tokens] of each */
	float *rotations; /* [head_dim / 2][cos, sin] */
	float *x;         /* the residual stream */
	float *normed;
	float *q, *k, *v, *attention_out;
	float *gate, *up;
	float *logits;      /* [max_logits][n_vocabulary] */
	float *buffers[11]; /* all of these */
	unsigned int n_buffers;
};

/**
 * forward_create - buffers for steps of up to max_tokens tokens
 *
 * @param[in] model       borrowed
 * @param[in] max_logits  most tokens of a step whose logits are wanted
 */
struct forward *forward_create(const struct model *model, uint32_t n_threads, uint32_t max_tokens, uint32_t max_logits);

/** forward_destroy - takes NULL */
void forward_destroy(struct forward *forward);

/** One step; attention has been planned with rows that add up to n_tokens. */
struct forward_step {
	uint32_t n_tokens;
	const uint32_t *tokens;    /* [n_tokens] below n_vocabulary */
	const uint32_t *positions; /* [n_tokens] in their sequences */
	uint32_t n_logits;
	const uint32_t *logit_tokens; /* [n_logits] indices into tokens, ascending */
};

/** forward_run - compute a step; returns logits [n_logits][n_vocabulary], valid until the next step */
const float *forward_run(struct forward *forward, struct attention *attention, const struct forward_step *step);

/** forward_best - the first of the largest logits */
uint32_t forward_best(const float *logits, uint32_t n);

#endif
