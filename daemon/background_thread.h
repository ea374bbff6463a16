/* SPDX-License-Identifier: Apache-2.0 */
/**
 * background_thread.h - the daemon's background thread, for work that cannot be split into steps of the loop
 *
 * Jobs wait in a bounded queue and run one at a time, round robin over the
 * sessions: a session with many jobs delays each other session by one job per
 * round.
 *
 * Ownership: a job belongs to the loop until background_thread_submit() and again when
 * finish() is called.  In between only run() accesses the job's result, on
 * the background thread.
 *
 * A job is cancelled if its member or session has ended, if it exceeds
 * limit_ms or if the daemon ends.  Cancelling sets `cancelled`, which run()
 * must check often.
 *
 * Threads: everything except run() is called on the loop's thread.
 */
#ifndef PAGED_DAEMON_BACKGROUND_THREAD_H
#define PAGED_DAEMON_BACKGROUND_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "daemon/loop.h"

enum {
	BACKGROUND_MAX_JOBS = 64,
	BACKGROUND_MAX_SESSION_JOBS = 4, /* of one session */
};

struct background_job {
	void (*run)(struct background_job *job);
	/* Called once, also for a job that never ran; frees the job. */
	void (*finish)(struct background_job *job);
	uint32_t member, session;
	atomic_bool cancelled;
	bool late; /* cancelled because it exceeded limit_ms */

	uint64_t begun_ms; /* guarded by the thread's mutex; 0: not begun */
	uint64_t round;    /* the round in which it runs; a session has one job per round */
	TAILQ_ENTRY(background_job) link;
	LIST_ENTRY(background_job) all_link;
};

TAILQ_HEAD(background_jobs, background_job);

struct background_thread {
	struct loop *loop;
	uint32_t limit_ms; /* longest time that a job may run */
	LIST_HEAD(, background_job) all;
	uint32_t n_jobs;
	struct loop_source finished; /* an eventfd: jobs are in `done` */
	struct loop_timer timer;     /* checks limit_ms; armed while there are jobs */

	bool started;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards the fields below */
	pthread_cond_t wanted;
	struct background_jobs waiting; /* ordered by round */
	struct background_jobs done;
	struct background_job *running;
	uint64_t round; /* of the job that began last */
	bool stopping;
};

/** background_thread_open - start the thread; a job that runs longer than limit_ms is cancelled */
enum paged_status background_thread_open(struct background_thread *background, struct loop *loop, uint32_t limit_ms,
					 struct paged_error *error);

/** background_thread_close - cancel and finish all jobs, end the thread; accepts a zeroed struct */
void background_thread_close(struct background_thread *background);

/**
 * background_thread_submit - queue a job
 *
 * @retval PAGED_ERR_AGAIN  the session has BACKGROUND_MAX_SESSION_JOBS jobs, or all sessions have
 *                          BACKGROUND_MAX_JOBS; the caller keeps the job
 */
enum paged_status background_thread_submit(struct background_thread *background, struct background_job *job,
					   struct paged_error *error);

/** background_thread_cancel_member - cancel a member's jobs; finish() follows in a later iteration of the loop */
void background_thread_cancel_member(struct background_thread *background, uint32_t member);

/** background_thread_cancel_session - cancel a session's jobs */
void background_thread_cancel_session(struct background_thread *background, uint32_t session);

#endif
