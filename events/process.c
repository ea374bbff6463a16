/* SPDX-License-Identifier: Apache-2.0 */
#include "events/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "events/log.h"

/* Epoll instances and eventfds of libzmq's context, threads and sockets. */
enum { N_FDS = 16 };

static bool
standard_descriptors_open(void)
{
	int fd = STDIN_FILENO;

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDWR); /* the lowest that is free; not closed on exec, as the standard ones */
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Each thread of libzmq sets its policy to what it is; returns its errno, or 0. */
static void *
policy_set(void *unused)
{
	struct sched_param param = { 0 };

	(void)unused;
	return (void *)(intptr_t)pthread_setschedparam(pthread_self(), SCHED_OTHER, &param);
}

/* The errno of creating a thread, or of what it does; 0: it could be used. */
static int
thread_try(void)
{
	pthread_t thread;
	void *refused;
	int result = pthread_create(&thread, NULL, policy_set, NULL);

	if (result != 0)
		return result;
	pthread_join(thread, &refused);
	return (int)(intptr_t)refused;
}

static int
descriptors_try(void)
{
	int fds[N_FDS], n = 0, result = 0;

	while (n < N_FDS && result == 0) {
		fds[n] = eventfd(0, EFD_CLOEXEC);
		result = fds[n] < 0 ? errno : 0;
		n += result == 0;
	}
	while (n > 0)
		close(fds[--n]);
	return result;
}

bool
process_prepare(void)
{
	if (!standard_descriptors_open()) {
		events_log(EVENTS_LOG_ERROR, "process", "/dev/null: %m");
		return false;
	}
	errno = descriptors_try();
	if (errno != 0) {
		events_log(EVENTS_LOG_ERROR, "process",
			   "fewer than %d descriptors are left: %m (ulimit -n, LimitNOFILE)", N_FDS);
		return false;
	}
	errno = thread_try();
	if (errno != 0) {
		events_log(EVENTS_LOG_ERROR, "process",
			   "no thread can be created: %m (limits: ulimit -u, pids.max of the control group, TasksMax; "
			   "a filter of "
			   "sched_setscheduler)");
		return false;
	}
	return true;
}
