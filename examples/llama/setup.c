/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void
show_progress(void *argument, uint64_t done_bytes, uint64_t all_bytes)
{
	const char *path = argument, *slash = strrchr(path, '/');
	bool done = done_bytes == all_bytes;

	fprintf(stderr, "\rloading %s (%llu MB) %3u %%%s", slash != NULL ? slash + 1 : path,
		(unsigned long long)(all_bytes / 1000000), (unsigned int)(100 * done_bytes / (all_bytes + !all_bytes)),
		done ? "\n" : "");
}

bool
setup_load(struct setup *setup, const struct options *options, bool progress, struct error *error)
{
	model_progress_fn show = progress && isatty(STDERR_FILENO) ? show_progress : NULL;

	return gguf_open(options->model, &setup->gguf, error) &&
	       tokenizer_create(setup->gguf, &setup->tokenizer, error) &&
	       chat_create(&setup->chat, setup->gguf, error) &&
	       model_create(setup->gguf, show, (void *)options->model, &setup->model, error);
}

bool
setup_attach(struct setup *setup, const struct options *options, const char *name, struct error *error)
{
	struct paged_attachment attachment = { .runtime_dir = options->runtime_dir,
					       .pool = options->pool,
					       .embedded_pages = options->embedded_pages,
					       .embedded_dtype =
						       options->dtype != PAGED_DTYPE_NONE ? options->dtype : PAGED_F16,
					       .embedded_backend = options->backend,
					       .max_rows = options->max_running,
					       .name = name };

	if (!forward_create(setup->model, options->n_threads, SETUP_STEP_TOKENS, options->max_running, &setup->forward,
			    error))
		return false;
	/* Products and attention take turns, so the same threads do both. */
	attachment.team = forward_team(setup->forward);
	return paged_cache_create(setup->model, &attachment, &setup->attention, error);
}

void
setup_destroy(struct setup *setup)
{
	paged_cache_destroy(setup->attention);
	forward_destroy(setup->forward);
	model_destroy(setup->model);
	chat_destroy(&setup->chat);
	tokenizer_destroy(setup->tokenizer);
	gguf_close(setup->gguf);
	*setup = (struct setup){ 0 };
}

bool
setup_encode(struct setup *setup, const char *user, bool first, struct token_list *tokens, struct error *error)
{
	char *text = chat_turn(&setup->chat, user, first);
	bool ok;

	if (text == NULL)
		return error_set(error, "no memory for a prompt");
	ok = tokenizer_encode(setup->tokenizer, text, strlen(text), tokens, error);
	free(text);
	return ok;
}
