/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/converse.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "examples/llama/engine.h"
#include "examples/llama/setup.h"

struct conversation {
	struct setup setup;
	struct utf8_stream stream;
};

static void
hear_token(void *argument, struct request *request, uint32_t token)
{
	struct conversation *conversation = argument;
	char text[UTF8_STREAM_TEXT];

	(void)request;
	fwrite(text, 1, utf8_stream_add(&conversation->stream, conversation->setup.tokenizer, token, text), stdout);
	fflush(stdout);
}

static void
turn(struct conversation *conversation, struct engine *engine, struct request *request, const char *user)
{
	struct token_list *tokens = &request->tokens;
	char text[UTF8_STREAM_TEXT];
	bool first = tokens->n == 0;

	/* A turn begins with the end of the answer before it, also of one that was cut short. */
	if (!first && tokens->ids[tokens->n - 1] == tokenizer_end(conversation->setup.tokenizer))
		tokens->n--;
	setup_encode(&conversation->setup, user, first, tokens);
	request->n_prompt = tokens->n;
	engine_add(engine, request);
	engine_run(engine);
	fwrite(text, 1, utf8_stream_end(&conversation->stream, text), stdout);
	puts("");
}

void
converse(const struct options *options)
{
	struct conversation conversation = { 0 };
	struct setup *setup = &conversation.setup;
	struct engine_params params = { .max_running = 1, .token = hear_token, .argument = &conversation };
	struct request request = { .max_tokens = options->max_tokens, .keep = true };
	struct engine engine;
	bool terminal = isatty(STDIN_FILENO);
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	setup_load(setup, options, true);
	setup_attach(setup, options, "paged-llama");
	params.end_token = tokenizer_end(setup->tokenizer);
	engine_create(&engine, setup->forward, setup->attention, &params);
	for (;;) {
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
			turn(&conversation, &engine, &request, line);
	}
	engine_release(&engine, &request);
	engine_destroy(&engine);
	setup_destroy(setup);
	free(request.tokens.ids);
	free(line);
}
