/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/background_thread.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"

/* The timer checks the running job LOOKS times within limit_ms, but not more often than every LOOK_MIN_MS. */
enum { LOOKS = 8, LOOK_MIN_MS = 5 };

static void
helper_tell(const struct helper *helper)
{
	const uint64_t one = 1;

	/* Cannot fail: the counter is far from its maximum.  The if satisfies the compiler's warning. */
	if (write(helper->finished.fd, &one, sizeof(one)) < 0)
		return;
}

/* Waits for the next job, with the mutex held; NULL: the helper stops. */
static struct helper_job *
job_await(struct helper *helper)
{
	while (TAILQ_EMPTY(&helper->waiting) && !helper->stopping)
		pthread_cond_wait(&helper->wanted, &helper->mutex);
	return helper->stopping ? NULL : TAILQ_FIRST(&helper->waiting);
}

static void *
helper_main(void *argument)
{
	struct helper *helper = argument;
	struct helper_job *job;

	pthread_mutex_lock(&helper->mutex);
	while ((job = job_await(helper)) != NULL) {
		TAILQ_REMOVE(&helper->waiting, job, link);
		helper->running = job;
		helper->turn = job->turn;
		job->begun_ms = clock_ms();
		pthread_mutex_unlock(&helper->mutex);
		job->run(job);
		pthread_mutex_lock(&helper->mutex);
		helper->running = NULL;
		TAILQ_INSERT_TAIL(&helper->done, job, link);
		helper_tell(helper);
	}
	pthread_mutex_unlock(&helper->mutex);
	return NULL;
}

static struct helper_job *
done_take(struct helper *helper)
{
	struct helper_job *job;

	pthread_mutex_lock(&helper->mutex);
	job = TAILQ_FIRST(&helper->done);
	if (job != NULL)
		TAILQ_REMOVE(&helper->done, job, link);
	pthread_mutex_unlock(&helper->mutex);
	return job;
}

static void
done_finish(struct helper *helper)
{
	struct helper_job *job;

	while ((job = done_take(helper)) != NULL) {
		LIST_REMOVE(job, all_link);
		helper->n_jobs--;
		job->finish(job);
	}
	if (helper->n_jobs == 0)
		loop_timer_stop(&helper->timer);
}

static void
finished_ready(struct loop_source *source, uint32_t events)
{
	struct helper *helper = container_of(source, struct helper, finished);
	uint64_t n;

	(void)events;
	if (read(source->fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
		done_finish(helper);
}

static uint32_t
look_ms(const struct helper *helper)
{
	return helper->limit_ms / LOOKS > LOOK_MIN_MS ? helper->limit_ms / LOOKS : LOOK_MIN_MS;
}

static void
timer_fire(struct loop_timer *timer)
{
	struct helper *helper = container_of(timer, struct helper, timer);
	struct helper_job *job;

	pthread_mutex_lock(&helper->mutex);
	job = helper->running;
	if (job != NULL && clock_ms() - job->begun_ms >= helper->limit_ms &&
	    !atomic_load_explicit(&job->cancelled, memory_order_relaxed)) {
		job->late = true;
		atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
	}
	pthread_mutex_unlock(&helper->mutex);
	loop_timer_start(helper->loop, timer, look_ms(helper));
}

static enum paged_status
thread_start(struct helper *helper, struct paged_error *error)
{
	int result;

	pthread_mutex_init(&helper->mutex, NULL);
	pthread_cond_init(&helper->wanted, NULL);
	result = pthread_create(&helper->thread, NULL, helper_main, helper);
	if (result != 0) {
		pthread_cond_destroy(&helper->wanted);
		pthread_mutex_destroy(&helper->mutex);
		return paged_fail(error, PAGED_ERR_SYSTEM, "no helper thread: %s", strerror(result));
	}
	helper->started = true;
	return PAGED_OK;
}

enum paged_status
helper_open(struct helper *helper, struct loop *loop, uint32_t limit_ms, struct paged_error *error)
{
	enum paged_status status;
	int fd;

	*helper = (struct helper){
		.loop = loop,
		.limit_ms = limit_ms,
		.finished = { .fd = -1, .ready = finished_ready },
		.timer.fire = timer_fire,
	};
	LIST_INIT(&helper->all);
	TAILQ_INIT(&helper->waiting);
	TAILQ_INIT(&helper->done);
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "eventfd: %m");
	status = loop_add(loop, &helper->finished, fd, error);
	if (status != PAGED_OK) {
		close(fd);
		return status;
	}
	status = thread_start(helper, error);
	if (status != PAGED_OK) {
		loop_remove(loop, &helper->finished);
		close(fd);
	}
	return status;
}

/* Sets the flag; a job that still waits moves to `done`. */
static void
job_cancel(struct helper *helper, struct helper_job *job)
{
	pthread_mutex_lock(&helper->mutex);
	if (job->begun_ms == 0 && !atomic_load_explicit(&job->cancelled, memory_order_relaxed)) {
		TAILQ_REMOVE(&helper->waiting, job, link);
		TAILQ_INSERT_TAIL(&helper->done, job, link);
		helper_tell(helper);
	}
	atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
	pthread_mutex_unlock(&helper->mutex);
}

void
helper_cancel_member(struct helper *helper, uint32_t member)
{
	struct helper_job *job;

	LIST_FOREACH(job, &helper->all, all_link)
		if (job->member == member)
			job_cancel(helper, job);
}

void
helper_cancel_session(struct helper *helper, uint32_t session)
{
	struct helper_job *job;

	LIST_FOREACH(job, &helper->all, all_link)
		if (job->session == session)
			job_cancel(helper, job);
}

void
helper_close(struct helper *helper)
{
	struct helper_job *job;
	int fd = helper->finished.fd;

	if (!helper->started)
		return;
	LIST_FOREACH(job, &helper->all, all_link)
		job_cancel(helper, job);
	pthread_mutex_lock(&helper->mutex);
	helper->stopping = true;
	pthread_cond_signal(&helper->wanted);
	pthread_mutex_unlock(&helper->mutex);
	pthread_join(helper->thread, NULL);
	done_finish(helper);
	loop_remove(helper->loop, &helper->finished);
	close(fd);
	pthread_cond_destroy(&helper->wanted);
	pthread_mutex_destroy(&helper->mutex);
	helper->started = false;
}

/* Inserts the job behind all jobs of its own and earlier turns, with the mutex held. */
static void
job_queue(struct helper *helper, struct helper_job *job)
{
	struct helper_job *before = TAILQ_LAST(&helper->waiting, helper_jobs);

	while (before != NULL && before->turn > job->turn)
		before = TAILQ_PREV(before, helper_jobs, link);
	if (before != NULL)
		TAILQ_INSERT_AFTER(&helper->waiting, before, job, link);
	else
		TAILQ_INSERT_HEAD(&helper->waiting, job, link);
}

enum paged_status
helper_submit(struct helper *helper, struct helper_job *job, struct paged_error *error)
{
	const struct helper_job *other;
	uint32_t n_session = 0;
	uint64_t turn = 0; /* the session's last */

	LIST_FOREACH(other, &helper->all, all_link)
		if (other->session == job->session) {
			n_session++;
			turn = other->turn > turn ? other->turn : turn;
		}
	if (n_session >= HELPER_SESSION_JOBS || helper->n_jobs >= HELPER_MAX_JOBS)
		return paged_fail(error, PAGED_ERR_AGAIN,
				  "%u builds of session %u wait, the most are %d; %u of all, the most are %d",
				  n_session, job->session, HELPER_SESSION_JOBS, helper->n_jobs, HELPER_MAX_JOBS);
	if (helper->n_jobs++ == 0)
		loop_timer_start(helper->loop, &helper->timer, look_ms(helper));
	LIST_INSERT_HEAD(&helper->all, job, all_link);
	pthread_mutex_lock(&helper->mutex);
	job->turn = (turn > helper->turn ? turn : helper->turn) + 1;
	job_queue(helper, job);
	pthread_cond_signal(&helper->wanted);
	pthread_mutex_unlock(&helper->mutex);
	return PAGED_OK;
}
