/* SPDX-License-Identifier: Apache-2.0 */
/**
 * forward.h - one step of the model over a packed, ragged batch of tokens
 *
 * Everything is computed in f32 and row by row, so that a row's result has
 * the same bits whichever rows share the step.  All buffers are allocated at
 * creation.  A forward runs one step at a time.
 */
#ifndef LLAMA_FORWARD_H
#define LLAMA_FORWARD_H

#include "examples/llama/attention.h"
#include "examples/llama/model.h"

struct forward;
struct matmul_ops;
struct team;

/**
 * forward_create - buffers for steps of up to max_tokens tokens
 *
 * @param[in] model       borrowed
 * @param[in] max_logits  most tokens of a step whose logits are wanted
 */
bool forward_create(const struct model *model, uint32_t n_threads, uint32_t max_tokens, uint32_t max_logits,
		    struct forward **forward_p, struct error *error);

/** forward_destroy - takes NULL */
void forward_destroy(struct forward *forward);

/** One step; attention has been planned with rows that add up to n_tokens. */
struct forward_step {
	uint32_t n_tokens;
	const uint32_t *tokens;    /* [n_tokens] below n_vocabulary */
	const uint32_t *positions; /* [n_tokens] in their sequences */
	uint32_t n_logits;
	const uint32_t *wanted; /* [n_logits] indices into tokens */
};

/**
 * forward_run - compute a step
 *
 * @param[out] logits_p  [n_logits][n_vocabulary], valid until the next step
 */
bool forward_run(struct forward *forward, struct attention *attention, const struct forward_step *step,
		 const float **logits_p, struct error *error);

/** Seconds inside forward_run() since forward_create(), by what they went to. */
struct forward_times {
	double products; /* with weights */
	double attention;
	double all;
};

const struct forward_times *forward_times(const struct forward *forward);

/** forward_team, forward_ops - its threads and the code of its products, for whoever computes in its place */
struct team *forward_team(const struct forward *forward);
const struct matmul_ops *forward_ops(const struct forward *forward);

/** forward_best - the first of the largest logits */
uint32_t forward_best(const float *logits, uint32_t n);

/** forward_isa - name of the instruction set of the products */
const char *forward_isa(const struct forward *forward);

#endif
