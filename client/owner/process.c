/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/owner/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Start time: field 22 of /proc/PID/stat, after a name that may contain spaces and parentheses.  0: cannot be read. */
static uint64_t
process_start_time(pid_t pid)
{
	char path[32], text[1024], *at;
	unsigned long long started;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	at = strrchr(text, ')');
	for (int field = 2; at != NULL && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at != NULL && sscanf(at, " %llu", &started) == 1 ? started : 0;
}

enum paged_status
process_self(struct process_name *name, struct paged_error *error)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct process_name self;
	enum paged_status status = PAGED_OK;

	pthread_mutex_lock(&lock);
	if (self.pid != getpid()) { /* the first call in this process, which may be a forked child */
		struct process_name fresh = { .pid = getpid(), .started = process_start_time(getpid()) };

		if (getrandom(&fresh.random, sizeof(fresh.random), 0) == (ssize_t)sizeof(fresh.random))
			self = fresh;
		else
			status = paged_fail(error, PAGED_ERR_SYSTEM, "getrandom: %s", strerror(errno));
	}
	*name = self;
	pthread_mutex_unlock(&lock);
	return status;
}

enum paged_status
process_watch(const struct process_name *name, int *pidfd_p, struct paged_error *error)
{
	int fd = name->pid > 0 ? (int)syscall(SYS_pidfd_open, name->pid, 0) : -1;
	uint64_t started;

	if (fd < 0 && name->pid > 0 && errno != ESRCH && errno != EINVAL) /* EINVAL: now the number of a thread */
		return paged_fail(error, PAGED_ERR_SYSTEM, "pidfd_open of process %d: %s", (int)name->pid,
				  strerror(errno));
	started = fd >= 0 ? process_start_time(name->pid) : 0;
	/* The start time tells the process from another that has reused its pid. */
	if (fd < 0 || process_ended(fd) || (name->started != 0 && started != 0 && started != name->started)) {
		if (fd >= 0)
			close(fd);
		return paged_fail(error, PAGED_ERR_GONE, "process %d has ended, or is in another PID namespace",
				  (int)name->pid);
	}
	*pidfd_p = fd;
	return PAGED_OK;
}

bool
process_ended(int pidfd)
{
	struct pollfd poll_fd = { .fd = pidfd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) != 0;
}
