/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged-llama --split: prompts arrive while others are answered; prefill and decode in the same workers, then in
 * different ones.  PAGED_MODEL names the model.  Times are the machine's, and not checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/geometry.h"
#include "tests/support/harness.h"

#define LLAMA "examples/llama/paged-llama"
/* Longer than a step of the engine, which has 128 tokens. */
#define LONG_PROMPT                                                                                                 \
	"Which of these numbers is the largest? 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 " \
	"26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60"
#define N_PAGES 256u

static const char pool[] = "pool llama {\n" LLAMA_POOL_SHAPE "\n"
			   "    page-size = 16   pages = 256   max-length = 8192\n"
			   "}\n";

static void
start(struct it_daemon *daemon)
{
	if (getenv("PAGED_MODEL") == NULL)
		it_skip("PAGED_MODEL names no model");
	it_daemon_start(daemon, pool, NULL, NULL);
}

/* No page belongs to a sequence, a ticket or the cache. */
static void
stop(struct it_daemon *daemon)
{
	unsigned int n_free = 0;
	const char *output;
	int code;

	output = it_pagedctl(&code, "check", NULL);
	it_require(code == 0 && strstr(output, " = ") != NULL, "%s", output);
	it_require(sscanf(strstr(output, " = "), " = %u free + 0 referenced + 0 cached + 0 quarantined: holds",
			  &n_free) == 1 &&
			   n_free == N_PAGES,
		   "%s", output);
	output = it_pagedctl(&code, "tickets", NULL);
	it_require(code == 0 && strstr(output, "0 tickets") != NULL, "%s", output);
	it_daemon_stop(daemon);
}

/* The number of prompts whose answer is the same in both arrangements. */
static unsigned int
count_equal(const char *output)
{
	unsigned int n = 0;

	for (; (output = strstr(output, "  yes, ")) != NULL; output++)
		n++;
	return n;
}

IT_TEST(split_workers_give_the_same_answers)
{
	static const char *const command[] = { LLAMA,
					       "--split=20",
					       "--workers",
					       "3",
					       "--prompt",
					       "What is 2 plus 2?",
					       "--prompt",
					       LONG_PROMPT,
					       "--prompt",
					       "Who wrote Hamlet?",
					       "--prompt",
					       "Name a colour.",
					       "--max-tokens",
					       "12",
					       NULL };
	unsigned int n_sequences, n_pages;
	struct it_daemon daemon;
	const char *output, *line;
	int code;

	start(&daemon);
	output = it_command(&code, command);
	it_require(code == 0, "%s", output);
	it_require(strstr(output, "3 workers prefill and decode") != NULL &&
			   strstr(output, "1 prefills, 2 decode\n") != NULL,
		   "%s", output);
	it_require(count_equal(output) == 4 && strstr(output, "  NO, ") == NULL, "%s", output);
	line = strstr(output, "all, median");
	line = line != NULL ? strchr(line, '\n') : NULL;
	it_require(line != NULL &&
			   sscanf(line, " %u sequences (%u pages) were handed over", &n_sequences, &n_pages) == 2,
		   "%s", output);
	/* The long prompt alone has more than 128 tokens. */
	it_require(n_sequences == 4 && n_pages > 128 / 16 + 3, "%s", output);
	it_require(strstr(output, "kill -9") == NULL, "%s", output);
	stop(&daemon);
}

IT_TEST(answers_outlive_the_killed_prefill_worker)
{
	static const char *const command[] = {
		LLAMA,      "--split=20",        "--workers",    "2",  "--kill", "0", "--prompt", LONG_PROMPT,
		"--prompt", "What is 2 plus 2?", "--max-tokens", "16", NULL
	};
	struct it_daemon daemon;
	const char *output;
	int code;

	start(&daemon);
	output = it_command(&code, command);
	it_require(code == 0 && count_equal(output) == 2, "%s", output);
	it_require(strstr(output, "1 prefills, 1 decodes\n") != NULL, "%s", output);
	it_require(strstr(output, "kill -9 worker 0 between its last give and the adopt: the ") != NULL, "%s", output);
	stop(&daemon);
}

/* The first token ends the answer: there is nothing to hand over. */
IT_TEST(answers_of_one_token_stay_with_the_prefill_worker)
{
	static const char *const command[] = { LLAMA,      "--split=1", "--workers",    "2", "--prompt", "a",
					       "--prompt", "b",         "--max-tokens", "1", "--kill",   "0",
					       NULL };
	struct it_daemon daemon;
	const char *output;
	int code;

	start(&daemon);
	output = it_command(&code, command);
	it_require(code == 0 && count_equal(output) == 2, "%s", output);
	it_require(strstr(output, "0 sequences (0 pages) were handed over") != NULL, "%s", output);
	it_require(strstr(output, "kill -9") == NULL, "%s", output);
	stop(&daemon);
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
	refuse((const char *const[]){ LLAMA, "--model", "x", "--split", "--prompt", "a", NULL },
	       "--split needs at least 2 workers; there are 0");
	refuse((const char *const[]){ LLAMA, "--model", "x", "--split=0", "--prompt", "a", NULL },
	       "--split 0: a number from 1 to 60000 is expected");
	refuse((const char *const[]){ LLAMA, "--model", "x", "--split", "--workers", "2", "--prompt", "a", "--prompt",
				      "b", "--kill", "1", NULL },
	       "--kill 1: --split kills only worker 0, which prefills");
	refuse((const char *const[]){ LLAMA, "--model", "x", "--split", "--workers", "2", "--prompt", "a", "--prompt",
				      "b", "--verify", NULL },
	       "--split excludes --share, --verify and --report");
}

IT_MAIN
