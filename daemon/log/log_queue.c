/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "daemon/log/log_queue.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

/* A line in the queue: its struct without the unused rest of the text. */
#define LINE_SIZE(line) (offsetof(struct log_line, text) + (line)->n)

static struct {
	pthread_t thread;
	pthread_mutex_t mutex; /* for all below; never held during a write */
	pthread_cond_t wanted, ended_cond;
	uint32_t first, n;   /* bytes of the ring that have lines */
	unsigned int n_lost; /* lines dropped after the last one in the ring */
	bool stopping, ended;
	uint8_t ring[LOG_QUEUE_SIZE];
} queue = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.wanted = PTHREAD_COND_INITIALIZER,
	.ended_cond = PTHREAD_COND_INITIALIZER,
};

static void
ring_append(const void *bytes, size_t size)
{
	size_t at = (queue.first + queue.n) % LOG_QUEUE_SIZE, n = MIN(size, LOG_QUEUE_SIZE - at);

	memcpy(queue.ring + at, bytes, n);
	memcpy(queue.ring, (const uint8_t *)bytes + n, size - n);
	queue.n += (uint32_t)size;
}

static void
ring_take(void *bytes, size_t size)
{
	size_t n = MIN(size, LOG_QUEUE_SIZE - (size_t)queue.first);

	memcpy(bytes, queue.ring + queue.first, n);
	memcpy((uint8_t *)bytes + n, queue.ring, size - n);
	queue.n -= (uint32_t)size;
	/* An empty ring begins at its start again, so that it uses no more memory than its longest queue took. */
	queue.first = queue.n == 0 ? 0 : (uint32_t)((queue.first + size) % LOG_QUEUE_SIZE);
}

void
log_queue_put(struct log_line *line)
{
	size_t reserved = line->level <= LOG_LEVEL_WARNING ? 0 : LOG_QUEUE_RESERVED;

	pthread_mutex_lock(&queue.mutex);
	if (queue.n + LINE_SIZE(line) + reserved > LOG_QUEUE_SIZE) {
		queue.n_lost++;
	} else {
		line->n_lost = queue.n_lost;
		queue.n_lost = 0;
		ring_append(line, LINE_SIZE(line));
		pthread_cond_signal(&queue.wanted);
	}
	pthread_mutex_unlock(&queue.mutex);
}

/*
 * Waits for the next line, with the mutex held; false: the thread ends.  When lines were dropped after the last one
 * in the queue, the next line has no text.
 */
static bool
line_take(struct log_line *line)
{
	while (queue.n == 0 && queue.n_lost == 0 && !queue.stopping)
		pthread_cond_wait(&queue.wanted, &queue.mutex);
	if (queue.n > 0) {
		ring_take(line, offsetof(struct log_line, text));
		ring_take(line->text, line->n);
		return true;
	}
	line->n = 0;
	line->n_lost = queue.n_lost;
	queue.n_lost = 0;
	return line->n_lost > 0;
}

static void *
log_queue_main(void *argument)
{
	struct log_line line;

	(void)argument;
	pthread_mutex_lock(&queue.mutex);
	while (line_take(&line)) {
		pthread_mutex_unlock(&queue.mutex);
		log_output_write(&line, -1);
		pthread_mutex_lock(&queue.mutex);
	}
	queue.ended = true;
	pthread_cond_signal(&queue.ended_cond);
	pthread_mutex_unlock(&queue.mutex);
	return NULL;
}

/*
 * Signals are for the loop.  A terminal with "stty tostop" sends SIGTTOU to a process in the background that writes,
 * which would stop it; a thread that blocks the signal just writes.
 */
enum paged_status
log_queue_start(struct paged_error *error)
{
	sigset_t all, before;
	int result;

	queue.stopping = queue.ended = false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = pthread_create(&queue.thread, NULL, log_queue_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result != 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "pthread_create: %s", strerror(result));
	return PAGED_OK;
}

bool
log_queue_stop(unsigned int wait_ms)
{
	struct timespec end;
	bool ended;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += wait_ms / 1000;
	end.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	pthread_mutex_lock(&queue.mutex);
	queue.stopping = true;
	pthread_cond_signal(&queue.wanted);
	while (!queue.ended && pthread_cond_clockwait(&queue.ended_cond, &queue.mutex, CLOCK_MONOTONIC, &end) == 0)
		;
	ended = queue.ended;
	pthread_mutex_unlock(&queue.mutex);
	if (ended)
		pthread_join(queue.thread, NULL);
	else
		pthread_detach(queue.thread);
	return ended;
}
