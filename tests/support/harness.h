/* SPDX-License-Identifier: Apache-2.0 */
/**
 * harness.h - runs real daemons and real worker processes for the it_* programs
 *
 * A program lists its tests with IT_TEST(name) { ... } and ends with IT_MAIN,
 * which runs them and prints TAP.  Each test runs in its own child process
 * with a time limit; the harness kills processes that the test left running.
 * A test fails if it_require() fails, a signal kills it, its time runs out, a
 * sanitizer reports an error in it or in its daemon, or it leaves processes or
 * descriptors behind.
 *
 * A test passes however slow the machine is.  It waits for what must happen by
 * it_wait(), it_readable() and it_receive(), never by a sleep, and requires an
 * order of events, not a duration.  Calls of clients and of pagedctl wait up
 * to IT_LIMIT_MS; a test whose subject is the time limit sets its own, by
 * worker_set_timeout() or PAGED_TIMEOUT_MS.
 *
 *   program                    all tests
 *   program NAME...            these tests
 *   program --list             prints their names
 *   program --in-process NAME  runs this test in the program's own process and without a time limit, for debuggers
 *                              and NVIDIA's tools, which do not follow fork().  A test that starts workers is skipped
 *   PAGED_KEEP=1               keeps the runtime directories
 *   PAGED_TEST_WRAPPER=PROGRAM runs the daemons: its arguments are the daemon's command
 *   PAGED_TEST_LIMIT=SECONDS   ends tests after this time; default: 1800
 *   PAGED_TEST_OPT_IN=none     only what is on by default: the tests of IT_TEST()
 *   PAGED_TEST_OPT_IN=VARIABLE only the tests of IT_OPT_IN_TEST(VARIABLE); unset: all
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct it_test {
	const char *name;
	void (*run)(void);
	const char *variable; /* NULL: of what is on by default */
	struct it_test *next;
};

void it_register(struct it_test *test);

/* How long a test waits for something that must happen.  It ends tests that hang, and decides no other result. */
#define IT_LIMIT_MS 300000

#define IT_TEST_OF(test_name, variable)                                                          \
	static void it_run_##test_name(void);                                                    \
	__attribute__((constructor)) static void it_register_##test_name(void)                   \
	{                                                                                        \
		static struct it_test test = { #test_name, it_run_##test_name, variable, NULL }; \
		it_register(&test);                                                              \
	}                                                                                        \
	static void it_run_##test_name(void)

#define IT_TEST(test_name) IT_TEST_OF(test_name, NULL)

/**
 * IT_OPT_IN_TEST - a test of what an environment variable turns on, which is 1 while the test runs
 *
 * What is off by default may not work yet on this machine's GPU, so these tests can be run apart (PAGED_TEST_OPT_IN).
 */
#define IT_OPT_IN_TEST(variable, test_name) IT_TEST_OF(test_name, #variable)

int it_main(int argc, char **argv);
#define IT_MAIN                             \
	int main(int argc, char **argv)     \
	{                                   \
		return it_main(argc, argv); \
	}

/** Fails and ends the test with a message unless the condition holds; any process of the test may call it. */
#define it_require(condition, ...)                                                \
	do {                                                                      \
		if (!(condition))                                                 \
			it_fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__); \
	} while (0)
void it_fail(const char *file, int line, const char *condition, const char *format, ...)
	__attribute__((noreturn, format(printf, 4, 5)));

/** Ends the test as skipped and shows the reason.  Call it in the test's own process, not in a worker. */
void it_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** Whether the test runs in the program's own process (--in-process). */
bool it_in_process(void);

/** Prints a TAP comment line: "# ..." */
void it_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Daemons */

struct it_daemon {
	pid_t pid;
	char dir[64];    /* runtime directory, removed at the test's end */
	char config[96]; /* DIR/pagedd.conf */
	char log[96];    /* DIR/log: the daemon's stderr */
};

/**
 * it_daemon_start - start a pagedd with this configuration text; returns when it is ready for clients
 *
 * @param[in] program      NULL: pagedd; else a program of the build tree ("tests/daemon/pagedd-faults")
 * @param[in] environment  "NAME=value" strings ended by NULL, or NULL
 */
void it_daemon_start(struct it_daemon *daemon, const char *configuration, const char *program,
		     const char *const *environment);

/** it_daemon_start_failing - start a pagedd that must fail to start; returns its stderr (static buffer) */
const char *it_daemon_start_failing(struct it_daemon *daemon, const char *configuration);

/** it_daemon_restart - start a new daemon process in the same directory with the same configuration */
void it_daemon_restart(struct it_daemon *daemon, const char *program, const char *const *environment);

/**
 * it_daemon_try_restart - empty the log and restart a daemon that may exit with an error
 *
 * @param[out] output_p  on failure: the daemon's stderr (static buffer)
 */
bool it_daemon_try_restart(struct it_daemon *daemon, const char *const *environment, const char **output_p);

/** it_daemon_stop - SIGTERM; must exit with 0 and without a sanitizer's report */
void it_daemon_stop(struct it_daemon *daemon);

/** it_daemon_kill - SIGKILL */
void it_daemon_kill(struct it_daemon *daemon);

/** it_daemon_logged - whether the log contains this text within IT_LIMIT_MS */
bool it_daemon_logged(const struct it_daemon *daemon, const char *text);

/** it_daemon_log_has - whether the log contains this text now */
bool it_daemon_log_has(const struct it_daemon *daemon, const char *text);

/* Processes */

struct it_worker {
	pid_t pid;
	int to;   /* the worker reads this pipe as its `from` */
	int from; /* the worker writes this pipe as its `to` */
};

/**
 * it_fork - run a function in a child with a pipe in each direction; the child exits 0 when the function returns
 *
 * With --in-process this skips the test.
 */
void it_fork(struct it_worker *worker, void (*run)(int from, int to, void *argument), void *argument);

/** it_send, it_receive - write, read a whole object; it_receive() fails the test on end-of-file or after IT_LIMIT_MS */
void it_send(int fd, const void *data, size_t size);
void it_receive(int fd, void *data, size_t size);

/** it_join - wait for the worker; the test fails unless it exited with 0 */
void it_join(struct it_worker *worker);

/** it_wait_signal - wait for a worker that a signal from elsewhere kills; returns the signal */
int it_wait_signal(struct it_worker *worker);

/** it_kill - SIGKILL and wait */
void it_kill(struct it_worker *worker);

/** it_command - run a program of the build tree ("pagedctl/pagedctl"); returns its output (static buffer) */
const char *it_command(int *exit_code, const char *const *argv);

/** it_pagedctl - run pagedctl with arguments that end with NULL; returns its output (static buffer) */
const char *it_pagedctl(int *exit_code, ...) __attribute__((sentinel));

/** it_wait - poll a condition every millisecond until it holds; false after IT_LIMIT_MS */
bool it_wait(bool (*holds)(void *argument), void *argument);

/** it_readable - wait until a descriptor is readable or its other side is closed; false after IT_LIMIT_MS */
bool it_readable(int fd);

/* Facts about a process */

unsigned int it_count_fds(pid_t pid);
/** Resident anonymous memory in KiB: includes the heap, excludes memfds, which other processes may map too. */
unsigned long it_private_kib(pid_t pid);
unsigned long it_rss_kib(pid_t pid);

/**
 * Whether the program is built with AddressSanitizer, which retains freed memory: memory growth proves no leak then.
 */
bool it_sanitized(void);

/** A path in the build tree (static buffer). */
const char *it_build_path(const char *name);

/** Monotonic milliseconds. */
uint64_t it_now_ms(void);

#endif
