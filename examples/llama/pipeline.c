/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/pipeline.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/chat_template.h"
#include "examples/llama/die.h"

void
pipeline_load(struct pipeline *pipeline, const struct options *options, bool progress)
{
	pipeline->gguf = gguf_open(options->model);
	pipeline->tokenizer = tokenizer_create(pipeline->gguf);
	pipeline->system = chat_template_system(pipeline->gguf);
	if (options->system != NULL) {
		free(pipeline->system);
		pipeline->system = strdup(options->system);
		if (pipeline->system == NULL)
			die("no memory for a system prompt of %zu bytes", strlen(options->system));
	}
	pipeline->model = model_create(pipeline->gguf, progress && isatty(STDERR_FILENO));
}

void
pipeline_attach(struct pipeline *pipeline, const struct options *options, const char *name)
{
	pipeline->forward =
		forward_create(pipeline->model, options->n_threads, PIPELINE_STEP_TOKENS, options->max_running);
	/* Products and attention never run at the same time, so they share the threads. */
	pipeline->attention = paged_cache_create(pipeline->model, options, pipeline->forward->matmul.thread_pool, name);
}

void
pipeline_destroy(struct pipeline *pipeline)
{
	paged_cache_destroy(pipeline->attention);
	forward_destroy(pipeline->forward);
	model_destroy(pipeline->model);
	free(pipeline->system);
	tokenizer_destroy(pipeline->tokenizer);
	gguf_close(pipeline->gguf);
}

void
pipeline_encode(struct pipeline *pipeline, const char *user, bool first, struct token_list *tokens)
{
	char *text = chat_template_turn(pipeline->system, user, first);

	tokenizer_encode(pipeline->tokenizer, text, strlen(text), tokens);
	free(text);
}
