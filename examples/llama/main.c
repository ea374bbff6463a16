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
	struct setup setup = { 0 };

	setup_load(&setup, options, false);
	printf("pool %s {\n    layers = %u\n    kv-heads = %u\n    head-dim = %u\n    dtype = f16\n"
	       "    page-size = 16\n    max-length = %u\n",
	       options->pool, setup.model->n_layers, setup.model->n_kv_heads, setup.model->head_dim,
	       setup.model->n_context);
	if (options->backend != NULL)
		printf("    backend = %s\n", options->backend);
	puts("}");
	setup_destroy(&setup);
}

struct conversation {
	struct setup setup;
	struct utf8_stream stream;
};

static void
print_token(void *argument, struct request *request, uint32_t token, bool last)
{
	struct conversation *conversation = argument;
	char text[UTF8_STREAM_TEXT];

	(void)request;
	(void)last;
	fwrite(text, 1, utf8_stream_add(&conversation->stream, conversation->setup.tokenizer, token, text), stdout);
	fflush(stdout);
}

static void
repl_turn(struct conversation *conversation, struct engine *engine, struct request *request, const char *user)
{
	struct token_list *tokens = &request->tokens;
	char text[UTF8_STREAM_TEXT];
	bool first = tokens->n == 0;

	/* A turn begins with the end token of the previous answer, even if that answer was cut short. */
	if (!first && tokens->ids[tokens->n - 1] == tokenizer_end(conversation->setup.tokenizer))
		tokens->n--;
	setup_encode(&conversation->setup, user, first, tokens);
	request->n_prompt = tokens->n;
	engine_add(engine, request);
	engine_run(engine);
	fwrite(text, 1, utf8_stream_end(&conversation->stream, text), stdout);
	puts("");
}

/* A conversation in the terminal, until stdin ends.  All turns use one sequence, so each turn prefills only its new
 * tokens. */
static void
repl(const struct options *options)
{
	struct conversation conversation = { 0 };
	struct setup *setup = &conversation.setup;
	struct engine_params params = { .max_running = 1, .token = print_token, .argument = &conversation };
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
			repl_turn(&conversation, &engine, &request, line);
	}
	engine_release(&engine, &request);
	engine_destroy(&engine);
	setup_destroy(setup);
	free(request.tokens.ids);
	free(line);
}

static int
answer(const struct options *options)
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
		repl(&options);
	else if (options.n_workers > 0)
		status = workers_run(&options);
	else
		status = answer(&options);
	options_free(&options);
	return status;
}
