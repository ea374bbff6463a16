/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/loop.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/histogram.h"
#include "daemon/log/log.h"

enum paged_status
loop_open(struct loop *loop, struct paged_error *error)
{
	*loop = (struct loop){ .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
	LIST_INIT(&loop->timers);
	LIST_INIT(&loop->work);
	if (loop->epoll_fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "epoll_create1: %m");
	return PAGED_OK;
}

void
loop_close(struct loop *loop)
{
	if (loop->epoll_fd >= 0)
		close(loop->epoll_fd);
	loop->epoll_fd = -1;
}

enum paged_status
loop_add(struct loop *loop, struct loop_source *source, int fd, struct paged_error *error)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = source };

	source->fd = -1;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "epoll_ctl: %m");
	source->fd = fd;
	return PAGED_OK;
}

void
loop_remove(struct loop *loop, struct loop_source *source)
{
	if (source->fd < 0)
		return;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL) < 0)
		log_warning("loop", "epoll_ctl: %m");
	source->fd = -1;
	for (int i = loop->next_event; i < loop->n_events; i++)
		if (loop->events[i].data.ptr == source)
			loop->events[i].data.ptr = NULL;
}

void
loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t delay_ms)
{
	loop_timer_stop(timer);
	timer->due_ms = clock_ms() + delay_ms;
	timer->armed = true;
	LIST_INSERT_HEAD(&loop->timers, timer, link);
}

void
loop_timer_stop(struct loop_timer *timer)
{
	if (!timer->armed)
		return;
	timer->armed = false;
	LIST_REMOVE(timer, link);
}

void
loop_work_add(struct loop *loop, struct loop_work *work)
{
	LIST_INSERT_HEAD(&loop->work, work, link);
}

void
loop_wake(struct loop *loop)
{
	loop->woken = true;
}

void
loop_stop(struct loop *loop)
{
	loop->running = false;
}

/* There are few timers (connections without a hello, detached members, some of the daemon), so a list suffices. */
static struct loop_timer *
timer_next(const struct loop *loop)
{
	struct loop_timer *timer, *next = NULL;

	LIST_FOREACH(timer, &loop->timers, link)
		if (next == NULL || timer->due_ms < next->due_ms)
			next = timer;
	return next;
}

static int
wait_ms(const struct loop *loop, uint64_t now)
{
	const struct loop_timer *timer = timer_next(loop);

	if (loop->woken)
		return 0;
	if (timer == NULL)
		return -1;
	if (timer->due_ms <= now)
		return 0;
	return timer->due_ms - now > INT_MAX ? INT_MAX : (int)(timer->due_ms - now);
}

static void
timers_fire(struct loop *loop)
{
	uint64_t now = clock_ms();
	struct loop_timer *timer;

	while ((timer = timer_next(loop)) != NULL && timer->due_ms <= now) {
		loop_timer_stop(timer);
		timer->fire(timer);
	}
}

static void
work_step(struct loop *loop)
{
	struct loop_work *work;

	loop->woken = false;
	LIST_FOREACH(work, &loop->work, link)
		if (work->step(work))
			loop->woken = true;
}

static void
events_call(struct loop *loop)
{
	for (loop->next_event = 0; loop->next_event < loop->n_events;) {
		struct epoll_event *event = &loop->events[loop->next_event++];
		struct loop_source *source = event->data.ptr;

		if (source != NULL)
			source->ready(source, event->events);
	}
	loop->n_events = 0;
}

void
loop_run(struct loop *loop)
{
	uint64_t now_ns = clock_ns(), woken_ns;

	loop->running = true;
	loop->woken = true; /* serve events that arrived before the loop ran */
	while (loop->running) {
		loop->n_events =
			epoll_wait(loop->epoll_fd, loop->events, LOOP_MAX_EVENTS, wait_ms(loop, now_ns / 1000000));
		woken_ns = clock_ns();
		if (loop->n_events < 0) {
			if (errno != EINTR)
				log_error("loop", "epoll_wait: %m");
			loop->n_events = 0;
		}
		events_call(loop);
		timers_fire(loop);
		work_step(loop);
		now_ns = clock_ns();
		if (now_ns - woken_ns > loop->longest_turn_ns)
			loop->longest_turn_ns = now_ns - woken_ns;
		if (loop->turns != NULL)
			histogram_add(loop->turns, now_ns - woken_ns);
	}
}
