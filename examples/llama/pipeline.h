/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pipeline.h - the state that a process needs to answer prompts
 */
#ifndef LLAMA_PIPELINE_H
#define LLAMA_PIPELINE_H

#include "examples/llama/forward.h"
#include "examples/llama/model.h"
#include "examples/llama/options.h"
#include "examples/llama/paged_cache.h"
#include "examples/llama/tokenizer.h"

/** Tokens of a step: enough to prefill a prompt fast, few enough not to delay other answers. */
#define PIPELINE_STEP_TOKENS 128u

struct pipeline {
	struct gguf *gguf;
	struct tokenizer *tokenizer;
	char *system; /* of the chat template, or NULL */
	struct model *model;
	struct forward *forward;
	struct attention *attention;
};

/**
 * pipeline_load - open the file and load its tokenizer and weights
 *
 * @param[in] progress  show progress on stderr, if that is a terminal
 */
void pipeline_load(struct pipeline *pipeline, const struct options *options, bool progress);

/** pipeline_attach - allocate buffers and open the pool; pagedctl shows `name` */
void pipeline_attach(struct pipeline *pipeline, const struct options *options, const char *name);

/** pipeline_destroy - free a pipeline in any state, also one that is only zeroed */
void pipeline_destroy(struct pipeline *pipeline);

/** pipeline_encode - append the tokens of a user's turn to a list */
void pipeline_encode(struct pipeline *pipeline, const char *user, bool first, struct token_list *tokens);

#endif
