/* SPDX-License-Identifier: Apache-2.0 */
#include "common/zmq_needs.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A context has a thread for input and output and one that ends sockets, each with an epoll instance and a mailbox. */
enum { N_THREADS = 2, N_FDS = 8 };

/* Returns the errno of what libzmq's threads do first, or 0. */
static void *
barrier_wait(void *barrier)
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

static enum paged_status
threads_check(struct paged_error *error)
{
	pthread_mutex_t barrier = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[N_THREADS];
	int n = 0, result = 0, refused = 0;
	void *own;

	pthread_mutex_lock(&barrier);
	while (n < N_THREADS && result == 0) {
		result = pthread_create(&threads[n], NULL, barrier_wait, &barrier);
		n += result == 0;
	}
	pthread_mutex_unlock(&barrier);
	while (n > 0) {
		pthread_join(threads[--n], &own);
		refused = own != NULL ? (int)(intptr_t)own : refused;
	}
	if (result != 0)
		return paged_fail(
			error, PAGED_ERR_SYSTEM,
			"no thread can be created: %s (limits: ulimit -u, pids.max of the control group, TasksMax)",
			strerror(result));
	if (refused != 0)
		return paged_fail(error, PAGED_ERR_SYSTEM,
				  "a thread may not set its own policy: sched_setscheduler: %s", strerror(refused));
	return PAGED_OK;
}

enum paged_status
zmq_needs_check(struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	int fds[N_FDS], n = 0;

	for (; n < N_FDS && status == PAGED_OK; n++) {
		fds[n] = n % 2 == 0 ? epoll_create1(EPOLL_CLOEXEC) : eventfd(0, EFD_CLOEXEC);
		if (fds[n] < 0)
			status =
				paged_fail(error, PAGED_ERR_SYSTEM, "%s: %m", n % 2 == 0 ? "epoll_create1" : "eventfd");
	}
	while (n > 0)
		if (fds[--n] >= 0)
			close(fds[n]);
	return status == PAGED_OK ? threads_check(error) : status;
}
