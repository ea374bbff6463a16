/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/replies.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/contiguous.h"
#include "examples/llama/engine.h"
#include "examples/llama/support.h"

struct answers {
	struct setup *setup;
	const struct options *options;
	uint32_t worker, n_workers; /* this worker's index, and the number of workers, at least 1 */
	const char *label;
	struct request *requests; /* [n] */
	size_t n;
	bool alone;                /* there is one answer, which is written token by token */
	struct utf8_stream stream; /* of that answer */
};

/* Of the process's prompts. */
static const char *
prompt_at(const struct answers *answers, size_t i)
{
	return answers->options->prompts[answers->worker + i * answers->n_workers];
}

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

/* What has been answered, to be freed. */
static char *
answer_text(const struct answers *answers, const struct request *request)
{
	struct utf8_stream stream = { 0 };
	char text[UTF8_STREAM_TEXT], *answer = NULL;
	size_t size;
	FILE *file = open_memstream(&answer, &size);

	if (file == NULL)
		die("no memory for an answer");
	for (size_t t = request->n_prompt; t < request->tokens.n; t++)
		fwrite(text, 1, utf8_stream_add(&stream, answers->setup->tokenizer, request->tokens.ids[t], text),
		       file);
	fwrite(text, 1, utf8_stream_end(&stream, text), file);
	fclose(file);
	return answer;
}

/* Write prompt and answer with one write(). */
static void
put_block(const struct answers *answers, const struct request *request)
{
	size_t number = (size_t)(request - answers->requests), size;
	char label[32], blank[32], *block = NULL, *answer = answer_text(answers, request);
	FILE *file = open_memstream(&block, &size);

	if (file == NULL)
		die("no memory for an answer");
	snprintf(label, sizeof(label), answers->label != NULL ? "%s" : "prompt %.0s%zu",
		 answers->label != NULL ? answers->label : "", number + 1);
	memset(blank, ' ', sizeof(blank));
	blank[strlen(label)] = '\0';
	put_indented(file, label, blank, prompt_at(answers, number));
	put_indented(file, blank, blank, answer);
	fclose(file);
	fflush(stdout);
	if (write(STDOUT_FILENO, block, size) < 0)
		die("stdout: %s", strerror(errno));
	free(answer);
	free(block);
}

static void
hear_token(void *argument, struct request *request, uint32_t token, bool last)
{
	struct answers *answers = argument;
	char text[UTF8_STREAM_TEXT];

	if (!answers->alone) {
		if (last)
			put_block(answers, request);
		return;
	}
	fwrite(text, 1, utf8_stream_add(&answers->stream, answers->setup->tokenizer, token, text), stdout);
	if (last) {
		fwrite(text, 1, utf8_stream_end(&answers->stream, text), stdout);
		puts("");
	}
	fflush(stdout);
}

static void
prepare(struct answers *answers)
{
	answers->n = (answers->options->n_prompts - answers->worker + answers->n_workers - 1) / answers->n_workers;
	answers->alone = answers->n == 1 && answers->label == NULL;
	answers->requests = allocate(answers->n, sizeof(*answers->requests));
	for (size_t i = 0; i < answers->n; i++) {
		struct request *request = &answers->requests[i];

		request->max_tokens = answers->options->max_tokens;
		setup_encode(answers->setup, prompt_at(answers, i), true, &request->tokens);
		request->n_prompt = request->tokens.n;
	}
}

static bool
same_tokens(size_t number, const struct request *first, const struct request *again)
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
verify(const struct answers *answers)
{
	enum paged_dtype dtype = paged_cache_dtype(answers->setup->attention);
	struct attention *plain = contiguous_create(answers->setup->model, dtype, NULL);
	struct engine_params params = { .max_running = 1, .end_token = tokenizer_end(answers->setup->tokenizer) };
	enum verdict verdict = VERDICT_EQUAL;

	if (dtype == PAGED_E4M3 || dtype == PAGED_E5M2 || dtype == PAGED_I8)
		fputs("\nthe pool keeps one byte an element, the private cache f32: tokens may differ\n", stderr);
	for (size_t i = 0; i < answers->n; i++) {
		const struct request *first = &answers->requests[i];
		struct request again = { .max_tokens = first->max_tokens, .n_prompt = first->n_prompt };

		token_list_add(&again.tokens, first->tokens.ids, first->n_prompt);
		engine_answer(answers->setup->forward, plain, &params, &again, 1);
		if (!same_tokens(i + 1, first, &again))
			verdict = VERDICT_DIFFERENT;
		free(again.tokens.ids);
	}
	contiguous_destroy(plain);
	return verdict;
}

/* Write a line of JSON with one write(), so that processes can share the file. */
static void
write_report(const struct answers *answers, const struct report *report)
{
	static const char *const verdicts[] = { "null", "true", "false" };
	const char *path = answers->options->report;
	char *line = NULL;
	size_t size;
	FILE *file = open_memstream(&line, &size);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (file == NULL)
		die("%s: no memory for the report", path);
	fprintf(file,
		"{\"worker\": %u, \"pid\": %u, \"prompts\": %u, \"prompt_tokens\": %llu, \"tokens\": %llu, "
		"\"seconds\": %.6f, \"pages\": %u, \"equal\": %s, \"answers\": [",
		report->worker, report->pid, report->n_prompts, (unsigned long long)report->n_prompt_tokens,
		(unsigned long long)report->n_tokens, report->seconds, report->peak_pages, verdicts[report->verdict]);
	for (size_t i = 0; i < answers->n; i++) {
		const struct request *request = &answers->requests[i];

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
answers_run(struct setup *setup, const struct options *options, uint32_t worker, const char *label,
	    struct report *report)
{
	struct answers answers = { .setup = setup,
				   .options = options,
				   .worker = worker,
				   .n_workers = options->n_workers > 0 ? options->n_workers : 1,
				   .label = label };
	struct engine_params params = { .max_running = options->max_running,
					.end_token = tokenizer_end(setup->tokenizer),
					.token = hear_token,
					.argument = &answers };
	struct engine_stats stats;

	prepare(&answers);
	stats = engine_answer(setup->forward, setup->attention, &params, answers.requests, answers.n);
	*report = (struct report){ .worker = worker,
				   .pid = (uint32_t)getpid(),
				   .n_prompts = (uint32_t)answers.n,
				   .n_prompt_tokens = stats.n_prompt_tokens,
				   .n_tokens = stats.n_tokens,
				   .seconds = stats.seconds,
				   .peak_pages = stats.peak_pages };
	if (options->verify)
		report->verdict = verify(&answers);
	if (options->report != NULL)
		write_report(&answers, report);
	for (size_t i = 0; i < answers.n; i++)
		free(answers.requests[i].tokens.ids);
	free(answers.requests);
}
