/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/converse.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "examples/llama/engine.h"

struct conversation {
	struct setup *setup;
	struct utf8_stream stream;
};

static void
hear_token(void *argument, struct request *request, uint32_t token)
{
	struct conversation *conversation = argument;
	char text[UTF8_STREAM_TEXT];

	(void)request;
	fwrite(text, 1, utf8_stream_add(&conversation->stream, conversation->setup->tokenizer, token, text), stdout);
	fflush(stdout);
}

static bool
turn(struct conversation *conversation, struct engine *engine, struct request *request, const char *user,
     struct error *error)
{
	struct token_list *tokens = &request->tokens;
	char text[UTF8_STREAM_TEXT];
	bool first = tokens->n == 0;

	/* A turn begins with the end of the answer before it, also of one that was cut short. */
	if (!first && tokens->ids[tokens->n - 1] == tokenizer_end(conversation->setup->tokenizer))
		tokens->n--;
	if (!setup_encode(conversation->setup, user, first, tokens, error))
		return false;
	request->n_prompt = tokens->n;
	if (!engine_add(engine, request, error) || !engine_run(engine, error))
		return false;
	fwrite(text, 1, utf8_stream_end(&conversation->stream, text), stdout);
	puts("");
	return true;
}

bool
converse(struct setup *setup, const struct options *options, struct error *error)
{
	struct conversation conversation = { .setup = setup };
	struct engine_params params = { .max_running = 1,
					.max_tokens = SETUP_STEP_TOKENS,
					.end_token = tokenizer_end(setup->tokenizer),
					.max_length = setup->attention->max_length,
					.token = hear_token,
					.argument = &conversation };
	struct request request = { .max_tokens = options->max_tokens, .keep = true };
	struct engine *engine;
	bool terminal = isatty(STDIN_FILENO), ok = true;
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	if (!engine_create(setup->model, setup->forward, setup->attention, &params, &engine, error))
		return false;
	while (ok) {
		if (terminal) {
			fputs("> ", stdout);
			fflush(stdout);
		}
		n = getline(&line, &size, stdin);
		if (n < 0)
			break;
		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		if (line[0] != '\0')
			ok = turn(&conversation, engine, &request, line, error);
	}
	engine_release(engine, &request);
	engine_destroy(engine);
	free(request.tokens.ids);
	free(line);
	return ok;
}
