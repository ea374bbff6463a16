/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Descriptors in the child. */
enum { PROBE_FD = 3, PROBE_MEMORY_FD = 4 };

/* Time for the child; the first use of an idle device takes seconds. */
#define LIMIT_MS 60000

extern char **environ;

int
probe_main(void)
{
	struct paged_error error = { .status = PAGED_OK };
	struct cuda_import import;
	struct cuda_share share;
	struct cuda_gpu gpu;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (recv(PROBE_FD, &share, sizeof(share), 0) != (ssize_t)sizeof(share)) {
		fprintf(stderr, "pagedd: %s is for pagedd itself\n", PROBE_ARGUMENT);
		return 2;
	}
	if (cuda_gpu_open_uuid(&gpu, &share.device, &error) == PAGED_OK) {
		if (cuda_import_open(&gpu, &share, PROBE_MEMORY_FD, &import, &error) == PAGED_OK)
			cuda_import_close(&gpu, &import);
		cuda_gpu_close(&gpu);
	}
	return send(PROBE_FD, &error, sizeof(error), MSG_NOSIGNAL) == (ssize_t)sizeof(error) ? EXIT_SUCCESS
											     : EXIT_FAILURE;
}

/*
 * Starts the child with both descriptors at their numbers.  The sources are
 * first duplicated above them, so that no dup2() overwrites the other source.
 * The results of dup2() are not closed on exec.
 */
static int
probe_spawn(int channel, int memory_fd, pid_t *pid_p)
{
	char *const arguments[] = { "pagedd", PROBE_ARGUMENT, NULL };
	posix_spawn_file_actions_t actions;
	int high = fcntl(channel, F_DUPFD_CLOEXEC, PROBE_MEMORY_FD + 1), result;
	int high_memory = memory_fd >= 0 ? fcntl(memory_fd, F_DUPFD_CLOEXEC, PROBE_MEMORY_FD + 1) : -1;

	if (high < 0 || (memory_fd >= 0 && high_memory < 0)) {
		result = errno;
		goto out;
	}
	result = posix_spawn_file_actions_init(&actions);
	if (result != 0)
		goto out;
	result = posix_spawn_file_actions_adddup2(&actions, high, PROBE_FD);
	if (result == 0 && memory_fd >= 0)
		result = posix_spawn_file_actions_adddup2(&actions, high_memory, PROBE_MEMORY_FD);
	if (result == 0)
		result = posix_spawn(pid_p, "/proc/self/exe", &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
out:
	if (high >= 0)
		close(high);
	if (high_memory >= 0)
		close(high_memory);
	return result;
}

/* Receives the child's status; fails if it ends or times out without one. */
static enum paged_status
probe_receive(int channel, struct paged_error *error)
{
	struct pollfd readable = { .fd = channel, .events = POLLIN };
	struct paged_error answer;
	int n;

	do
		n = poll(&readable, 1, LIMIT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return paged_fail(error, PAGED_ERR_TIMEOUT, "a child process did not open the memory within %d s",
				  LIMIT_MS / 1000);
	if (n < 0 || recv(channel, &answer, sizeof(answer), 0) != (ssize_t)sizeof(answer))
		return paged_fail(error, PAGED_ERR_SYSTEM, "a child process ended while it opened the memory");
	if (answer.status == PAGED_OK)
		return PAGED_OK;
	return paged_fail(error, answer.status, "no other process can open the memory: %s", answer.text);
}

enum paged_status
probe_export(const struct cuda_share *share, int fd, struct paged_error *error)
{
	enum paged_status status;
	int channel[2], result;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "socketpair: %m");
	result = probe_spawn(channel[1], fd, &pid);
	close(channel[1]);
	if (result != 0) {
		status = paged_fail(error, PAGED_ERR_SYSTEM, "starting a child process: %s", strerror(result));
		goto out;
	}
	/* An error is ignored: if the child has ended already, probe_receive() fails. */
	send(channel[0], share, sizeof(*share), MSG_NOSIGNAL);
	status = probe_receive(channel[0], error);
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
out:
	close(channel[0]);
	return status;
}
