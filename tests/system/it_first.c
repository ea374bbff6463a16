/* SPDX-License-Identifier: Apache-2.0 */
/* The first example, with the pool that README.md shows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness.h"

static void
read_source(const char *name, char *text, size_t size)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", getenv("PAGED_SRCDIR"), name);
	file = fopen(path, "re");
	it_require(file != NULL, "%s: %m", path);
	text[fread(text, 1, size - 1, file)] = 0;
	fclose(file);
}

IT_TEST(first_example_computes_attention)
{
	static const char *const first[] = { "examples/first", NULL };
	static char readme[1 << 16];
	char configuration[512], out[32], value[32], *pool, *size;
	struct it_daemon daemon;
	const char *output;
	int code;

	/* The pool that README.md shows, smaller. */
	read_source("README.md", readme, sizeof(readme));
	pool = strstr(readme, "    pool llama {");
	it_require(pool != NULL && (size = strstr(pool, "2GiB")) != NULL, "README.md shows no pool of 2GiB");
	*strstr(size, "\n\n") = '\0';
	snprintf(configuration, sizeof(configuration), "%.*s64MiB%s\n", (int)(size - pool), pool,
		 size + strlen("2GiB"));
	it_daemon_start(&daemon, configuration, NULL, NULL);
	output = it_command(&code, first);
	it_require(code == 0, "%s", output);
	it_require(sscanf(output, "out[0] = %31[^,], the first value = %31s", out, value) == 2, "%s", output);
	/* The pool holds f32. */
	it_require(strcmp(out, value) == 0, "%s", output);
	it_daemon_stop(&daemon);
}

IT_TEST(first_example_reports_a_missing_daemon)
{
	static const char *const first[] = { "examples/first", NULL };
	const char *output;
	int code;

	setenv("PAGED_RUNTIME_DIR", "/nonexistent/paged", 1);
	output = it_command(&code, first);
	it_require(code == 1, "%s", output);
	it_require(strstr(output, "no daemon at /nonexistent/paged: is pagedd running?") != NULL, "%s", output);
}

IT_MAIN
