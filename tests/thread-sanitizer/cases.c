/* SPDX-License-Identifier: Apache-2.0 */
/* The main program of unit tests in builds with ThreadSanitizer: runs each test in a fork, and prints TAP. */
#include "tests/thread-sanitizer/criterion/criterion.h"

#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit statuses of a test's process. */
enum { CASE_PASSED = 0, CASE_FAILED = 1, CASE_SKIPPED = 77 };

static struct test_case *cases;
static bool failed;

void
case_add(struct test_case *test)
{
	test->next = cases;
	cases = test;
}

/* No function that is registered for the end of the process runs: it belongs to the parent. */
static _Noreturn void
case_end(int status)
{
	fflush(NULL);
	_exit(status);
}

void
case_fail(bool fatal, const char *file, int line, const char *what, const char *format, ...)
{
	va_list arguments;

	printf("# %s:%d: %s", file, line, what);
	if (format != NULL) {
		printf(": ");
		va_start(arguments, format);
		vprintf(format, arguments);
		va_end(arguments);
	}
	printf("\n");
	if (fatal)
		case_end(CASE_FAILED);
	failed = true;
}

_Noreturn void
case_skip(const char *format, ...)
{
	va_list arguments;

	printf("# ");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	case_end(CASE_SKIPPED);
}

static const struct case_options *
suite_options(const char *suite)
{
	static const struct case_options none;

	for (const struct test_case *test = cases; test != NULL; test = test->next)
		if (test->name == NULL && strcmp(test->suite, suite) == 0)
			return &test->options;
	return &none;
}

static _Noreturn void
case_run(const struct test_case *test)
{
	const struct case_options *suite = suite_options(test->suite);
	void (*init)(void) = test->options.init != NULL ? test->options.init : suite->init;
	void (*fini)(void) = test->options.fini != NULL ? test->options.fini : suite->fini;

	if (init != NULL)
		init();
	test->run();
	if (fini != NULL)
		fini();
	fflush(NULL);
	/* ThreadSanitizer replaces the status of exit() if it has reported something. */
	if (failed)
		_exit(CASE_FAILED);
	exit(CASE_PASSED);
}

int
main(void)
{
	int n = 0, n_failed = 0, status;

	for (const struct test_case *test = cases; test != NULL; test = test->next) {
		pid_t pid;

		if (test->name == NULL || test->options.disabled)
			continue;
		fflush(NULL);
		pid = fork();
		if (pid == 0)
			case_run(test);
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			return 99;
		n++;
		if (WIFEXITED(status) && WEXITSTATUS(status) == CASE_SKIPPED) {
			printf("ok %d - %s::%s # SKIP\n", n, test->suite, test->name);
			continue;
		}
		if (WIFSIGNALED(status))
			printf("# ended by signal %d\n", WTERMSIG(status));
		n_failed += status != 0;
		printf("%s %d - %s::%s\n", status == 0 ? "ok" : "not ok", n, test->suite, test->name);
	}
	printf("1..%d\n", n);
	return n_failed != 0;
}
