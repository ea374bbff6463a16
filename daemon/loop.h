/* SPDX-License-Identifier: Apache-2.0 */
/**
 * loop.h - the daemon's only poller
 *
 * A loop has descriptors (sources), timers, and work that is done in steps.
 * Each of these structs is embedded in the struct that owns it.  An iteration
 * waits for descriptors and timers, calls their callbacks, and then runs one
 * step of every work.  While a work has more to do, the loop does not wait.
 * A long queue of work therefore never delays the handling of a process's
 * death or a signal by more than one iteration.
 *
 * Callbacks may add and remove any source, timer or work, themselves included,
 * and may free the struct that contains a removed one.
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

#include "common/paged_reports.h"
#include "common/status.h"

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct loop_source {
	int fd; /* borrowed; -1 while the source is in no loop */
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
	struct paged_histogram *turns; /* from the end of a wait to the next one; NULL: not measured */
	uint64_t longest_turn_ns;
	int epoll_fd;
	bool running;
	bool woken; /* the next iteration does not wait */
	LIST_HEAD(, loop_timer) timers;
	LIST_HEAD(, loop_work) work;
	struct epoll_event events[LOOP_MAX_EVENTS]; /* of this iteration */
	int n_events, next_event;
};

enum paged_status loop_open(struct loop *loop, struct paged_error *error);
void loop_close(struct loop *loop);

/** loop_run - iterate until loop_stop() */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/** loop_add - call source->ready whenever fd is readable or hung up (level-triggered) */
enum paged_status loop_add(struct loop *loop, struct loop_source *source, int fd, struct paged_error *error);

/** loop_remove - stop callbacks, also in this iteration; does not close fd; does nothing if fd is -1 */
void loop_remove(struct loop *loop, struct loop_source *source);

/** loop_timer_start - fire once, delay_ms from now; restarts an armed timer */
void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t delay_ms);
void loop_timer_stop(struct loop_timer *timer);

void loop_work_add(struct loop *loop, struct loop_work *work);

/** loop_wake - run all steps again without waiting: a loop_work whose step() returned false has more to do */
void loop_wake(struct loop *loop);

#endif
