/* SPDX-License-Identifier: Apache-2.0 */
/* pagedctl --watch: what ends it, and with which exit status; output to a pipe, a terminal and a full disk. */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"

/* A pagedctl that runs while the test does. */
struct watcher {
	pid_t pid;
	int out; /* the reading end of its standard output */
	int err; /* of its standard error */
	char text[65536];
	size_t n;
};

static void
watcher_exec(int out, int err, const char *const *arguments)
{
	const char *argv[16] = { it_build_path("pagedctl/pagedctl") };
	size_t n = 1;

	while (*arguments != NULL)
		argv[n++] = *arguments++;
	dup2(out, 1);
	dup2(err, 2);
	execv(argv[0], (char *const *)argv);
	_exit(127);
}

/* Starts pagedctl with these arguments; out: its standard output, or -1: a pipe. */
static void
watcher_start(struct watcher *watcher, int out, const char *const *arguments)
{
	int out_pipe[2] = { -1, out }, err_pipe[2];

	it_require((out >= 0 || pipe2(out_pipe, O_CLOEXEC) == 0) && pipe2(err_pipe, O_CLOEXEC) == 0, "%m");
	watcher->pid = fork();
	it_require(watcher->pid >= 0, "%m");
	if (watcher->pid == 0)
		watcher_exec(out_pipe[1], err_pipe[1], arguments);
	if (out < 0)
		close(out_pipe[1]);
	close(err_pipe[1]);
	watcher->out = out_pipe[0];
	watcher->err = err_pipe[0];
	watcher->n = 0;
	watcher->text[0] = '\0';
}

#define watcher_run(watcher, ...) watcher_start(watcher, -1, (const char *const[]){ __VA_ARGS__, NULL })

/* Reads standard output until it has the text n times. */
static void
watcher_read_until(struct watcher *watcher, const char *text, unsigned int n)
{
	for (;;) {
		const char *at = watcher->text;
		unsigned int found = 0;

		while ((at = strstr(at, text)) != NULL) {
			at += strlen(text);
			found++;
		}
		if (found >= n)
			return;
		it_require(it_readable(watcher->out), "%s", watcher->text);
		ssize_t size = read(watcher->out, watcher->text + watcher->n, sizeof(watcher->text) - watcher->n - 1);
		it_require(size > 0, "%s", watcher->text);
		watcher->n += (size_t)size;
		watcher->text[watcher->n] = '\0';
	}
}

/* Waits for the end; returns standard error (static buffer). */
static const char *
watcher_end(struct watcher *watcher, int expected_code)
{
	static char text[4096];
	size_t n = 0;
	ssize_t size;
	int status;

	while ((size = read(watcher->err, text + n, sizeof(text) - n - 1)) > 0)
		n += (size_t)size;
	text[n] = '\0';
	it_require(waitpid(watcher->pid, &status, 0) == watcher->pid);
	it_require(WIFEXITED(status) && WEXITSTATUS(status) == expected_code, "wait status %x: %s",
		   (unsigned int)status, text);
	close(watcher->err);
	if (watcher->out >= 0)
		close(watcher->out);
	return text;
}

static struct it_daemon
watched_daemon(void)
{
	struct it_daemon daemon;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	return daemon;
}

IT_TEST(lists_repeat_until_a_signal)
{
	struct it_daemon daemon = watched_daemon();
	struct worker_fixture worker;
	struct watcher watcher;

	watcher_run(&watcher, "--watch", "0.1", "sequences");
	watcher_read_until(&watcher, "POOL", 2);
	it_require(strstr(watcher.text, "\n\n20") != NULL, "a blank line and the time: %s", watcher.text);
	it_require(strstr(watcher.text, "\033") == NULL, "a pipe is no screen: %s", watcher.text);
	/* A later list has what happened meanwhile. */
	worker_open(&worker, NULL, 0);
	worker_create_seq(&worker, 5);
	watcher_read_until(&watcher, "test  0.1", 1);
	worker_close(&worker);
	kill(watcher.pid, SIGINT);
	it_require(watcher_end(&watcher, 0)[0] == '\0');

	watcher_run(&watcher, "--json", "--watch", "0.1", "status");
	watcher_read_until(&watcher, "\n", 3);
	it_require(strncmp(watcher.text, "{\"version\":", 11) == 0 && strstr(watcher.text, "}\n{") != NULL, "%s",
		   watcher.text);
	kill(watcher.pid, SIGTERM);
	it_require(watcher_end(&watcher, 0)[0] == '\0');
	it_daemon_stop(&daemon);
}

/* These do not wait for the end of the interval, which is longer than the test's time limit. */
IT_TEST(reader_or_daemon_ends)
{
	struct it_daemon daemon = watched_daemon();
	struct watcher watcher;
	const char *error;

	watcher_run(&watcher, "--watch", "3600", "sessions");
	watcher_read_until(&watcher, "SESSION", 1);
	close(watcher.out);
	watcher.out = -1;
	it_require(watcher_end(&watcher, 0)[0] == '\0');

	/* The reader is gone while pagedctl writes. */
	watcher_run(&watcher, "--watch", "0.1", "pools");
	close(watcher.out);
	watcher.out = -1;
	it_require(watcher_end(&watcher, 0)[0] == '\0');

	watcher_run(&watcher, "--watch", "3600", "sessions");
	watcher_read_until(&watcher, "SESSION", 1);
	it_daemon_kill(&daemon);
	error = watcher_end(&watcher, 3);
	it_require(strncmp(error, "pagedctl: ", 10) == 0 && strchr(error, '\n') == error + strlen(error) - 1, "%s",
		   error);

	it_daemon_restart(&daemon, NULL, NULL);
	watcher_run(&watcher, "--watch", "3600", "sessions");
	watcher_read_until(&watcher, "SESSION", 1);
	it_daemon_stop(&daemon);
	watcher_end(&watcher, 3);
}

IT_TEST(terminal_is_cleared)
{
	static const char *const arguments[] = { "--watch", "0.1", "pools", NULL };
	struct it_daemon daemon = watched_daemon();
	struct watcher watcher;
	int master, slave;

	for (int dumb = 0; dumb < 2; dumb++) {
		setenv("TERM", dumb ? "dumb" : "xterm", 1);
		master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
		it_require(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0, "%m");
		slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
		it_require(slave >= 0, "%m");
		watcher_start(&watcher, slave, arguments);
		watcher.out = master;
		watcher_read_until(&watcher, dumb ? "POOL" : "\033[H\033[2J20", 2);
		it_require(dumb == (strchr(watcher.text, '\033') == NULL), "%s", watcher.text);
		kill(watcher.pid, SIGINT);
		watcher_end(&watcher, 0);
		close(slave);
	}
	it_daemon_stop(&daemon);
}

IT_TEST(refusals)
{
	static const char *const arguments[] = { "--watch", "0.1", "pools", NULL };
	struct it_daemon daemon = watched_daemon();
	struct watcher watcher;
	int full;

	watcher_run(&watcher, "--watch", "1", "kick", "3");
	it_require(strstr(watcher_end(&watcher, 2), "--watch goes with status, pools, sessions") != NULL);
	for (const char *const *bad = (const char *const[]){ "0", "-1", "nan", "1s", "86401", "", NULL }; *bad; bad++) {
		watcher_run(&watcher, "--watch", *bad, "pools");
		it_require(strstr(watcher_end(&watcher, 2), "is no number of seconds from 0.1 to 86400") != NULL);
	}
	full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	it_require(full >= 0, "%m");
	watcher_start(&watcher, full, arguments);
	it_require(strstr(watcher_end(&watcher, 1), "pagedctl: standard output: No space left on device") != NULL);
	close(full);
	it_daemon_stop(&daemon);
}

IT_MAIN
