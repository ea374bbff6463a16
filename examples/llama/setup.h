/* SPDX-License-Identifier: Apache-2.0 */
/**
 * setup.h - everything that a process needs before it can answer
 */
#ifndef LLAMA_SETUP_H
#define LLAMA_SETUP_H

#include "examples/llama/forward.h"
#include "examples/llama/model.h"
#include "examples/llama/options.h"
#include "examples/llama/paged_cache.h"
#include "examples/llama/tokenizer.h"

/** Tokens of a step: enough for a prompt to be read fast, few enough for other answers to go on meanwhile. */
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
 * setup_load - the file, its tokenizer and weights
 *
 * @param[in] progress  show on stderr how far it is, when that is a terminal
 */
void setup_load(struct setup *setup, const struct options *options, bool progress);

/** setup_attach - buffers, and the pool; name is shown by pagedctl */
void setup_attach(struct setup *setup, const struct options *options, const char *name);

/** setup_destroy - in whichever state it is, zeroed at least */
void setup_destroy(struct setup *setup);

/** setup_encode - a user's turn as tokens, appended */
void setup_encode(struct setup *setup, const char *user, bool first, struct token_list *tokens);

#endif
