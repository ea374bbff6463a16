/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/admin/terminal_fixture.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

/* How long the screen may take to show what is expected. */
static char tmux_socket[128];
static pid_t server;
char screen[SCREEN_SIZE];

/* Runs tmux; returns its output (static buffer). */
const char *
tmux(const char *first, ...)
{
	static char output[1 << 16];
	const char *argv[32] = { "tmux", "-u", "-S", tmux_socket, "-f", "/dev/null", first };
	size_t n = 7, size = 0;
	va_list arguments;
	int fds[2], status;
	ssize_t got;
	pid_t pid;

	va_start(arguments, first);
	while ((argv[n] = va_arg(arguments, const char *)) != NULL)
		n++;
	va_end(arguments);
	it_require(pipe2(fds, O_CLOEXEC) == 0, "%m");
	pid = fork();
	it_require(pid >= 0, "%m");
	if (pid == 0) {
		dup2(fds[1], 1);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	close(fds[1]);
	while ((got = read(fds[0], output + size, sizeof(output) - size - 1)) > 0)
		size += (size_t)got;
	output[size] = '\0';
	close(fds[0]);
	it_require(waitpid(pid, &status, 0) == pid);
	it_require(status == 0, "tmux %s: wait status %x: %s", first, (unsigned int)status, output);
	return output;
}

void
screen_capture(void)
{
	snprintf(screen, sizeof(screen), "%s", tmux("capture-pane", "-p", NULL));
}

static bool
screen_has(void *text)
{
	screen_capture();
	return strstr(screen, text) != NULL;
}

static bool
screen_lacks(void *text)
{
	return !screen_has(text);
}

void
screen_wait(const char *text)
{
	it_require(it_wait(screen_has, (void *)(uintptr_t)text), "no \"%s\" in:\n%s", text, screen);
}

void
screen_wait_gone(const char *text)
{
	it_require(it_wait(screen_lacks, (void *)(uintptr_t)text), "\"%s\" is still in:\n%s", text, screen);
}

struct order {
	const char *first, *second;
};

static bool
screen_in_order(void *argument)
{
	const struct order *order = argument;
	const char *first;

	screen_capture();
	first = strstr(screen, order->first);
	return first != NULL && strstr(first, order->second) != NULL;
}

/* Waits until the one is before the other. */
void
screen_wait_order(const char *first, const char *second)
{
	struct order order = { first, second };

	it_require(it_wait(screen_in_order, &order), "\"%s\" is not before \"%s\" in:\n%s", first, second, screen);
}

void
screen_keys(const char *text)
{
	tmux("send-keys", text, NULL);
}

static bool
tmux_listens(void *argument)
{
	(void)argument;
	return access(tmux_socket, F_OK) == 0;
}

/* Starts tmux's server as a child of the test, which it does not outlive; its terminals then hang up. */
static void
server_start(const struct it_daemon *daemon)
{
	snprintf(tmux_socket, sizeof(tmux_socket), "%s/tmux", daemon->dir);
	server = fork();
	it_require(server >= 0, "%m");
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("tmux", "tmux", "-u", "-D", "-S", tmux_socket, "-f", "/dev/null", (char *)NULL);
		_exit(127);
	}
	it_require(it_wait(tmux_listens, NULL), "tmux does not start");
}

void
terminal_start(const struct it_daemon *daemon, const char *columns, const char *lines, const char *command)
{
	char text[PATH_MAX + 512];
	const char *at = strstr(command, "TOP");

	it_require(at != NULL);
	if (system("tmux -V >/dev/null 2>&1") != 0)
		it_skip("tmux is not installed");
	server_start(daemon);
	snprintf(text, sizeof(text), "%.*s'%s' top%s; echo \"ended with $?\"; sleep 1000", (int)(at - command), command,
		 it_build_path("pagedctl/pagedctl"), at + 3);
	tmux("new-session", "-d", "-x", columns, "-y", lines, text, NULL);
}

void
terminal_stop(void)
{
	tmux("kill-server", NULL);
	it_require(waitpid(server, NULL, 0) == server, "%m");
	unlink(tmux_socket);
}

/* The line of the screen that contains the text (static buffer). */
const char *
screen_line(const char *text)
{
	static char line[4096];
	const char *at = strstr(screen, text), *begin = at;

	it_require(at != NULL, "no \"%s\" in:\n%s", text, screen);
	while (begin > screen && begin[-1] != '\n')
		begin--;
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(begin, "\n"), begin);
	return line;
}

unsigned int
text_count(const char *text, const char *part)
{
	unsigned int n = 0;

	while ((text = strstr(text, part)) != NULL) {
		text += strlen(part);
		n++;
	}
	return n;
}

/* No line is wider than this, and there are as many lines. */
void
screen_expect_size(int n_columns, unsigned int n_lines)
{
	wchar_t wide[1024];

	screen_capture();
	it_require(text_count(screen, "\n") == n_lines, "%u lines:\n%s", text_count(screen, "\n"), screen);
	for (char *line = screen; *line != '\0'; line += strcspn(line, "\n") + 1) {
		char text[2048];

		snprintf(text, sizeof(text), "%.*s", (int)strcspn(line, "\n"), line);
		it_require(mbstowcs(wide, text, 1024) != (size_t)-1, "%s", text);
		it_require(wcswidth(wide, 1024) <= n_columns, "%s", text);
	}
}
