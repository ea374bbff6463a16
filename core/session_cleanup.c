/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_reap(): what an ended session owned becomes free, in steps.  Pages that its processes may still write stay in
 * quarantine until the last member has left; daemon/member.c delays that by the pool's quarantine time.
 */
#include "core/page_table.h"
#include "core/pages.h"
#include "core/session.h"

/* Ends sequences of the session in one pool. */
static void
reap_sequences(struct core_pool *pool, struct core_session *session, uint32_t *budget)
{
	const struct session_pool *session_pool = &session->pools[pool->index];
	bool quarantine = session->n_members > 0;

	while (*budget > 0 && session_pool->first_slot != NONE)
		page_table_close_step(pool, session, session_pool->first_slot, quarantine, budget);
}

static void
reap_quarantine(struct core_pool *pool, struct core_session *session, uint32_t *budget)
{
	if (session->pools[pool->index].first_page == NONE)
		return;
	core_pool_change_begin(pool);
	*budget -= pages_free_quarantined(pool, session, *budget);
	core_pool_change_end(pool);
}

static void
reap_session(struct core *core, struct core_session *session, uint32_t *budget)
{
	for (uint32_t i = 0; i < session->n_pools; i++) {
		reap_sequences(core->pools[i], session, budget);
		if (session->n_members == 0)
			reap_quarantine(core->pools[i], session, budget);
	}
}

/* Without a limit (0), the budget is refilled after each round. */
bool
core_reap(struct core *core, uint32_t budget_pages)
{
	uint32_t budget = budget_pages == 0 ? UINT32_MAX : budget_pages;

	while (core->queue_first != NULL && budget > 0) {
		struct core_session *session = core->queue_first;

		reap_session(core, session, &budget);
		if (budget_pages == 0)
			budget = UINT32_MAX;
		if (core_session_has_work(session))
			continue;
		core->queue_first = session->queue_next;
		session->queued = false;
		core_session_queue_or_free(core, session);
	}
	return core->queue_first != NULL;
}

bool
core_reap_needed(const struct core *core)
{
	return core->queue_first != NULL;
}
