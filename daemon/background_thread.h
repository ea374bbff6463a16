/* SPDX-License-Identifier: Apache-2.0 */
/**
 * background_thread.h - the daemon's background thread, for work that cannot be split into steps of the loop
 *
 * Jobs wait in a bounded queue and run one at a time, round robin over the
 * sessions: a session with many jobs delays each other session by one job per
 * round.
 *
 * Ownership: a job belongs to the loop until helper_submit() and again when
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
	HELPER_MAX_JOBS = 64,
	HELPER_SESSION_JOBS = 4, /* of one session */
};

struct helper_job {
	void (*run)(struct helper_job *job);
	/* Called once, also for a job that never ran; frees the job. */
	void (*finish)(struct helper_job *job);
	uint32_t member, session;
	atomic_bool cancelled;
	bool late; /* cancelled because it exceeded limit_ms */

	uint64_t begun_ms; /* guarded by the helper's mutex; 0: not begun */
	uint64_t turn;     /* the round in which it runs; a session has one job per round */
	TAILQ_ENTRY(helper_job) link;
	LIST_ENTRY(helper_job) all_link;
};

TAILQ_HEAD(helper_jobs, helper_job);

struct helper {
	struct loop *loop;
	uint32_t limit_ms; /* longest time that a job may run */
	LIST_HEAD(, helper_job) all;
	uint32_t n_jobs;
	struct loop_source finished; /* an eventfd: jobs are in `done` */
	struct loop_timer timer;     /* checks limit_ms; armed while there are jobs */

	bool started;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards the fields below */
	pthread_cond_t wanted;
	struct helper_jobs waiting; /* ordered by turn */
	struct helper_jobs done;
	struct helper_job *running;
	uint64_t turn; /* of the job that began last */
	bool stopping;
};

/** helper_open - start the thread; a job that runs longer than limit_ms is cancelled */
enum paged_status helper_open(struct helper *helper, struct loop *loop, uint32_t limit_ms, struct paged_error *error);

/** helper_close - cancel and finish all jobs, end the thread; accepts a zeroed struct */
void helper_close(struct helper *helper);

/**
 * helper_submit - queue a job
 *
 * @retval PAGED_ERR_AGAIN  the session has HELPER_SESSION_JOBS jobs or the helper HELPER_MAX_JOBS; the caller keeps
 *                          the job
 */
enum paged_status helper_submit(struct helper *helper, struct helper_job *job, struct paged_error *error);

/** helper_cancel_member, helper_cancel_session - cancel their jobs; finish() follows in a later turn of the loop */
void helper_cancel_member(struct helper *helper, uint32_t member);
void helper_cancel_session(struct helper *helper, uint32_t session);

#endif
