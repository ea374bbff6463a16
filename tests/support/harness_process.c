/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes, commands, and facts about processes. */
#include "config.h"

#include "tests/support/harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness_internal.h"

void
it_fork(struct it_worker *worker, void (*run)(int from, int to, void *argument), void *argument)
{
	int down[2], up[2];

	if (it_in_process())
		it_skip("it starts workers, which --in-process does not");
	it_require(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0, "%m");
	fflush(stdout);
	worker->pid = fork();
	it_require(worker->pid >= 0, "%m");
	if (worker->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		run(down[0], up[1], argument);
		fflush(stdout);
		exit(0);
	}
	close(down[0]);
	close(up[1]);
	worker->to = down[1];
	worker->from = up[0];
}

void
it_send(int fd, const void *data, size_t size)
{
	it_require(write(fd, data, size) == (ssize_t)size, "%m");
}

void
it_receive(int fd, void *data, size_t size)
{
	size_t got = 0;

	while (got < size) {
		ssize_t n;

		it_require(it_readable(fd), "nothing heard");
		n = read(fd, (char *)data + got, size - got);
		it_require(n > 0, "the other side ended");
		got += (size_t)n;
	}
}

bool
it_sanitized(void)
{
#ifdef __SANITIZE_ADDRESS__
	return true;
#else
	return false;
#endif
}

static void
pipes_close(struct it_worker *worker)
{
	close(worker->to);
	close(worker->from);
	worker->pid = 0;
}

void
it_join(struct it_worker *worker)
{
	int status;

	it_require(waitpid(worker->pid, &status, 0) == worker->pid, "%m");
	it_require(status == 0, "worker ended with wait status %x", (unsigned int)status);
	pipes_close(worker);
}

int
it_wait_signal(struct it_worker *worker)
{
	int status;

	it_require(waitpid(worker->pid, &status, 0) == worker->pid, "%m");
	it_require(WIFSIGNALED(status), "worker ended with wait status %x", (unsigned int)status);
	pipes_close(worker);
	return WTERMSIG(status);
}

void
it_kill(struct it_worker *worker)
{
	kill(worker->pid, SIGKILL);
	waitpid(worker->pid, NULL, 0);
	pipes_close(worker);
}

const char *
it_command(int *exit_code, const char *const *argv)
{
	static char output[1 << 18];
	size_t used = 0;
	int pipe_fd[2], status;
	pid_t pid;
	ssize_t n;

	it_require(pipe2(pipe_fd, O_CLOEXEC) == 0, "%m");
	fflush(stdout);
	pid = fork();
	it_require(pid >= 0, "%m");
	if (pid == 0) {
		dup2(pipe_fd[1], 1);
		dup2(pipe_fd[1], 2);
		execv(it_build_path(argv[0]), (char *const *)argv);
		printf("%s: %m\n", it_build_path(argv[0]));
		fflush(stdout);
		_exit(127);
	}
	close(pipe_fd[1]);
	while ((n = read(pipe_fd[0], output + used, sizeof(output) - 1 - used)) > 0)
		used += (size_t)n;
	output[used] = 0;
	close(pipe_fd[0]);
	it_require(waitpid(pid, &status, 0) == pid);
	it_require(WIFEXITED(status), "%s ended with wait status %x", argv[0], (unsigned int)status);
	if (exit_code != NULL)
		*exit_code = WEXITSTATUS(status);
	return output;
}

const char *
it_pagedctl(int *exit_code, ...)
{
	const char *argv[16] = { "pagedctl/pagedctl" };
	va_list words;
	size_t n = 1;

	va_start(words, exit_code);
	while ((argv[n] = va_arg(words, const char *)) != NULL)
		it_require(++n < sizeof(argv) / sizeof(argv[0]));
	va_end(words);
	return it_command(exit_code, argv);
}

/* Facts */

unsigned int
it_count_fds(pid_t pid)
{
	unsigned int n = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	it_require(dir != NULL, "%s: %m", path);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* A line "NAME:  123 kB" of a file in /proc. */
static unsigned long
proc_kib(pid_t pid, const char *file, const char *name)
{
	char path[64], text[16384];
	const char *at;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	harness_read_file(path, text, sizeof(text));
	at = strstr(text, name);
	it_require(at != NULL, "%s has no %s", path, name);
	return strtoul(at + strlen(name), NULL, 10);
}

unsigned long
it_private_kib(pid_t pid)
{
	return proc_kib(pid, "status", "RssAnon:");
}

unsigned long
it_rss_kib(pid_t pid)
{
	return proc_kib(pid, "status", "VmRSS:");
}
