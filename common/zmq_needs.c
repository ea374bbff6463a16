/* SPDX-License-Identifier: Apache-2.0 */
#include "common/zmq_needs.h"

#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A context has a thread for input and output and one that ends sockets, each with an epoll instance and a mailbox. */
enum { N_THREADS = 2, N_FDS = 8 };

static void *
barrier_wait(void *barrier)
{
	/* All threads exist at a time. */
	pthread_mutex_lock(barrier);
	pthread_mutex_unlock(barrier);
	return NULL;
}

static enum paged_status
threads_check(struct paged_error *error)
{
	pthread_mutex_t barrier = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[N_THREADS];
	int n = 0, result = 0;

	pthread_mutex_lock(&barrier);
	while (n < N_THREADS && result == 0) {
		result = pthread_create(&threads[n], NULL, barrier_wait, &barrier);
		n += result == 0;
	}
	pthread_mutex_unlock(&barrier);
	while (n > 0)
		pthread_join(threads[--n], NULL);
	if (result == 0)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_SYSTEM,
			  "no thread can be created: %s (limits: ulimit -u, pids.max of the control group, TasksMax)",
			  strerror(result));
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
