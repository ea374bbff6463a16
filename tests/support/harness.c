/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/support/harness.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/harness_internal.h"
#include "tests/fake-cuda/load.h"

#define EXIT_SKIPPED 77
/* The limit of a test without PAGED_TEST_LIMIT: a test may wait several times, and computes meanwhile. */
#define TEST_LIMIT_S 1800

static struct it_test *tests, **tests_end = &tests;

/* Shared with the tests' processes. */
static struct shared_state {
	char skip[256];    /* why one was skipped */
	char dirs[16][64]; /* to be removed */
	int n_dirs;
} * shared_state;

/* The test that runs in the program's own process; NULL: each test has a process. */
static const struct it_test *in_process;

void
it_register(struct it_test *test)
{
	*tests_end = test;
	tests_end = &test->next;
}

bool
it_in_process(void)
{
	return in_process != NULL;
}

static void
directory_remove(const char *dir)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf -- '%s'", dir);
	if (system(command) != 0)
		it_note("%s stays", dir);
}

static void
directories_remove(void)
{
	while (shared_state->n_dirs > 0) {
		shared_state->n_dirs--;
		if (getenv("PAGED_KEEP") == NULL)
			directory_remove(shared_state->dirs[shared_state->n_dirs]);
	}
}

/* Prints a test's outcome; `code` is the exit status of its process. */
static void
result_print(int number, const struct it_test *test, int code)
{
	if (code == EXIT_SKIPPED)
		printf("ok %d - %s # SKIP %s\n", number, test->name, shared_state->skip);
	else
		printf("%sok %d - %s\n", code == 0 ? "" : "not ", number, test->name);
}

/* The end of a test that failed or is skipped in the program's own process. */
static void __attribute__((noreturn)) in_process_end(int code)
{
	result_print(1, in_process, code);
	puts("1..1");
	directories_remove();
	fflush(stdout);
	_exit(code == EXIT_SKIPPED ? 0 : code);
}

uint64_t
it_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void
it_fail(const char *file, int line, const char *condition, const char *format, ...)
{
	va_list arguments;
	char text[1024];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("# %s:%d: %s%s%s\n", file, line, condition, text[1] ? ":" : "", text);
	if (in_process != NULL)
		in_process_end(1);
	fflush(stdout);
	_exit(1);
}

void
it_skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(shared_state->skip, sizeof(shared_state->skip), format, arguments);
	va_end(arguments);
	if (in_process != NULL)
		in_process_end(EXIT_SKIPPED);
	_exit(EXIT_SKIPPED);
}

void
it_note(const char *format, ...)
{
	va_list arguments;
	char text[1024];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("# %s\n", text);
	fflush(stdout);
}

bool
it_wait(bool (*holds)(void *argument), void *argument)
{
	uint64_t end = it_now_ms() + IT_LIMIT_MS;

	while (!holds(argument)) {
		if (it_now_ms() > end)
			return false;
		usleep(1000);
	}
	return true;
}

bool
it_readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, IT_LIMIT_MS) == 1;
}

const char *
it_build_path(const char *name)
{
	static char path[PATH_MAX];
	const char *dir = getenv("PAGED_BUILDDIR");

	snprintf(path, sizeof(path), "%s/%s", dir != NULL ? dir : ".", name);
	return path;
}

void
harness_read_file(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t n = 0;

	if (file != NULL) {
		n = fread(text, 1, size - 1, file);
		fclose(file);
	}
	text[n] = 0;
}

bool
harness_process_ended(void *argument)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)(*(pid_t *)argument), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

void
harness_remove_later(const char *dir)
{
	it_require(shared_state->n_dirs < 16);
	snprintf(shared_state->dirs[shared_state->n_dirs++], sizeof(shared_state->dirs[0]), "%s", dir);
}

/* Running tests */

/* The library closes what it opens, and nothing that a test starts outlives it.  A GPU's driver keeps descriptors. */
static void
leftovers_check(unsigned int n_fds)
{
	siginfo_t info = { 0 };

	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
		it_require(!"no process is left", "one is: %d", (int)info.si_pid);
	if (!fake_cuda_wanted())
		return;
	it_require(it_count_fds(getpid()) <= n_fds, "%u descriptors, %u before", it_count_fds(getpid()), n_fds);
}

static unsigned int
test_limit_s(void)
{
	const char *text = getenv("PAGED_TEST_LIMIT");
	unsigned long limit_s = text != NULL ? strtoul(text, NULL, 10) : 0;

	return limit_s > 0 ? (unsigned int)limit_s : TEST_LIMIT_S;
}

/* Clients and pagedctl wait as long as tests do, unless the test or its caller says otherwise. */
static void
timeout_set(void)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", IT_LIMIT_MS);
	setenv("PAGED_TIMEOUT_MS", text, 0);
}

static void
test_call(const struct it_test *test)
{
	if (test->variable != NULL)
		setenv(test->variable, "1", 1);
	test->run();
}

/* The test's process, its daemon and workers share a process group. */
static int
test_run(const struct it_test *test)
{
	unsigned int limit_s = test_limit_s();
	uint64_t end = it_now_ms() + limit_s * 1000ull;
	bool is_killed = false;
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		unsigned int n_fds = it_count_fds(getpid());

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		test_call(test);
		leftovers_check(n_fds);
		fflush(stdout);
		exit(0);
	}
	setpgid(pid, pid);
	while (!harness_process_ended(&pid)) {
		/* Once: a process may end seconds later, when the driver has ended its kernels. */
		if (!is_killed && it_now_ms() > end) {
			it_note("%s: no end after %u s", test->name, limit_s);
			kill(-pid, SIGKILL);
			is_killed = true;
		}
		usleep(1000);
	}
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	return status;
}

static bool
is_selected(const struct it_test *test, int argc, char **argv)
{
	const char *opt_in = getenv("PAGED_TEST_OPT_IN");

	if (opt_in != NULL && strcmp(opt_in, test->variable != NULL ? test->variable : "none") != 0)
		return false;
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], test->name) == 0)
			return true;
	return argc == 1;
}

/* Returns from main() when the test has passed, because tools report at exit. */
static int
in_process_run(const char *name)
{
	const struct it_test *test = tests;

	while (test != NULL && strcmp(test->name, name) != 0)
		test = test->next;
	if (test == NULL) {
		fprintf(stderr, "no test %s; --list prints the names\n", name);
		return 2;
	}
	in_process = test;
	test_call(test);
	result_print(1, test, 0);
	puts("1..1");
	directories_remove();
	return 0;
}

static int
tests_list(void)
{
	for (const struct it_test *test = tests; test != NULL; test = test->next)
		if (is_selected(test, 1, NULL))
			puts(test->name);
	return 0;
}

int
it_main(int argc, char **argv)
{
	int number = 0, n_failed = 0;

	shared_state = mmap(NULL, sizeof(*shared_state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared_state == MAP_FAILED)
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	timeout_set();
	if (argc == 2 && strcmp(argv[1], "--list") == 0)
		return tests_list();
	if (argc == 3 && strcmp(argv[1], "--in-process") == 0)
		return in_process_run(argv[2]);
	for (const struct it_test *test = tests; test != NULL; test = test->next) {
		int status, code;

		if (!is_selected(test, argc, argv))
			continue;
		status = test_run(test);
		code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		if (code != 0 && code != EXIT_SKIPPED)
			it_note("%s: wait status %x", test->name, (unsigned int)status);
		result_print(++number, test, code);
		n_failed += code != 0 && code != EXIT_SKIPPED;
		directories_remove();
	}
	printf("1..%d\n", number);
	return n_failed != 0;
}
