/* SPDX-License-Identifier: Apache-2.0 */
/* paged-llama: parses options, then runs one of four modes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "examples/llama/engine.h"
#include "examples/llama/options.h"
#include "examples/llama/pipeline.h"
#include "examples/llama/support.h"
#include "examples/llama/workers.h"

static void
print_geometry(const struct options *options)
{
	struct pipeline pipeline = { 0 };

	pipeline_load(&pipeline, options, false);
	printf("pool %s {\n    layers = %u\n    kv-heads = %u\n    head-dim = %u\n    dtype = f16\n"
	       "    page-size = 16\n    max-length = %u\n",
	       options->pool, pipeline.model->n_layers, pipeline.model->n_kv_heads, pipeline.model->head_dim,
	       pipeline.model->n_context);
	if (options->backend != NULL)
		printf("    backend = %s\n", options->backend);
	puts("}");
	pipeline_destroy(&pipeline);
}

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

/* A conversation in the terminal, until stdin ends.  All turns use one sequence, so each turn prefills only its new
 * tokens. */
static void
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

static int
answer_prompts(const struct options *options)
{
	static const char *const verdicts[] = { "", ", equal to a private cache", ", NOT equal to a private cache" };
	struct report report = { 0 };
	int status = worker_run(options, 0, NULL, &report);

	fprintf(stderr, "%llu tokens in %.2f s (%.1f tokens/s), %u pages%s\n", (unsigned long long)report.n_tokens,
		report.seconds, (double)report.n_tokens / report.seconds, report.peak_pages, verdicts[report.verdict]);
	return status;
}

int
main(int argc, char **argv)
{
	struct options options;
	int status = EXIT_ANSWERED;

	options_parse(argc, argv, &options);
	if (options.print_geometry)
		print_geometry(&options);
	else if (options.chat)
		repl_run(&options);
	else if (options.n_workers > 0)
		status = workers_run(&options);
	else
		status = answer_prompts(&options);
	options_free(&options);
	return status;
}
