/* SPDX-License-Identifier: Apache-2.0 */
/* The example of a hand-over: the decode process continues on the pages that the prefill process wrote. */
#include <stdio.h>
#include <string.h>

#include "tests/support/geometry.h"
#include "tests/support/harness.h"

static const char *const example[] = { "examples/handover", NULL };

/* The rest of the output's line that begins with this text, without the newline; moves *output_p to the next line. */
static char *
line_after(char **output_p, const char *text)
{
	char *line = *output_p, *end = strchr(line, '\n');

	it_require(strncmp(line, text, strlen(text)) == 0 && end != NULL, "%s", line);
	*end = '\0';
	*output_p = end + 1;
	return line + strlen(text);
}

IT_TEST(decode_continues_on_the_pages_of_prefill)
{
	static const unsigned int page_sizes[] = { 1, 16, 128 };

	for (size_t i = 0; i < sizeof(page_sizes) / sizeof(*page_sizes); i++) {
		char config[256], output[4096], *rest = output, *written, *adopted, *extended;
		struct it_daemon daemon;
		int code;

		snprintf(config, sizeof(config),
			 "pool llama {\n" LLAMA_POOL_SHAPE "\n"
			 "    page-size = %u   size = 64MiB   max-length = 8192\n"
			 "}\n",
			 page_sizes[i]);
		it_daemon_start(&daemon, config, NULL, NULL);
		snprintf(output, sizeof(output), "%s", it_command(&code, example));
		it_require(code == 0, "%s", output);
		written = line_after(&rest, "prefill: 100 tokens in pages");
		adopted = line_after(&rest, "decode: 100 tokens in pages");
		extended = line_after(&rest, "decode: 120 tokens in pages");
		it_require(strcmp(written, adopted) == 0, "%s and %s", written, adopted);
		it_require(strncmp(extended, written, strlen(written)) == 0, "%s and %s", extended, written);
		it_require(strncmp(rest, "attention of the last token: 0.833333,", 38) == 0, "%s", rest);
		it_require(strstr(it_pagedctl(&code, "status", NULL), " 0 sessions") != NULL && code == 0);
		it_require(strstr(it_pagedctl(&code, "check", NULL), " + 0 referenced + ") != NULL && code == 0);
		it_daemon_stop(&daemon);
	}
}

IT_TEST(failure_of_prefill_ends_decode)
{
	struct it_daemon daemon;
	const char *output;
	int code;

	it_daemon_start(&daemon,
			"pool llama {\n" LLAMA_POOL_SHAPE "\n"
			"    page-size = 16   pages = 16   max-length = 64\n"
			"}\n",
			NULL, NULL);
	output = it_command(&code, example);
	it_require(code == 1 && strstr(output, "a sequence may hold 64 tokens, 100 requested") != NULL &&
			   strstr(output, "the prefill process ended without a ticket") != NULL,
		   "%s", output);
	it_daemon_stop(&daemon);
}

IT_MAIN
