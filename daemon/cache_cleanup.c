/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cache_cleanup.h"

#include "common/clock.h"

static void
cache_cleanup_set_timer(struct cache_cleanup *cache_cleanup, uint64_t now_ms)
{
	uint64_t deadline_ms = core_next_deadline(cache_cleanup->core);

	if (deadline_ms == cache_cleanup->deadline_ms)
		return;
	cache_cleanup->deadline_ms = deadline_ms;
	if (deadline_ms == CORE_NO_DEADLINE)
		loop_timer_stop(&cache_cleanup->timer);
	else
		loop_timer_start(cache_cleanup->loop, &cache_cleanup->timer,
				 deadline_ms > now_ms ? deadline_ms - now_ms : 0);
}

static bool
cache_cleanup_step(struct loop_work *work)
{
	struct cache_cleanup *cache_cleanup = container_of(work, struct cache_cleanup, work);
	uint64_t now_ms = clock_ms();

	if (!cache_cleanup->needed)
		return false;
	core_set_now(cache_cleanup->core, now_ms);
	cache_cleanup->needed = core_tick(cache_cleanup->core, CACHE_CLEANUP_STEP_PAGES);
	core_wake(cache_cleanup->core);
	if (core_reap_needed(cache_cleanup->core))
		session_cleanup_schedule(cache_cleanup->session_cleanup);
	if (!cache_cleanup->needed)
		cache_cleanup_set_timer(cache_cleanup, now_ms);
	return cache_cleanup->needed;
}

static void
cache_cleanup_fire(struct loop_timer *timer)
{
	struct cache_cleanup *cache_cleanup = container_of(timer, struct cache_cleanup, timer);

	cache_cleanup->deadline_ms = CORE_NO_DEADLINE;
	cache_cleanup_schedule(cache_cleanup);
}

void
cache_cleanup_open(struct cache_cleanup *cache_cleanup, struct loop *loop, struct core *core,
		   struct session_cleanup *session_cleanup)
{
	*cache_cleanup = (struct cache_cleanup){
		.loop = loop,
		.core = core,
		.session_cleanup = session_cleanup,
		.deadline_ms = CORE_NO_DEADLINE,
		.work.step = cache_cleanup_step,
		.timer.fire = cache_cleanup_fire,
	};
	loop_work_add(loop, &cache_cleanup->work);
}

void
cache_cleanup_schedule(struct cache_cleanup *cache_cleanup)
{
	cache_cleanup->needed = true;
	loop_wake(cache_cleanup->loop);
}
