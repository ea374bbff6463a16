/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pipeline.h - the state that a process needs to answer prompts
 */
#ifndef LLAMA_SETUP_H
#define LLAMA_SETUP_H

#include "examples/llama/forward.h"
#include "examples/llama/model.h"
#include "examples/llama/options.h"
#include "examples/llama/paged_cache.h"
#include "examples/llama/tokenizer.h"

/** Tokens of a step: enough to prefill a prompt fast, few enough not to delay other answers. */
#define SETUP_STEP_TOKENS 128u

struct setup {
	struct gguf *gguf;
	struct tokenizer *tokenizer;
	char *system; /* of the chat template, or NULL */
	struct model *model;
	struct forward *forward;
	struct attention *attention;
};

/**
 * setup_load - open the file and load its tokenizer and weights
 *
 * @param[in] progress  show progress on stderr, if that is a terminal
 */
void setup_load(struct setup *setup, const struct options *options, bool progress);

/** setup_attach - allocate buffers and open the pool; pagedctl shows `name` */
void setup_attach(struct setup *setup, const struct options *options, const char *name);

/** setup_destroy - in any state, also merely zeroed */
void setup_destroy(struct setup *setup);

/** setup_encode - append the tokens of a user's turn to a list */
void setup_encode(struct setup *setup, const char *user, bool first, struct token_list *tokens);

#endif
