/* SPDX-License-Identifier: Apache-2.0 */
/**
 * loop.h - the daemon's only poller
 *
 * Three kinds of things hang in a loop, each embedded in the struct that
 * owns it: descriptors (sources), timers, and work that is done in steps.
 * A turn waits for descriptors and timers, calls them, and then gives every
 * work one step; a work that has more to do keeps the loop from waiting.  So
 * no queue, however long, keeps a death or a signal from being seen.
 *
 * Callbacks may add and remove anything, themselves included, and may free
 * the struct around what they removed.
 *
 * Threads: one.
 */
#ifndef PAGED_DAEMON_LOOP_H
#define PAGED_DAEMON_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "common/status.h"

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct loop_source {
	int fd; /* borrowed; -1 while it hangs in no loop */
	void (*ready)(struct loop_source *source, uint32_t events);
};

struct loop_timer {
	uint64_t due_ms;
	void (*fire)(struct loop_timer *timer);
	bool armed;
	LIST_ENTRY(loop_timer) link;
};

struct loop_work {
	/** One step of at most a fraction of a millisecond; true: there is more to do now. */
	bool (*step)(struct loop_work *work);
	LIST_ENTRY(loop_work) link;
};

enum { LOOP_MAX_EVENTS = 64 };

struct loop {
	int epoll_fd;
	bool running;
	bool woken; /* do not wait this time */
	LIST_HEAD(, loop_timer) timers;
	LIST_HEAD(, loop_work) work;
	struct epoll_event events[LOOP_MAX_EVENTS]; /* of this turn */
	int n_events, next_event;
};

enum paged_status loop_open(struct loop *loop, struct paged_error *error);
void loop_close(struct loop *loop);

/** loop_run - turn until loop_stop() */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/** loop_add - call source->ready whenever fd is readable or hung up (level-triggered) */
enum paged_status loop_add(struct loop *loop, struct loop_source *source, int fd, struct paged_error *error);

/** loop_remove - no call comes after it, not even in this turn; does not close fd; none to remove: nothing */
void loop_remove(struct loop *loop, struct loop_source *source);

/** loop_timer_start - fire once, delay_ms from now; an armed timer is moved */
void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t delay_ms);
void loop_timer_stop(struct loop_timer *timer);

void loop_work_add(struct loop *loop, struct loop_work *work);

/** loop_wake - a work that had said it had nothing to do has something now */
void loop_wake(struct loop *loop);

#endif
