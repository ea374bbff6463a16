/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/answers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/contiguous.h"
#include "examples/llama/engine.h"

/* One prompt and what has been answered. */
struct answer {
	struct request request;
	const char *prompt;
	size_t number; /* from 1, among the process's */
	struct utf8_stream stream;
	char *text; /* of several answers: kept until it is whole */
	size_t text_size;
	FILE *text_file;
};

struct answers {
	struct setup *setup;
	const struct options *options;
	const char *label;
	struct answer *list;
	size_t n;
};

static void
put_indented(FILE *file, const char *first, const char *rest, const char *text)
{
	const char *end;

	for (; *text != '\0' || first != NULL; text = *end != '\0' ? end + 1 : end) {
		end = strchrnul(text, '\n');
		fprintf(file, "%s | %.*s\n", first != NULL ? first : rest, (int)(end - text), text);
		first = NULL;
	}
}

/* Prompt and answer in one write(), as long as the system takes it whole. */
static void
put_block(const struct answers *answers, struct answer *answer)
{
	char label[32], blank[32], *block = NULL;
	size_t size;
	FILE *file = open_memstream(&block, &size);

	if (file == NULL)
		return;
	snprintf(label, sizeof(label), answers->label != NULL ? "%s" : "prompt %.0s%zu",
		 answers->label != NULL ? answers->label : "", answer->number);
	memset(blank, ' ', sizeof(blank));
	blank[strlen(label)] = '\0';
	put_indented(file, label, blank, answer->prompt);
	fflush(answer->text_file);
	put_indented(file, blank, blank, answer->text);
	if (fclose(file) == 0) {
		fflush(stdout);
		for (size_t at = 0; at < size;) {
			ssize_t n = write(STDOUT_FILENO, block + at, size - at);

			if (n < 0 && errno != EINTR)
				break;
			at += n > 0 ? (size_t)n : 0;
		}
	}
	free(block);
}

static void
hear_token(void *argument, struct request *request, uint32_t token)
{
	struct answers *answers = argument;
	struct answer *answer = request->argument;
	uint32_t end = tokenizer_end(answers->setup->tokenizer);
	bool last = token == end || request->tokens.n - request->n_prompt >= request->max_tokens;
	char text[UTF8_STREAM_TEXT];
	size_t n = utf8_stream_add(&answer->stream, answers->setup->tokenizer, token, text);

	fwrite(text, 1, n, answer->text_file);
	if (!last) {
		if (answers->n == 1 && answers->label == NULL)
			fflush(answer->text_file);
		return;
	}
	fwrite(text, 1, utf8_stream_end(&answer->stream, text), answer->text_file);
	if (answers->n == 1 && answers->label == NULL)
		puts("");
	else
		put_block(answers, answer);
}

static bool
prepare(struct answers *answers, uint32_t worker, struct error *error)
{
	const struct options *options = answers->options;
	uint32_t n_workers = options->n_workers > 0 ? options->n_workers : 1;

	answers->n = (options->n_prompts - worker + n_workers - 1) / n_workers;
	answers->list = calloc(answers->n, sizeof(*answers->list));
	if (answers->list == NULL)
		return error_set(error, "no memory for %zu prompts", answers->n);
	for (size_t i = 0; i < answers->n; i++) {
		struct answer *answer = &answers->list[i];
		struct request *request = &answer->request;

		answer->number = i + 1;
		answer->prompt = options->prompts[worker + i * n_workers];
		request->argument = answer;
		request->max_tokens = options->max_tokens;
		answer->text_file = answers->n == 1 && answers->label == NULL
					    ? stdout
					    : open_memstream(&answer->text, &answer->text_size);
		if (answer->text_file == NULL)
			return error_set(error, "no memory for an answer");
		if (!setup_encode(answers->setup, answer->prompt, true, &request->tokens, error))
			return false;
		request->n_prompt = request->tokens.n;
	}
	return true;
}

static void
release(struct answers *answers)
{
	for (size_t i = 0; answers->list != NULL && i < answers->n; i++) {
		struct answer *answer = &answers->list[i];

		if (answer->text_file != NULL && answer->text_file != stdout)
			fclose(answer->text_file);
		free(answer->text);
		free(answer->request.tokens.ids);
	}
	free(answers->list);
}

/* Run requests to their ends on some cache. */
static bool
run_requests(const struct answers *answers, struct attention *attention, uint32_t max_running, engine_token_fn hear,
	     struct request *const *requests, size_t n, struct engine_stats *stats, struct error *error)
{
	struct engine_params params = { .max_running = max_running,
					.max_tokens = SETUP_STEP_TOKENS,
					.end_token = tokenizer_end(answers->setup->tokenizer),
					.max_length = attention->max_length,
					.token = hear,
					.argument = (void *)answers };
	struct engine *engine;
	bool ok;

	if (!engine_create(answers->setup->model, answers->setup->forward, attention, &params, &engine, error))
		return false;
	ok = true;
	for (size_t i = 0; i < n && ok; i++)
		ok = engine_add(engine, requests[i], error);
	ok = ok && engine_run(engine, error);
	*stats = *engine_stats(engine);
	engine_destroy(engine);
	return ok;
}

static bool
answer_all(struct answers *answers, struct engine_stats *stats, struct error *error)
{
	struct request **requests = calloc(answers->n, sizeof(struct request *));
	bool ok;

	if (requests == NULL)
		return error_set(error, "no memory for %zu prompts", answers->n);
	for (size_t i = 0; i < answers->n; i++)
		requests[i] = &answers->list[i].request;
	ok = run_requests(answers, answers->setup->attention, answers->options->max_running, hear_token, requests,
			  answers->n, stats, error);
	free(requests);
	return ok;
}

static bool
same_tokens(const struct answer *answer, const struct request *again)
{
	const struct token_list *a = &answer->request.tokens, *b = &again->tokens;
	size_t n = a->n < b->n ? a->n : b->n, i = 0;

	while (i < n && a->ids[i] == b->ids[i])
		i++;
	if (i < n)
		fprintf(stderr, "prompt %zu: token %zu of the answer is %u, on a private cache %u\n", answer->number,
			i - again->n_prompt, a->ids[i], b->ids[i]);
	else if (a->n != b->n)
		fprintf(stderr, "prompt %zu: the answer has %zu tokens, on a private cache %zu\n", answer->number,
			a->n - again->n_prompt, b->n - again->n_prompt);
	return i == n && a->n == b->n;
}

/* Each prompt again, alone, on a private cache. */
static bool
verify(const struct answers *answers, enum verdict *verdict_p, struct error *error)
{
	struct attention *plain;
	struct engine_stats stats;
	enum paged_dtype dtype = paged_cache_dtype(answers->setup->attention);
	bool ok;

	*verdict_p = VERDICT_EQUAL;
	if (dtype == PAGED_E4M3 || dtype == PAGED_E5M2 || dtype == PAGED_I8)
		fputs("\nthe pool keeps one byte an element, the private cache f32: tokens may differ\n", stderr);
	ok = contiguous_create(answers->setup->model, dtype, &plain, error);
	if (!ok)
		return false;
	for (size_t i = 0; i < answers->n && ok; i++) {
		const struct request *first = &answers->list[i].request;
		struct request again = { .max_tokens = first->max_tokens, .n_prompt = first->n_prompt };
		struct request *list = &again;

		for (size_t t = 0; t < first->n_prompt && ok; t++)
			ok = token_list_add(&again.tokens, first->tokens.ids[t], error);
		ok = ok && run_requests(answers, plain, 1, NULL, &list, 1, &stats, error);
		if (ok && !same_tokens(&answers->list[i], &again))
			*verdict_p = VERDICT_DIFFERENT;
		free(again.tokens.ids);
	}
	contiguous_destroy(plain);
	return ok;
}

/* A line of JSON, written whole so that processes can share the file. */
static bool
write_report(const struct answers *answers, const struct report *report, struct error *error)
{
	static const char *const verdicts[] = { "null", "true", "false" };
	const char *path = answers->options->report;
	char *line = NULL;
	size_t size;
	FILE *file = open_memstream(&line, &size);
	int fd;
	bool ok;

	if (file == NULL)
		return error_set(error, "%s: no memory for the report", path);
	fprintf(file,
		"{\"worker\": %u, \"pid\": %u, \"prompts\": %u, \"prompt_tokens\": %llu, \"tokens\": %llu, "
		"\"seconds\": %.6f, \"pages\": %u, \"equal\": %s, \"answers\": [",
		report->worker, report->pid, report->n_prompts, (unsigned long long)report->n_prompt_tokens,
		(unsigned long long)report->n_tokens, report->seconds, report->peak_pages, verdicts[report->verdict]);
	for (size_t i = 0; i < answers->n; i++) {
		const struct request *request = &answers->list[i].request;

		fprintf(file, "%s[", i > 0 ? ", " : "");
		for (size_t t = request->n_prompt; t < request->tokens.n; t++)
			fprintf(file, "%s%u", t > request->n_prompt ? ", " : "", request->tokens.ids[t]);
		fputs("]", file);
	}
	fputs("]}\n", file);
	fclose(file);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	ok = fd >= 0 && write(fd, line, size) == (ssize_t)size;
	if (!ok)
		error_set(error, "--report %s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	free(line);
	return ok;
}

bool
answers_run(struct setup *setup, const struct options *options, uint32_t worker, const char *label,
	    struct report *report, struct error *error)
{
	struct answers answers = { .setup = setup, .options = options, .label = label };
	struct engine_stats stats = { 0 };
	bool ok;

	ok = prepare(&answers, worker, error) && answer_all(&answers, &stats, error);
	if (ok) {
		*report = (struct report){ .worker = worker,
					   .pid = (uint32_t)getpid(),
					   .n_prompts = (uint32_t)answers.n,
					   .n_prompt_tokens = stats.n_prompt_tokens,
					   .n_tokens = stats.n_tokens,
					   .seconds = stats.seconds,
					   .peak_pages = stats.peak_pages };
		ok = !options->verify || verify(&answers, &report->verdict, error);
		ok = ok && (options->report == NULL || write_report(&answers, report, error));
	}
	release(&answers);
	return ok;
}
