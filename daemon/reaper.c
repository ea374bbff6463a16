/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/reaper.h"

static bool
reaper_step(struct loop_work *work)
{
	struct reaper *reaper = container_of(work, struct reaper, work);

	if (!reaper->needed)
		return false;
	reaper->needed = core_reap(reaper->core, REAPER_STEP_PAGES);
	core_wake(reaper->core);
	if (!reaper->needed)
		reaper->complete(reaper);
	return reaper->needed;
}

void
reaper_open(struct reaper *reaper, struct loop *loop, struct core *core, void (*complete)(struct reaper *reaper))
{
	*reaper = (struct reaper){ .loop = loop, .core = core, .complete = complete, .work.step = reaper_step };
	loop_work_add(loop, &reaper->work);
}

void
reaper_schedule(struct reaper *reaper)
{
	reaper->needed = true;
	loop_wake(reaper->loop);
}
