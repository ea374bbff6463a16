/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/background_thread.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"

/* The timer checks the running job LIMIT_CHECKS times within limit_ms, at most every LIMIT_CHECK_MIN_MS. */
enum { LIMIT_CHECKS = 8, LIMIT_CHECK_MIN_MS = 5 };

static void
background_thread_wake_loop(const struct background_thread *background)
{
	const uint64_t one = 1;

	/* Cannot fail: the counter is far from its maximum.  The if satisfies the compiler's warning. */
	if (write(background->finished.fd, &one, sizeof(one)) < 0)
		return;
}

/* Waits for the next job, with the mutex held; NULL: the thread stops. */
static struct background_job *
background_job_wait(struct background_thread *background)
{
	while (TAILQ_EMPTY(&background->waiting) && !background->stopping)
		pthread_cond_wait(&background->wanted, &background->mutex);
	return background->stopping ? NULL : TAILQ_FIRST(&background->waiting);
}

static void *
background_thread_main(void *argument)
{
	struct background_thread *background = argument;
	struct background_job *job;

	pthread_mutex_lock(&background->mutex);
	while ((job = background_job_wait(background)) != NULL) {
		TAILQ_REMOVE(&background->waiting, job, link);
		background->running = job;
		background->round = job->round;
		job->begun_ms = clock_ms();
		pthread_mutex_unlock(&background->mutex);
		job->run(job);
		pthread_mutex_lock(&background->mutex);
		background->running = NULL;
		TAILQ_INSERT_TAIL(&background->done, job, link);
		background_thread_wake_loop(background);
	}
	pthread_mutex_unlock(&background->mutex);
	return NULL;
}

static struct background_job *
background_job_pop_done(struct background_thread *background)
{
	struct background_job *job;

	pthread_mutex_lock(&background->mutex);
	job = TAILQ_FIRST(&background->done);
	if (job != NULL)
		TAILQ_REMOVE(&background->done, job, link);
	pthread_mutex_unlock(&background->mutex);
	return job;
}

static void
background_thread_finish_jobs(struct background_thread *background)
{
	struct background_job *job;

	while ((job = background_job_pop_done(background)) != NULL) {
		LIST_REMOVE(job, all_link);
		background->n_jobs--;
		job->finish(job);
	}
	if (background->n_jobs == 0)
		loop_timer_stop(&background->timer);
}

static void
background_thread_ready(struct loop_source *source, uint32_t events)
{
	struct background_thread *background = container_of(source, struct background_thread, finished);
	uint64_t n;

	(void)events;
	if (read(source->fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
		background_thread_finish_jobs(background);
}

static uint32_t
limit_check_ms(const struct background_thread *background)
{
	return background->limit_ms / LIMIT_CHECKS > LIMIT_CHECK_MIN_MS ? background->limit_ms / LIMIT_CHECKS
									: LIMIT_CHECK_MIN_MS;
}

static void
background_thread_check_limit(struct loop_timer *timer)
{
	struct background_thread *background = container_of(timer, struct background_thread, timer);
	struct background_job *job;

	pthread_mutex_lock(&background->mutex);
	job = background->running;
	if (job != NULL && clock_ms() - job->begun_ms >= background->limit_ms &&
	    !atomic_load_explicit(&job->cancelled, memory_order_relaxed)) {
		job->late = true;
		atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
	}
	pthread_mutex_unlock(&background->mutex);
	loop_timer_start(background->loop, timer, limit_check_ms(background));
}

static enum paged_status
background_thread_start(struct background_thread *background, struct paged_error *error)
{
	int result;

	pthread_mutex_init(&background->mutex, NULL);
	pthread_cond_init(&background->wanted, NULL);
	result = pthread_create(&background->thread, NULL, background_thread_main, background);
	if (result != 0) {
		pthread_cond_destroy(&background->wanted);
		pthread_mutex_destroy(&background->mutex);
		return paged_fail(error, PAGED_ERR_SYSTEM, "pthread_create: %s", strerror(result));
	}
	background->started = true;
	return PAGED_OK;
}

enum paged_status
background_thread_open(struct background_thread *background, struct loop *loop, uint32_t limit_ms,
		       struct paged_error *error)
{
	enum paged_status status;
	int fd;

	*background = (struct background_thread){
		.loop = loop,
		.limit_ms = limit_ms,
		.finished = { .fd = -1, .ready = background_thread_ready },
		.timer.fire = background_thread_check_limit,
	};
	LIST_INIT(&background->all);
	TAILQ_INIT(&background->waiting);
	TAILQ_INIT(&background->done);
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "eventfd: %m");
	status = loop_add(loop, &background->finished, fd, error);
	if (status != PAGED_OK) {
		close(fd);
		return status;
	}
	status = background_thread_start(background, error);
	if (status != PAGED_OK) {
		loop_remove(loop, &background->finished);
		close(fd);
	}
	return status;
}

/* Sets job->cancelled; a job that still waits moves to `done`. */
static void
background_job_cancel(struct background_thread *background, struct background_job *job)
{
	pthread_mutex_lock(&background->mutex);
	if (job->begun_ms == 0 && !atomic_load_explicit(&job->cancelled, memory_order_relaxed)) {
		TAILQ_REMOVE(&background->waiting, job, link);
		TAILQ_INSERT_TAIL(&background->done, job, link);
		background_thread_wake_loop(background);
	}
	atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
	pthread_mutex_unlock(&background->mutex);
}

void
background_thread_cancel_member(struct background_thread *background, uint32_t member)
{
	struct background_job *job;

	LIST_FOREACH(job, &background->all, all_link)
		if (job->member == member)
			background_job_cancel(background, job);
}

void
background_thread_cancel_session(struct background_thread *background, uint32_t session)
{
	struct background_job *job;

	LIST_FOREACH(job, &background->all, all_link)
		if (job->session == session)
			background_job_cancel(background, job);
}

void
background_thread_close(struct background_thread *background)
{
	struct background_job *job;
	int fd = background->finished.fd;

	if (!background->started)
		return;
	LIST_FOREACH(job, &background->all, all_link)
		background_job_cancel(background, job);
	pthread_mutex_lock(&background->mutex);
	background->stopping = true;
	pthread_cond_signal(&background->wanted);
	pthread_mutex_unlock(&background->mutex);
	pthread_join(background->thread, NULL);
	background_thread_finish_jobs(background);
	loop_remove(background->loop, &background->finished);
	close(fd);
	pthread_cond_destroy(&background->wanted);
	pthread_mutex_destroy(&background->mutex);
	background->started = false;
}

/* Inserts the job behind all jobs of its own and earlier rounds, with the mutex held. */
static void
background_job_queue(struct background_thread *background, struct background_job *job)
{
	struct background_job *before = TAILQ_LAST(&background->waiting, background_jobs);

	while (before != NULL && before->round > job->round)
		before = TAILQ_PREV(before, background_jobs, link);
	if (before != NULL)
		TAILQ_INSERT_AFTER(&background->waiting, before, job, link);
	else
		TAILQ_INSERT_HEAD(&background->waiting, job, link);
}

enum paged_status
background_thread_submit(struct background_thread *background, struct background_job *job, struct paged_error *error)
{
	const struct background_job *other;
	uint32_t n_session = 0;
	uint64_t round = 0; /* the session's last */

	LIST_FOREACH(other, &background->all, all_link)
		if (other->session == job->session) {
			n_session++;
			round = other->round > round ? other->round : round;
		}
	if (n_session >= BACKGROUND_MAX_SESSION_JOBS || background->n_jobs >= BACKGROUND_MAX_JOBS)
		return paged_fail(
			error, PAGED_ERR_AGAIN,
			"session %u has %u builds waiting, at most %d may; all sessions have %u, at most %d may",
			job->session, n_session, BACKGROUND_MAX_SESSION_JOBS, background->n_jobs, BACKGROUND_MAX_JOBS);
	if (background->n_jobs++ == 0)
		loop_timer_start(background->loop, &background->timer, limit_check_ms(background));
	LIST_INSERT_HEAD(&background->all, job, all_link);
	pthread_mutex_lock(&background->mutex);
	job->round = (round > background->round ? round : background->round) + 1;
	background_job_queue(background, job);
	pthread_cond_signal(&background->wanted);
	pthread_mutex_unlock(&background->mutex);
	return PAGED_OK;
}
