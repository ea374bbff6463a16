/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups of sessions; they change nothing. */
#include "core/session.h"

#include <string.h>

enum paged_status
core_session_find_active(const struct core *core, uint32_t id, struct core_session **session_p,
			 struct paged_error *error)
{
	struct core_session *session = idmap_find(&core->sessions, id);

	if (id == 0 || id > core->last_session)
		return paged_fail(error, PAGED_ERR_GONE, "there is no session %u", id);
	if (session == NULL || session->ended)
		return paged_fail(error, PAGED_ERR_GONE, "session %u has ended", id);
	*session_p = session;
	return PAGED_OK;
}

bool
core_session_has_work(const struct core_session *session)
{
	return session->n_sequences > 0 || (session->n_members == 0 && session->n_quarantined > 0);
}

uint32_t
core_member_session(const struct core *core, uint32_t member)
{
	const struct core_session *session = idmap_find(&core->members, member);

	return session == NULL ? 0 : session->id;
}

uint32_t
core_n_sessions(const struct core *core)
{
	return core->sessions.n;
}

bool
core_session_next(const struct core *core, uint32_t after, struct paged_session_entry *entry)
{
	const struct core_session *session = idmap_after(&core->sessions, after);

	if (session == NULL)
		return false;
	*entry = (struct paged_session_entry){
		.session = session->id,
		.ended = session->ended,
		.draining = session->draining,
		.n_sequences = session->n_sequences,
		.n_pages = (uint32_t)session->n_pages,
		.n_quarantined = (uint32_t)session->n_quarantined,
	};
	if (session->tenant != 0)
		memcpy(entry->tenant, core->tenants.items[session->tenant - 1]->name, sizeof(entry->tenant));
	return true;
}
