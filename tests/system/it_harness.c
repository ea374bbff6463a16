/* SPDX-License-Identifier: Apache-2.0 */
/* The harness itself (tests/support/harness.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/harness.h"

#define PROGRAM "tests/system/it_harness"

static unsigned int
times_in(const char *text, const char *part)
{
	unsigned int n = 0;

	for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
		n++;
	return n;
}

/* A process that has been killed ends when its memory is free, which takes tens of milliseconds for 512 MiB. */
static void __attribute__((noreturn)) slow_end_hang(void)
{
	size_t size = 512u << 20;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	it_require(memory != MAP_FAILED, "%m");
	madvise(memory, size, MADV_NOHUGEPAGE);
	memset(memory, 1, size);
	for (;;)
		pause();
}

/* Runs itself as a test that does not end. */
IT_TEST(a_hung_test_is_killed_and_noted_once)
{
	const char *const argv[] = { PROGRAM, "a_hung_test_is_killed_and_noted_once", NULL };
	const char *output;
	int code;

	if (getenv("HARNESS_HANGS") != NULL)
		slow_end_hang();
	setenv("HARNESS_HANGS", "1", 1);
	setenv("PAGED_TEST_LIMIT", "2", 1);
	output = it_command(&code, argv);
	it_require(code == 1 && times_in(output, "not ok 1 - a_hung_test_is_killed_and_noted_once\n") == 1, "%s",
		   output);
	it_require(times_in(output, ": no end after 2 s\n") == 1, "%s", output);
}

IT_OPT_IN_TEST(HARNESS_OPT_IN, an_opt_in_test_has_its_variable)
{
	it_require(strcmp(getenv("HARNESS_OPT_IN"), "1") == 0);
}

IT_TEST(opt_in_tests_run_apart)
{
	const char *const argv[] = { PROGRAM, "--list", NULL };
	const char *output;
	int code;

	it_require(getenv("HARNESS_OPT_IN") == NULL);
	setenv("PAGED_TEST_OPT_IN", "HARNESS_OPT_IN", 1);
	output = it_command(&code, argv);
	it_require(code == 0 && strcmp(output, "an_opt_in_test_has_its_variable\n") == 0, "%s", output);
	setenv("PAGED_TEST_OPT_IN", "none", 1);
	output = it_command(&code, argv);
	it_require(code == 0 && strstr(output, "opt_in_tests_run_apart\n") != NULL, "%s", output);
	it_require(strstr(output, "an_opt_in_test_has_its_variable\n") == NULL, "%s", output);
	unsetenv("PAGED_TEST_OPT_IN");
	output = it_command(&code, argv);
	it_require(code == 0 && times_in(output, "\n") == 3, "%s", output);
}

IT_MAIN
