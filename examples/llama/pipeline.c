/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/pipeline.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/chat_template.h"

void
setup_load(struct setup *setup, const struct options *options, bool progress)
{
	setup->gguf = gguf_open(options->model);
	setup->tokenizer = tokenizer_create(setup->gguf);
	setup->system = chat_system(setup->gguf);
	setup->model = model_create(setup->gguf, progress && isatty(STDERR_FILENO));
}

void
setup_attach(struct setup *setup, const struct options *options, const char *name)
{
	setup->forward = forward_create(setup->model, options->n_threads, SETUP_STEP_TOKENS, options->max_running);
	/* Products and attention never run at the same time, so they share the threads. */
	setup->attention = paged_cache_create(setup->model, options, setup->forward->matmul.team, name);
}

void
setup_destroy(struct setup *setup)
{
	paged_cache_destroy(setup->attention);
	forward_destroy(setup->forward);
	model_destroy(setup->model);
	free(setup->system);
	tokenizer_destroy(setup->tokenizer);
	gguf_close(setup->gguf);
}

void
setup_encode(struct setup *setup, const char *user, bool first, struct token_list *tokens)
{
	char *text = chat_turn(setup->system, user, first);

	tokenizer_encode(setup->tokenizer, text, strlen(text), tokens);
	free(text);
}
