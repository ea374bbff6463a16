/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/replies.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/contiguous.h"
#include "examples/llama/die.h"
#include "examples/llama/engine.h"
#include "examples/llama/xalloc.h"

struct replies {
	struct pipeline *pipeline;
	const struct options *options;
	uint32_t worker, n_workers; /* this worker's index, and the number of workers, at least 1 */
	const char *label;
	struct request *requests; /* [n] */
	size_t n;
	bool single;               /* there is one answer, which is written token by token */
	struct utf8_stream stream; /* of that answer */
};

/* Prompt i of this process's share. */
static const char *
replies_prompt(const struct replies *replies, size_t i)
{
	return replies->options->prompts[replies->worker + i * replies->n_workers];
}

static void
replies_print_indented(FILE *file, const char *first, const char *rest, const char *text)
{
	const char *end;

	for (; *text != '\0' || first != NULL; text = *end != '\0' ? end + 1 : end) {
		end = strchrnul(text, '\n');
		fprintf(file, "%s | %.*s\n", first != NULL ? first : rest, (int)(end - text), text);
		first = NULL;
	}
}

/* The text of the answer, which the caller frees. */
static char *
reply_text(const struct replies *replies, const struct request *request)
{
	struct utf8_stream stream = { 0 };
	char text[UTF8_STREAM_TEXT], *answer = NULL;
	size_t size;
	FILE *file = open_memstream(&answer, &size);

	if (file == NULL)
		die("no memory for an answer");
	for (size_t t = request->n_prompt; t < request->tokens.n; t++)
		fwrite(text, 1, utf8_stream_add(&stream, replies->pipeline->tokenizer, request->tokens.ids[t], text),
		       file);
	fwrite(text, 1, utf8_stream_end(&stream, text), file);
	fclose(file);
	return answer;
}

/* Write prompt and answer with one write(). */
static void
replies_print_block(const struct replies *replies, const struct request *request)
{
	size_t number = (size_t)(request - replies->requests), size;
	char label[32], blank[32], *block = NULL, *answer = reply_text(replies, request);
	FILE *file = open_memstream(&block, &size);

	if (file == NULL)
		die("no memory for an answer");
	snprintf(label, sizeof(label), replies->label != NULL ? "%s" : "prompt %.0s%zu",
		 replies->label != NULL ? replies->label : "", number + 1);
	memset(blank, ' ', sizeof(blank));
	blank[strlen(label)] = '\0';
	replies_print_indented(file, label, blank, replies_prompt(replies, number));
	replies_print_indented(file, blank, blank, answer);
	fclose(file);
	fflush(stdout);
	if (write(STDOUT_FILENO, block, size) < 0)
		die("stdout: %s", strerror(errno));
	free(answer);
	free(block);
}

static void
replies_on_token(void *argument, struct request *request, uint32_t token, bool last)
{
	struct replies *replies = argument;
	char text[UTF8_STREAM_TEXT];

	if (!replies->single) {
		if (last)
			replies_print_block(replies, request);
		return;
	}
	fwrite(text, 1, utf8_stream_add(&replies->stream, replies->pipeline->tokenizer, token, text), stdout);
	if (last) {
		fwrite(text, 1, utf8_stream_end(&replies->stream, text), stdout);
		puts("");
	}
	fflush(stdout);
}

static void
replies_prepare(struct replies *replies)
{
	replies->n = (replies->options->n_prompts - replies->worker + replies->n_workers - 1) / replies->n_workers;
	replies->single = replies->n == 1 && replies->label == NULL;
	replies->requests = xcalloc(replies->n, sizeof(*replies->requests));
	for (size_t i = 0; i < replies->n; i++) {
		struct request *request = &replies->requests[i];

		request->max_tokens = replies->options->max_tokens;
		pipeline_encode(replies->pipeline, replies_prompt(replies, i), true, &request->tokens);
		request->n_prompt = request->tokens.n;
	}
}

static bool
replies_same_tokens(size_t number, const struct request *first, const struct request *again)
{
	const struct token_list *a = &first->tokens, *b = &again->tokens;
	size_t n = a->n < b->n ? a->n : b->n, i = 0;

	while (i < n && a->ids[i] == b->ids[i])
		i++;
	if (i < n)
		fprintf(stderr, "prompt %zu: token %zu of the answer is %u, on a private cache %u\n", number,
			i - again->n_prompt, a->ids[i], b->ids[i]);
	else if (a->n != b->n)
		fprintf(stderr, "prompt %zu: the answer has %zu tokens, on a private cache %zu\n", number,
			a->n - again->n_prompt, b->n - again->n_prompt);
	return i == n && a->n == b->n;
}

/* Answer each prompt again, alone, with a private cache, and compare. */
static enum verdict
replies_verify(const struct replies *replies)
{
	enum paged_dtype dtype = paged_cache_dtype(replies->pipeline->attention);
	struct attention *plain = contiguous_create(replies->pipeline->model, dtype, NULL);
	struct engine_params params = { .max_running = 1, .end_token = tokenizer_end(replies->pipeline->tokenizer) };
	enum verdict verdict = VERDICT_EQUAL;

	if (dtype == PAGED_E4M3 || dtype == PAGED_E5M2 || dtype == PAGED_I8)
		fputs("\nthe pool has one byte per element, the private cache f32: tokens may differ\n", stderr);
	for (size_t i = 0; i < replies->n; i++) {
		const struct request *first = &replies->requests[i];
		struct request again = { .max_tokens = first->max_tokens, .n_prompt = first->n_prompt };

		token_list_add(&again.tokens, first->tokens.ids, first->n_prompt);
		engine_answer(replies->pipeline->forward, plain, &params, &again, 1);
		if (!replies_same_tokens(i + 1, first, &again))
			verdict = VERDICT_DIFFERENT;
		free(again.tokens.ids);
	}
	contiguous_destroy(plain);
	return verdict;
}

/* Write a line of JSON with one write(), so that processes can share the file. */
static void
replies_report(const struct replies *replies, const struct report *report)
{
	static const char *const verdicts[] = { "null", "true", "false" };
	const char *path = replies->options->report;
	char *line = NULL;
	size_t size;
	FILE *file = open_memstream(&line, &size);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (file == NULL)
		die("%s: no memory for the report", path);
	fprintf(file,
		"{\"worker\": %u, \"pid\": %u, \"prompts\": %u, \"prompt_tokens\": %llu, \"found_tokens\": %llu, "
		"\"tokens\": %llu, \"first_token_seconds\": %.6f, \"seconds\": %.6f, \"pages\": %u, \"equal\": %s, "
		"\"answers\": [",
		report->worker, report->pid, report->n_prompts, (unsigned long long)report->n_prompt_tokens,
		(unsigned long long)report->n_found_tokens, (unsigned long long)report->n_tokens, report->first_token_s,
		report->seconds, report->peak_pages, verdicts[report->verdict]);
	for (size_t i = 0; i < replies->n; i++) {
		const struct request *request = &replies->requests[i];

		fprintf(file, "%s[", i > 0 ? ", " : "");
		for (size_t t = request->n_prompt; t < request->tokens.n; t++)
			fprintf(file, "%s%u", t > request->n_prompt ? ", " : "", request->tokens.ids[t]);
		fputs("]", file);
	}
	fputs("]}\n", file);
	fclose(file);
	if (fd < 0 || write(fd, line, size) != (ssize_t)size)
		die("--report %s: %s", path, strerror(errno));
	close(fd);
	free(line);
}

void
replies_run(struct pipeline *pipeline, const struct options *options, uint32_t worker, const char *label,
	    struct report *report)
{
	struct replies replies = { .pipeline = pipeline,
				   .options = options,
				   .worker = worker,
				   .n_workers = options->n_workers > 0 ? options->n_workers : 1,
				   .label = label };
	struct engine_params params = { .max_running = options->max_running,
					.end_token = tokenizer_end(pipeline->tokenizer),
					.token = replies_on_token,
					.argument = &replies };
	struct engine_stats stats;

	replies_prepare(&replies);
	stats = engine_answer(pipeline->forward, pipeline->attention, &params, replies.requests, replies.n);
	*report = (struct report){ .worker = worker,
				   .pid = (uint32_t)getpid(),
				   .n_prompts = (uint32_t)replies.n,
				   .n_prompt_tokens = stats.n_prompt_tokens,
				   .n_tokens = stats.n_tokens,
				   .n_found_tokens = stats.n_found_tokens,
				   .seconds = stats.seconds,
				   .peak_pages = stats.peak_pages };
	for (size_t i = 0; i < replies.n; i++)
		report->first_token_s += replies.requests[i].first_token_s / (double)replies.n;
	if (options->verify)
		report->verdict = replies_verify(&replies);
	if (options->report != NULL)
		replies_report(&replies, report);
	for (size_t i = 0; i < replies.n; i++)
		free(replies.requests[i].tokens.ids);
	free(replies.requests);
}
