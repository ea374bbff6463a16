/* SPDX-License-Identifier: Apache-2.0 */
/**
 * harness.h - real daemons and real worker processes for the it_* programs
 *
 * A program lists its tests with IT_TEST(name) { ... } and links harness.c,
 * which has main() and prints TAP.  Each test runs in a child process of its
 * own with a time limit; whatever it left running is killed afterwards.  A
 * test fails by it_require(), by a signal, by running out of time, by a
 * sanitizer's report (its own or its daemon's), or by leaving processes or
 * descriptors.
 *
 *   program            all tests
 *   program NAME...    these tests
 *   PAGED_KEEP=1       keeps the runtime directories
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
	unsigned int limit_s;
	struct it_test *next;
};

void it_register(struct it_test *test);

/* A test with a time limit in seconds. */
#define IT_TEST_LIMIT(test_name, limit)                                                       \
	static void it_run_##test_name(void);                                                 \
	__attribute__((constructor)) static void it_register_##test_name(void)                \
	{                                                                                     \
		static struct it_test test = { #test_name, it_run_##test_name, limit, NULL }; \
		it_register(&test);                                                           \
	}                                                                                     \
	static void it_run_##test_name(void)
#define IT_TEST(test_name) IT_TEST_LIMIT(test_name, 60)

/** Ends the test (in whichever process) with a message unless the condition holds. */
#define it_require(condition, ...)                                                \
	do {                                                                      \
		if (!(condition))                                                 \
			it_fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__); \
	} while (0)
void it_fail(const char *file, int line, const char *condition, const char *format, ...)
	__attribute__((noreturn, format(printf, 4, 5)));

/** Ends the test as skipped; the reason is shown.  Call it in the test's own process. */
void it_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** A line for people: "# ..." */
void it_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Daemons */

struct it_daemon {
	pid_t pid;
	char dir[64];    /* runtime directory, removed at the test's end */
	char config[96]; /* DIR/pagedd.conf */
	char log[96];    /* DIR/log: what it wrote to stderr */
};

/**
 * it_daemon_start - a pagedd with this configuration text, ready for clients
 *
 * @param[in] program      NULL: pagedd; else a program of the build tree ("tests/pagedd-faults")
 * @param[in] environment  "NAME=value" strings ended by NULL, or NULL
 */
void it_daemon_start(struct it_daemon *daemon, const char *configuration, const char *program,
		     const char *const *environment);

/** it_daemon_start_failing - as above for a start that must fail; returns what it wrote to stderr (static buffer) */
const char *it_daemon_start_failing(struct it_daemon *daemon, const char *configuration);

/** it_daemon_restart - a new life in the same directory, with the same configuration */
void it_daemon_restart(struct it_daemon *daemon, const char *program, const char *const *environment);

/**
 * it_daemon_try_restart - as above, with an empty log, for a start that may fail in good order
 *
 * @param[out] output_p  when it failed: what it wrote to stderr (static buffer)
 */
bool it_daemon_try_restart(struct it_daemon *daemon, const char *const *environment, const char **output_p);

/** it_daemon_stop - SIGTERM; must exit with 0 and without a sanitizer's report */
void it_daemon_stop(struct it_daemon *daemon);

/** it_daemon_kill - SIGKILL */
void it_daemon_kill(struct it_daemon *daemon);

/** The log has this text; waits up to 5 s for it. */
bool it_daemon_logged(const struct it_daemon *daemon, const char *text);

/* Processes */

struct it_worker {
	pid_t pid;
	int to;   /* write here to be read by the worker's `from` */
	int from; /* what the worker wrote */
};

/** it_fork - run a function in a child with a pipe each way; the child exits 0 when it returns */
void it_fork(struct it_worker *worker, void (*run)(int from, int to, void *argument), void *argument);

/** it_say, it_hear - whole objects through the pipes; hearing end-of-file or waiting past 30 s fails the test */
void it_say(int fd, const void *data, size_t size);
void it_hear(int fd, void *data, size_t size);

/** it_join - wait for the worker; the test fails unless it exited with 0 */
void it_join(struct it_worker *worker);

/** it_wait_signal - wait for the worker, which something else kills; the signal that did */
int it_wait_signal(struct it_worker *worker);

/** it_kill - SIGKILL and wait */
void it_kill(struct it_worker *worker);

/** it_command - run a program of the build tree ("pagedctl/pagedctl"); its output (static buffer) and exit code */
const char *it_command(int *exit_code, const char *const *argv);

/** it_pagedctl - its output (static buffer) and exit code; the words end with NULL */
const char *it_pagedctl(int *exit_code, ...) __attribute__((sentinel));

/** Wait until a condition holds, polling every millisecond; false after limit_ms. */
bool it_wait(bool (*holds)(void *argument), void *argument, unsigned int limit_ms);

/* Facts about a process */

unsigned int it_count_fds(pid_t pid);
/** Resident anonymous memory, KiB: the heap, not the memfds, whoever else maps them. */
unsigned long it_private_kib(pid_t pid);
unsigned long it_rss_kib(pid_t pid);

/** Built with AddressSanitizer: memory that was freed is kept, so growth says nothing. */
bool it_sanitized(void);

/** A path in the build tree (static buffer). */
const char *it_build_path(const char *name);

/** Monotonic milliseconds. */
uint64_t it_now_ms(void);

#endif
