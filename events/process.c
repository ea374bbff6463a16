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

/* What libzmq needs for one context and a few sockets, and each part one more thread. */
enum { N_THREADS = 4, N_FDS = 16 };

static bool
standard_descriptors_open(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR); /* the lowest that is free; not closed on exec, as the standard ones */
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Returns the errno of what libzmq's threads do first, or 0. */
static void *
thread_wait(void *barrier)
{
	struct sched_param param;
	int policy, result;

	/* All threads exist at a time. */
	pthread_mutex_lock(barrier);
	pthread_mutex_unlock(barrier);
	result = pthread_getschedparam(pthread_self(), &policy, &param);
	if (result == 0)
		result = pthread_setschedparam(pthread_self(), policy, &param);
	return (void *)(intptr_t)result;
}

/* The errno of creating all threads at a time, or of one of them; 0: they could be used. */
static int
threads_try(void)
{
	pthread_mutex_t barrier = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[N_THREADS];
	int n = 0, result = 0;
	void *own;

	pthread_mutex_lock(&barrier);
	while (n < N_THREADS && result == 0) {
		result = pthread_create(&threads[n], NULL, thread_wait, &barrier);
		n += result == 0;
	}
	pthread_mutex_unlock(&barrier);
	while (n > 0) {
		pthread_join(threads[--n], &own);
		result = result == 0 ? (int)(intptr_t)own : result;
	}
	return result;
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
	errno = threads_try();
	if (errno != 0) {
		events_log(EVENTS_LOG_ERROR, "process",
			   "no thread can be created: %m (limits: ulimit -u, pids.max of the control group, TasksMax; "
			   "a filter of "
			   "sched_setscheduler)");
		return false;
	}
	return true;
}
