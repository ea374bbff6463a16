/* SPDX-License-Identifier: Apache-2.0 */
/* The example of an engine with its own block manager: explicit page tables over one large sequence. */
#include <stdio.h>
#include <string.h>

#include "tests/support/geometry.h"
#include "tests/support/harness.h"

static const char *const example[] = { "examples/own_block_manager", NULL };

/* Run the program on a pool with this page size; returns its output and exit code. */
static const char *
run_example(struct it_daemon *daemon, unsigned int page_size, unsigned int max_length, int *code)
{
	char config[256];

	snprintf(config, sizeof(config),
		 "pool llama {\n" LLAMA_POOL_SHAPE "\n"
		 "    page-size = %u   size = 64MiB   max-length = %u\n"
		 "}\n",
		 page_size, max_length);
	it_daemon_start(daemon, config, NULL, NULL);
	return it_command(code, example);
}

IT_TEST(explicit_page_tables_equal_sequences)
{
	static const unsigned int page_size[] = { 1, 16, 24, 128 };

	for (size_t i = 0; i < sizeof(page_size) / sizeof(*page_size); i++) {
		struct it_daemon daemon;
		unsigned int n_pages = (1024 + page_size[i] - 1) / page_size[i];
		const char *output;
		char free_line[64];
		int code;

		output = run_example(&daemon, page_size[i], 8192, &code);
		it_require(code == 0, "%s", output);
		it_require(strstr(output, "request 0: 76 tokens") != NULL, "%s", output);
		it_require(strstr(output, "request 1: 139 tokens") != NULL, "%s", output);
		snprintf(free_line, sizeof(free_line), "\n%u of %u pages are free again\n", n_pages, n_pages);
		it_require(strstr(output, free_line) != NULL, "%s", output);
		output = it_pagedctl(&code, "status", NULL);
		it_require(code == 0 && strstr(output, " 0 sessions") != NULL, "%s", output);
		it_daemon_stop(&daemon);
	}
}

IT_TEST(large_sequence_is_bounded_by_max_length)
{
	struct it_daemon daemon;
	const char *output;
	int code;

	output = run_example(&daemon, 16, 512, &code);
	it_require(code == 1 && strstr(output, "a sequence may hold 512 tokens, 1024 requested") != NULL, "%s", output);
	it_daemon_stop(&daemon);
}

IT_MAIN
