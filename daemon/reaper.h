/* SPDX-License-Identifier: Apache-2.0 */
/**
 * reaper.h - cleans up ended sessions in steps of the loop (core_reap())
 *
 * Threads: the loop's.
 */
#ifndef PAGED_DAEMON_REAPER_H
#define PAGED_DAEMON_REAPER_H

#include "core/core.h"
#include "daemon/loop.h"

/** Pages that one step of core_reap() may touch: a fraction of a millisecond. */
enum { REAPER_STEP_PAGES = 8192 };

struct reaper {
	struct loop *loop;
	struct core *core;
	struct loop_work work;
	bool needed;
	/** Called whenever the cleanup is complete. */
	void (*complete)(struct reaper *reaper);
};

/** reaper_open - register with the loop; loop, core and complete are borrowed until the loop ends */
void reaper_open(struct reaper *reaper, struct loop *loop, struct core *core, void (*complete)(struct reaper *reaper));

/** reaper_schedule - run core_reap() in the next iterations of the loop, after a session ended or a member left */
void reaper_schedule(struct reaper *reaper);

#endif
