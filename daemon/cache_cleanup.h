/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cache_cleanup.h - evicts cached pages ahead of need and ends expired pins and tickets, in steps of the loop
 * (core_tick())
 *
 * Threads: the loop's.
 */
#ifndef PAGED_DAEMON_CACHE_CLEANUP_H
#define PAGED_DAEMON_CACHE_CLEANUP_H

#include "core/core.h"
#include "daemon/loop.h"
#include "daemon/session_cleanup.h"

/** Pages that one step of core_tick() may touch: some tens of microseconds. */
enum { CACHE_CLEANUP_STEP_PAGES = 512 };

struct cache_cleanup {
	struct loop *loop;
	struct core *core;
	struct session_cleanup *session_cleanup; /* an expired ticket may leave sequences of an ended session */
	struct loop_work work;
	struct loop_timer timer; /* due when the first pin or ticket expires */
	uint64_t deadline_ms;    /* of the timer; CORE_NO_DEADLINE: it is not armed */
	bool needed;
};

/** cache_cleanup_open - register with the loop; the pointers are borrowed until the loop ends */
void cache_cleanup_open(struct cache_cleanup *cache_cleanup, struct loop *loop, struct core *core,
			struct session_cleanup *session_cleanup);

/** cache_cleanup_schedule - run core_tick() in this iteration of the loop, after a request */
void cache_cleanup_schedule(struct cache_cleanup *cache_cleanup);

#endif
