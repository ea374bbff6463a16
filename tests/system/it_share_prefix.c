/* SPDX-License-Identifier: Apache-2.0 */
/* The example of a shared prompt: the second process finds what the first one published. */
#include <string.h>

#include "tests/support/geometry.h"
#include "tests/support/harness.h"

static void
run_example(const char *expected)
{
	static const char *const example[] = { "examples/share_prefix", NULL };
	int code;
	const char *output = it_command(&code, example);

	it_require(code == 0 && strcmp(output, expected) == 0, "%s", output);
}

IT_TEST(second_worker_computes_only_the_end)
{
	struct it_daemon daemon;

	it_daemon_start(&daemon,
			"pool llama {\n" LLAMA_POOL_SHAPE "\n"
			"    page-size = 16   size = 64MiB   max-length = 8192\n"
			"}\n",
			NULL, NULL);
	run_example("0 tokens were cached, 0 are shared, 600 were computed\n");
	run_example("592 tokens were cached, 592 are shared, 8 were computed\n");
	run_example("592 tokens were cached, 592 are shared, 8 were computed\n");
	it_daemon_stop(&daemon);
}

IT_MAIN
