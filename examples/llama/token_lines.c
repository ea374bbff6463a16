/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/token_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/die.h"
#include "examples/llama/engine.h"
#include "examples/llama/pipeline.h"

struct token_lines {
	struct pipeline pipeline;
	struct engine engine;
	unsigned long line; /* from 1, for messages */
};

static void
token_lines_on_token(void *argument, struct request *request, uint32_t token, bool last)
{
	(void)argument;
	(void)request;
	(void)last;
	printf("{\"token\": %u}\n", token);
	fflush(stdout);
}

/* The number at *text_p, which moves behind it; false at the end of the line. */
static bool
token_lines_number(const struct token_lines *lines, char **text_p, unsigned long limit, uint32_t *value_p)
{
	char *text = *text_p + strspn(*text_p, " ");
	unsigned long value;

	if (*text == '\0')
		return false;
	value = strtoul(text, text_p, 10);
	if (*text < '0' || *text > '9' || value >= limit || (**text_p != ' ' && **text_p != '\0'))
		die("line %lu of stdin: \"%.20s\": a number below %lu is expected", lines->line, text, limit);
	*value_p = (uint32_t)value;
	return true;
}

static void
token_lines_read(const struct token_lines *lines, char *text, struct request *request)
{
	uint32_t number;

	if (token_lines_number(lines, &text, UINT32_MAX, &number))
		request->max_tokens = number;
	while (token_lines_number(lines, &text, lines->pipeline.model->n_vocabulary, &number))
		token_list_add(&request->tokens, &number, 1);
	request->n_prompt = request->tokens.n;
	if (request->max_tokens == 0 || request->n_prompt == 0)
		die("line %lu of stdin: the answer's maximum of %zu tokens and %zu tokens of a prompt; both must be at "
		    "least 1",
		    lines->line, request->max_tokens, request->n_prompt);
}

static void
token_lines_answer(struct token_lines *lines, char *text)
{
	struct request request = { 0 };

	token_lines_read(lines, text, &request);
	engine_add(&lines->engine, &request);
	engine_run(&lines->engine);
	printf("{\"prompt\": %zu, \"found\": %zu, \"tokens\": %zu}\n", request.n_prompt, request.n_found,
	       request.tokens.n - request.n_prompt);
	fflush(stdout);
	free(request.tokens.ids);
}

void
token_lines_run(const struct options *options)
{
	struct engine_params params = { .max_running = 1, .token = token_lines_on_token };
	struct token_lines lines = { 0 };
	char *text = NULL;
	size_t size = 0;
	ssize_t n;

	pipeline_load(&lines.pipeline, options, true);
	pipeline_attach(&lines.pipeline, options, "paged-llama");
	params.end_token = tokenizer_end(lines.pipeline.tokenizer);
	engine_create(&lines.engine, lines.pipeline.forward, lines.pipeline.attention, &params);
	puts("{\"ready\": true}");
	fflush(stdout);
	while ((n = getline(&text, &size, stdin)) > 0) {
		if (text[n - 1] == '\n')
			text[n - 1] = '\0';
		lines.line++;
		token_lines_answer(&lines, text);
	}
	engine_destroy(&lines.engine);
	pipeline_destroy(&lines.pipeline);
	free(text);
}
