/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/repl.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "examples/llama/engine.h"
#include "examples/llama/pipeline.h"

struct repl {
	struct pipeline pipeline;
	struct utf8_stream stream;
};

static void
repl_on_token(void *argument, struct request *request, uint32_t token, bool last)
{
	struct repl *repl = argument;
	char text[UTF8_STREAM_TEXT];

	(void)request;
	(void)last;
	fwrite(text, 1, utf8_stream_add(&repl->stream, repl->pipeline.tokenizer, token, text), stdout);
	fflush(stdout);
}

static void
repl_turn(struct repl *repl, struct engine *engine, struct request *request, const char *user)
{
	struct token_list *tokens = &request->tokens;
	char text[UTF8_STREAM_TEXT];
	bool first = tokens->n == 0;

	/* A turn begins with the end token of the previous answer, even if that answer was cut short. */
	if (!first && tokens->ids[tokens->n - 1] == tokenizer_end(repl->pipeline.tokenizer))
		tokens->n--;
	pipeline_encode(&repl->pipeline, user, first, tokens);
	request->n_prompt = tokens->n;
	engine_add(engine, request);
	engine_run(engine);
	fwrite(text, 1, utf8_stream_end(&repl->stream, text), stdout);
	puts("");
}

void
repl_run(const struct options *options)
{
	struct repl repl = { 0 };
	struct pipeline *pipeline = &repl.pipeline;
	struct engine_params params = { .max_running = 1, .token = repl_on_token, .argument = &repl };
	struct request request = { .max_tokens = options->max_tokens, .keep = true };
	struct engine engine;
	bool terminal = isatty(STDIN_FILENO);
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	pipeline_load(pipeline, options, true);
	pipeline_attach(pipeline, options, "paged-llama");
	params.end_token = tokenizer_end(pipeline->tokenizer);
	engine_create(&engine, pipeline->forward, pipeline->attention, &params);
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
			repl_turn(&repl, &engine, &request, line);
	}
	engine_release(&engine, &request);
	engine_destroy(&engine);
	pipeline_destroy(pipeline);
	free(request.tokens.ids);
	free(line);
}
