/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sharing/observers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/base.h"
#include "bench/processes.h"

enum { EVENTS, TOP, READER, N_OBSERVERS };

static const char *const names[N_OBSERVERS] = { "paged-events", "pagedctl top", "their reader" };
static pid_t observers[N_OBSERVERS];

/* True in the child, which ends with this program. */
static bool
observer_started(int observer, pid_t pid)
{
	if (pid < 0)
		bench_die("fork: %m");
	observers[observer] = pid;
	return pid == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

/* The port in a line of the log of paged-events that says what it serves; 0: another line. */
static uint16_t
line_port(const char *line)
{
	const char *end = strstr(line, "/metrics\n");

	if (end == NULL)
		return 0;
	while (end > line && end[-1] != ':')
		end--;
	return (uint16_t)atoi(end);
}

/* Starts paged-events, waits until it has attached, and returns the port at which it serves metrics. */
static uint16_t
events_start(const char *program, const char *runtime_dir)
{
	char line[256] = "", endpoint[128];
	uint16_t port = 0;
	FILE *log;
	int fds[2];

	snprintf(endpoint, sizeof(endpoint), "ipc://%s/events", runtime_dir);
	if (pipe(fds) != 0)
		bench_die("pipe: %m");
	if (observer_started(EVENTS, fork())) {
		dup2(fds[1], STDERR_FILENO);
		execl(program, "paged-events", "--runtime-dir", runtime_dir, "--metrics-listen", "0", "--endpoint",
		      endpoint, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	log = fdopen(fds[0], "r"); /* stays open, for what is written to it later */
	if (log == NULL)
		bench_die("fdopen: %m");
	while (port == 0 || strstr(line, ": attached") == NULL) {
		if (fgets(line, sizeof(line), log) == NULL)
			bench_die("%s serves no metrics: %s", program, line);
		if (port == 0)
			port = line_port(line);
	}
	return port;
}

/* Starts pagedctl top in a terminal of its own, and returns the terminal. */
static int
top_start(const char *program, const char *runtime_dir)
{
	const struct winsize size = { .ws_row = 24, .ws_col = 80 };
	int terminal;

	if (observer_started(TOP, forkpty(&terminal, NULL, NULL, &size))) {
		setenv("TERM", "xterm-256color", 1);
		execl(program, "pagedctl", "--runtime-dir", runtime_dir, "top", (char *)NULL);
		_exit(127);
	}
	if (fcntl(terminal, F_SETFL, O_NONBLOCK) != 0)
		bench_die("a terminal: %m");
	return terminal;
}

static void
scrape(uint16_t port)
{
	static const char request[] = "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
	const struct sockaddr_in address = { .sin_family = AF_INET,
					     .sin_port = htons(port),
					     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char buffer[1 << 16];
	size_t n_read = 0;
	ssize_t n;

	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
	    write(fd, request, strlen(request)) != (ssize_t)strlen(request))
		_exit(1);
	while ((n = read(fd, buffer, sizeof(buffer))) > 0)
		n_read += (size_t)n;
	close(fd);
	if (n_read < 1000)
		_exit(1);
}

/* Reads what top draws, as a terminal would, and the metrics. */
static void __attribute__((noreturn)) reader_loop(uint16_t port, int terminal)
{
	char drawn[4096];

	for (;;) {
		scrape(port);
		while (read(terminal, drawn, sizeof(drawn)) > 0)
			;
		usleep(1000000 / BENCH_SCRAPES_A_SECOND);
	}
}

bool
bench_observers_start(const char *runtime_dir)
{
	const char *program; /* valid until the next bench_find_file() */
	uint16_t port;
	int terminal;

	if (bench_find_file("pagedctl/pagedctl") == NULL)
		return false;
	program = bench_find_file("events/paged-events");
	if (program == NULL)
		return false;
	port = events_start(program, runtime_dir);
	terminal = top_start(bench_find_file("pagedctl/pagedctl"), runtime_dir);
	if (observer_started(READER, fork()))
		reader_loop(port, terminal);
	bench_observers_pause();
	return true;
}

static void
observers_signal(int number)
{
	for (int i = 0; i < N_OBSERVERS; i++)
		if (kill(observers[i], number) != 0)
			bench_die("%s: %m", names[i]);
}

void
bench_observers_resume(void)
{
	observers_signal(SIGCONT);
}

void
bench_observers_pause(void)
{
	int status;

	observers_signal(SIGSTOP);
	for (int i = 0; i < N_OBSERVERS; i++)
		if (waitpid(observers[i], &status, WUNTRACED) != observers[i] || !WIFSTOPPED(status))
			bench_die("%s has ended", names[i]);
}

void
bench_observers_stop(void)
{
	observers_signal(SIGKILL);
	for (int i = 0; i < N_OBSERVERS; i++)
		waitpid(observers[i], NULL, 0);
}
