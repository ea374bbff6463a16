/* SPDX-License-Identifier: Apache-2.0 */
/* paged-llama's workers on one daemon's pool, as tools/quickstart runs them; PAGED_MODEL names the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/geometry.h"
#include "tests/support/harness.h"

#define LLAMA "examples/llama/paged-llama"

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

static void
stop(struct it_daemon *daemon)
{
	static const char *const check[] = { "pagedctl/pagedctl", "check", NULL };
	const char *output;
	int code;

	output = it_command(&code, check);
	it_require(code == 0, "%s", output);
	it_require(strstr(output, " free + 0 referenced + ") != NULL &&
			   strstr(output, " + 0 quarantined: holds") != NULL,
		   "%s", output);
	it_daemon_stop(daemon);
}

IT_TEST(workers_give_the_private_caches_answers)
{
	static const char *const command[] = {
		LLAMA,      "--workers",         "2",        "--max-tokens",
		"12",       "--verify",          "--prompt", "What is the capital of France?",
		"--prompt", "What is 2 plus 2?", "--prompt", "Who wrote Hamlet?",
		NULL
	};
	struct it_daemon daemon;
	const char *output;
	int code;

	start(&daemon);
	output = it_command(&code, command);
	it_require(code == 0, "%s", output);
	it_require(strstr(output, "The capital of France is Paris.") != NULL, "%s", output);
	it_require(strstr(output, " yes\nworker 1 ") != NULL, "%s", output);
	stop(&daemon);
}

IT_TEST(pages_of_a_killed_worker_are_freed)
{
	static const char *const command[] = { LLAMA,
					       "--workers",
					       "2",
					       "--max-tokens",
					       "48",
					       "--kill",
					       "1",
					       "--prompt",
					       "What is the capital of France?",
					       "--prompt",
					       "Why is the sky blue?",
					       NULL };
	struct it_daemon daemon;
	const char *output;
	int code;

	start(&daemon);
	output = it_command(&code, command);
	it_require(code == 0, "%s", output);
	it_require(strstr(output, "kill -9 worker 1 in mid-answer: its ") != NULL, "%s", output);
	it_require(strstr(output, "worker 1    killed by signal 9") != NULL, "%s", output);
	it_require(strstr(output, "The capital of France is Paris.") != NULL, "%s", output);
	stop(&daemon);
}

/* A pool with one byte per element gives the same answer. */
IT_TEST(pools_of_8_bit_dtypes_answer)
{
	static const char *const dtypes[] = { "e4m3", "i8" };

	if (getenv("PAGED_MODEL") == NULL)
		it_skip("PAGED_MODEL names no model");
	for (int i = 0; i < 2; i++) {
		const char *const command[] = { LLAMA,      "--embedded=64", "--dtype",
						dtypes[i],  "--prompt",      "What is the capital of France?",
						"--verify", "--max-tokens",  "8",
						NULL };
		const char *output;
		int code;

		output = it_command(&code, command);
		it_require(code == 0 || code == 3, "%s", output);
		it_require(strstr(output, "The capital of France is Paris.") != NULL, "%s", output);
		it_require(strstr(output, "tokens may differ") != NULL, "%s", output);
	}
}

IT_TEST(unknown_pool_dtype_is_refused)
{
	static const char *const command[] = { LLAMA, "--model",  "/dev/null", "--embedded", "--dtype",
					       "f64", "--prompt", "a",         NULL };
	const char *output;
	int code;

	output = it_command(&code, command);
	it_require(code == 2 && strstr(output, "--dtype f64: f32, f16, bf16, e4m3, e5m2 or i8 is expected") != NULL,
		   "%s", output);
}

IT_TEST(kill_of_an_unknown_worker_is_refused)
{
	static const char *const command[] = { LLAMA, "--model",  "/dev/null", "--workers", "2", "--kill",
					       "2",   "--prompt", "a",         "--prompt",  "b", NULL };
	const char *output;
	int code;

	output = it_command(&code, command);
	it_require(code == 2, "%s", output);
	it_require(strstr(output, "--kill 2: there are 2 workers, from 0") != NULL, "%s", output);
}

IT_MAIN
