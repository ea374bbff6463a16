/* SPDX-License-Identifier: Apache-2.0 */
/**
 * session_cleanup.h - cleans up ended sessions in steps of the loop (core_reap())
 *
 * Threads: the loop's.
 */
#ifndef PAGED_DAEMON_SESSION_CLEANUP_H
#define PAGED_DAEMON_SESSION_CLEANUP_H

#include "core/core.h"
#include "daemon/loop.h"

/** Pages that one step of core_reap() may touch: a fraction of a millisecond. */
enum { SESSION_CLEANUP_STEP_PAGES = 8192 };

struct session_cleanup {
	struct loop *loop;
	struct core *core;
	struct loop_work work;
	bool needed;
	/** Called whenever the cleanup is complete. */
	void (*complete)(struct session_cleanup *session_cleanup);
};

/** session_cleanup_open - register with the loop; loop, core and complete are borrowed until the loop ends */
void session_cleanup_open(struct session_cleanup *session_cleanup, struct loop *loop, struct core *core,
			  void (*complete)(struct session_cleanup *session_cleanup));

/**
 * session_cleanup_schedule - run core_reap() in the next iterations of the
 * loop, after a session ended or a member left
 */
void session_cleanup_schedule(struct session_cleanup *session_cleanup);

#endif
