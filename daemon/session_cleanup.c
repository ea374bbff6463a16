/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/session_cleanup.h"

static bool
session_cleanup_step(struct loop_work *work)
{
	struct session_cleanup *session_cleanup = container_of(work, struct session_cleanup, work);

	if (!session_cleanup->needed)
		return false;
	session_cleanup->needed = core_reap(session_cleanup->core, SESSION_CLEANUP_STEP_PAGES);
	core_wake(session_cleanup->core);
	if (!session_cleanup->needed)
		session_cleanup->complete(session_cleanup);
	return session_cleanup->needed;
}

void
session_cleanup_open(struct session_cleanup *session_cleanup, struct loop *loop, struct core *core,
		     void (*complete)(struct session_cleanup *session_cleanup))
{
	*session_cleanup = (struct session_cleanup){
		.loop = loop, .core = core, .complete = complete, .work.step = session_cleanup_step
	};
	loop_work_add(loop, &session_cleanup->work);
}

void
session_cleanup_schedule(struct session_cleanup *session_cleanup)
{
	session_cleanup->needed = true;
	loop_wake(session_cleanup->loop);
}
