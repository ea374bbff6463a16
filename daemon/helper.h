/* SPDX-License-Identifier: Apache-2.0 */
/**
 * helper.h - the one thread beside the loop, for work that cannot be done in steps
 *
 * Jobs wait in a bounded queue and run one after another, sessions taking
 * turns: one that asks for much at once waits for itself.  A job belongs to
 * the loop until it is submitted and again from its finish() on; in between
 * run() alone touches what it computes, on the helper's thread.  A job that
 * is cancelled, because its member or session is gone, it takes too long or
 * the daemon ends, is told so by a flag that run() looks at often.
 *
 * Threads: everything but run() is called on the loop.
 */
#ifndef PAGED_DAEMON_HELPER_H
#define PAGED_DAEMON_HELPER_H

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
	/* Once, also of a job that never ran; frees it. */
	void (*finish)(struct helper_job *job);
	uint32_t member, session;
	atomic_bool cancelled;
	bool late; /* it was cancelled because it took too long */

	uint64_t begun_ms; /* the helper's lock guards it; 0: it waits */
	uint64_t turn;     /* in which it is to run; a session has one job a turn */
	TAILQ_ENTRY(helper_job) link;
	LIST_ENTRY(helper_job) all_link;
};

TAILQ_HEAD(helper_jobs, helper_job);

struct helper {
	struct loop *loop;
	uint32_t limit_ms; /* of a job */
	LIST_HEAD(, helper_job) all;
	uint32_t n_jobs;
	struct loop_source finished; /* an eventfd */
	struct loop_timer timer;     /* runs while there are jobs */

	bool started;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t wanted;
	struct helper_jobs waiting; /* by turns */
	struct helper_jobs done;
	struct helper_job *running;
	uint64_t turn; /* of the last that began */
	bool stopping;
};

/** helper_open - start the thread; limit_ms: longest that a job may run */
enum paged_status helper_open(struct helper *helper, struct loop *loop, uint32_t limit_ms, struct paged_error *error);

/** helper_close - cancel and finish all jobs, end the thread; also of a struct of zeros */
void helper_close(struct helper *helper);

/**
 * helper_submit - run a job when its turn comes
 *
 * @retval PAGED_ERR_AGAIN  too many wait, in all or of its session; the job is still the caller's
 */
enum paged_status helper_submit(struct helper *helper, struct helper_job *job, struct paged_error *error);

/** helper_cancel_member, helper_cancel_session - their jobs finish soon, in turns to come */
void helper_cancel_member(struct helper *helper, uint32_t member);
void helper_cancel_session(struct helper *helper, uint32_t session);

#endif
