/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged-llama's prefix cache between processes; PAGED_MODEL names the model.
 * Each run of paged-llama is a process of its own.  Answers are those of
 * tests/golden/llama, with and without the cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/llama/golden_llama.h"
#include "tests/support/geometry.h"
#include "tests/support/harness.h"

#define LLAMA "examples/llama/paged-llama"
#define GOLDEN_COUNT 2u /* "Count from 1 to 12, separated by commas.": 43 tokens, no close decisions */
#define N_PROMPT 43u
#define PROMPT "Count from 1 to 12, separated by commas."

static const char pool[] = "pool llama {\n" LLAMA_POOL_SHAPE "\n"
			   "    page-size = 16   pages = 256   max-length = 8192   publish = yes\n"
			   "}\n";

static void
start(struct it_daemon *daemon, const char *configuration)
{
	if (getenv("PAGED_MODEL") == NULL)
		it_skip("PAGED_MODEL names no model");
	it_daemon_start(daemon, configuration, NULL, NULL);
}

/* No page belongs to a sequence. */
static void
stop(struct it_daemon *daemon, uint32_t min_cached)
{
	unsigned int n_free, n_cached;
	const char *output, *numbers;
	int code;

	output = it_pagedctl(&code, "check", NULL);
	numbers = strstr(output, " = ");
	it_require(code == 0 && numbers != NULL, "%s", output);
	it_require(sscanf(numbers, " = %u free + 0 referenced + %u cached + 0 quarantined: holds", &n_free,
			  &n_cached) == 2,
		   "%s", output);
	it_require(n_free + n_cached == 256 && n_cached >= min_cached, "%s", output);
	it_daemon_stop(daemon);
}

struct run {
	unsigned int n_computed, n_found;
	char answers[4096]; /* JSON */
};

/* Answer a prompt in a new process, with one more argument and its value, or NULL. */
static void
answer(const char *prompt, const char *option, const char *value, struct run *run)
{
	const char *const command[] = { LLAMA,      "--prompt",    prompt, "--max-tokens", "64",
					"--report", "/dev/stdout", option, value,          NULL };
	const char *output, *line;
	int code;

	output = it_command(&code, command);
	it_require(code == 0, "%s", output);
	line = strstr(output, "\"prompt_tokens\": ");
	it_require(line != NULL, "%s", output);
	it_require(sscanf(line, "\"prompt_tokens\": %u, \"found_tokens\": %u", &run->n_computed, &run->n_found) == 2,
		   "%s", output);
	line = strstr(line, "\"answers\": ");
	it_require(line != NULL && strlen(line) < sizeof(run->answers), "%s", output);
	*strchrnul(line, '\n') = '\0';
	strcpy(run->answers, line);
}

static void
expect_golden(const struct run *run)
{
	struct golden_llama golden;
	char answers[4096];
	int n;

	golden_llama_read(GOLDEN_COUNT, &golden);
	it_require(golden.n_prompt == N_PROMPT && strcmp(golden.user, PROMPT) == 0);
	n = snprintf(answers, sizeof(answers), "\"answers\": [[");
	for (size_t i = 0; i < golden.n_greedy; i++)
		n += snprintf(answers + n, sizeof(answers) - (size_t)n, "%s%u", i > 0 ? ", " : "", golden.greedy[i]);
	snprintf(answers + n, sizeof(answers) - (size_t)n, "]]}");
	it_require(strcmp(run->answers, answers) == 0, "%s; expected %s", run->answers, answers);
	golden_llama_free(&golden);
}

IT_TEST(processes_start_on_what_others_published)
{
	struct it_daemon daemon;
	struct run run;

	start(&daemon, pool);
	for (unsigned int i = 0; i < 2; i++) {
		answer(PROMPT, NULL, NULL, &run);
		it_require(run.n_found == i * 32 && run.n_computed == N_PROMPT - i * 32, "%u found, %u computed",
			   run.n_found, run.n_computed);
		expect_golden(&run);
	}
	answer(PROMPT, "--no-prefix-cache", NULL, &run);
	it_require(run.n_found == 0 && run.n_computed == N_PROMPT, "%u found", run.n_found);
	expect_golden(&run);
	answer(PROMPT, "--salt", "another tenant", &run);
	it_require(run.n_found == 0, "%u found", run.n_found);
	expect_golden(&run);
	/* The template's system prompt is common to all prompts. */
	answer("What is the capital of France?", NULL, NULL, &run);
	it_require(run.n_found == 16, "%u found", run.n_found);
	stop(&daemon, 2 * N_PROMPT / 16);
}

/* 48 tokens: the second process computes one query, and appends nothing for it. */
IT_TEST(whole_prompt_is_found_by_another_process)
{
	static const char prompt[] = PROMPT " Use digits and no words";
	struct it_daemon daemon;
	struct run first, second;

	start(&daemon, pool);
	answer(prompt, NULL, NULL, &first);
	it_require(first.n_computed == 48 && first.n_found == 0, "%u computed, %u found", first.n_computed,
		   first.n_found);
	answer(prompt, NULL, NULL, &second);
	it_require(second.n_computed == 1 && second.n_found == 47, "%u computed, %u found", second.n_computed,
		   second.n_found);
	it_require(strcmp(first.answers, second.answers) == 0, "%s; %s", first.answers, second.answers);
	stop(&daemon, 3);
}

IT_TEST(published_pages_survive_a_killed_worker)
{
	static const char *const command[] = {
		LLAMA,      "--workers", "2",        "--max-tokens",      "64", "--kill", "0",
		"--prompt", PROMPT,      "--prompt", "What is 2 plus 2?", NULL
	};
	struct it_daemon daemon;
	const char *output;
	struct run run;
	int code;

	start(&daemon, pool);
	output = it_command(&code, command);
	it_require(code == 0 && strstr(output, "worker 0    killed by signal 9") != NULL, "%s", output);
	answer(PROMPT, NULL, NULL, &run);
	it_require(run.n_found == 32, "%u found", run.n_found);
	expect_golden(&run);
	stop(&daemon, N_PROMPT / 16);
}

/* --share prints each worker's times and prompts; the times are the machine's. */
IT_TEST(workers_share_a_system_prompt)
{
	const char *source = getenv("PAGED_SRCDIR"), *output, *line;
	char system[4096];
	const char *const command[] = { LLAMA,
					"--workers",
					"2",
					"--share",
					"--system",
					system,
					"--max-tokens",
					"8",
					"--prompt",
					"What is 2 plus 2?",
					"--prompt",
					"What is the capital of France?",
					NULL };
	unsigned int prompt[2], found[2], tokens[2], own_pages, pages, rate;
	double own_ms[2], ms[2];
	struct it_daemon daemon;
	char same[2][4];
	int code;

	snprintf(system, sizeof(system), "%s/examples/llama/assistant.txt", source != NULL ? source : ".");
	start(&daemon, pool);
	output = it_command(&code, command);
	it_require(code == 0, "%s", output);
	line = strstr(output, "worker 0  ");
	it_require(line != NULL, "%s", output);
	it_require(sscanf(line,
			  "worker 0 %u %lf ms %lf ms %u %3[a-z], %u tokens worker 1 %u %lf ms %lf ms %u %3[a-z], %u "
			  "tokens pages in use %u %u hit rate %u %%",
			  &prompt[0], &own_ms[0], &ms[0], &found[0], same[0], &tokens[0], &prompt[1], &own_ms[1],
			  &ms[1], &found[1], same[1], &tokens[1], &own_pages, &pages, &rate) == 15,
		   "%s", output);
	it_require(strcmp(same[0], "yes") == 0 && strcmp(same[1], "yes") == 0, "%s", output);
	it_require(prompt[0] > 600 && found[0] == 0 && found[1] >= 600 && rate >= 45, "%s", output);
	/* Sequences also hold pages that were reserved ahead, up to 3 each. */
	it_require(own_pages >= (prompt[0] + prompt[1]) / 16 && pages <= own_pages - found[1] / 16 + 6, "%s", output);
	it_require(ms[1] < own_ms[1] / 2, "%s", output);
	/* The next run has a salt of its own. */
	output = it_command(&code, command);
	line = strstr(output, "worker 0  ");
	it_require(code == 0 && line != NULL && sscanf(line, "worker 0 %*u %*f ms %*f ms %u", &found[0]) == 1 &&
			   found[0] == 0,
		   "%s", output);
	stop(&daemon, 40);
}

IT_TEST(pool_that_publishes_nothing_answers)
{
	static const char configuration[] = "pool llama {\n" LLAMA_POOL_SHAPE "\n"
					    "    page-size = 16   pages = 256   max-length = 8192   publish = no\n"
					    "}\n";
	struct it_daemon daemon;
	struct run run;

	start(&daemon, configuration);
	for (unsigned int i = 0; i < 2; i++) {
		answer(PROMPT, NULL, NULL, &run);
		it_require(run.n_found == 0, "%u found", run.n_found);
		expect_golden(&run);
	}
	stop(&daemon, 0);
}

static void
refuse(const char *const *command, const char *sentence)
{
	const char *output;
	int code;

	output = it_command(&code, command);
	it_require(code == 2 && strstr(output, sentence) != NULL, "%s", output);
}

IT_TEST(wrong_options_are_refused)
{
	refuse((const char *const[]){ LLAMA, "--model", "x", "--workers", "2", "--share", "--prompt", "a", NULL },
	       "--share needs at least 2 workers and one prompt for each; there are 2 and 1");
	refuse((const char *const[]){ LLAMA, "--model", "x", "--workers", "2", "--share", "--prompt", "a", "--prompt",
				      "b", "--verify", NULL },
	       "--share excludes --verify, --report, --no-prefix-cache and --kill");
	refuse((const char *const[]){ LLAMA, "--model", "x", "--token-lines", "--prompt", "a", NULL },
	       "--token-lines excludes --chat, prompts, --workers, --verify and --report");
	refuse((const char *const[]){ LLAMA, "--model", "x", "--prompt", "a", "--system", "/dev/null", NULL },
	       "--system /dev/null: it is empty");
	refuse((const char *const[]){ LLAMA, "--model", "x", "--prompt", "a", "--system", "/nowhere/x", NULL },
	       "--system /nowhere/x: No such file or directory");
}

IT_MAIN
