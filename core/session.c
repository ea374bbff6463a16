/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and their members: begin, end, and what a session owns in each pool. */
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"
#include "core/ticket.h"

#include <stdlib.h>

enum paged_status
core_session_make_pool(struct core *core, struct core_session *session, uint32_t pool, struct paged_error *error)
{
	enum paged_status status = tenant_make_pool(core->pools[pool], session->tenant, error);
	struct session_pool *pools;

	if (status != PAGED_OK || pool < session->n_pools)
		return status;
	pools = reallocarray(session->pools, pool + 1, sizeof(*pools));
	if (pools == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "session %u: no memory", session->id);
	session->pools = pools;
	while (session->n_pools <= pool)
		pools[session->n_pools++] =
			(struct session_pool){ .first_slot = NONE, .first_page = NONE, .last_page = NONE };
	return PAGED_OK;
}

void
core_session_free(struct core_session *session)
{
	core_arrays_free(session);
	free(session->pools);
	free(session);
}

void
core_session_queue_or_free(struct core *core, struct core_session *session)
{
	if (!session->ended || session->queued)
		return;
	if (core_session_has_work(session)) {
		session->queued = true;
		session->queue_next = NULL;
		if (core->queue_first == NULL)
			core->queue_first = session;
		else
			core->queue_last->queue_next = session;
		core->queue_last = session;
	} else if (session->n_members == 0 && session->n_tickets == 0) {
		idmap_remove(&core->sessions, session->id);
		tenant_session_freed(core, session->tenant);
		core_session_free(session);
	}
}

static void
core_session_mark_ended(struct core *core, struct core_session *session)
{
	session->ended = true;
	operation_stop(core, session);
	core_arrays_free(session);
	tickets_disown(core, session);
	core_session_queue_or_free(core, session);
}

enum paged_status
core_session_open(struct core *core, uint32_t *session_p, uint32_t *member_p, struct paged_error *error)
{
	struct core_session *session;

	if (core->last_session == UINT32_MAX || core->last_member == UINT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT, "all %u ids of sessions or members are used up", UINT32_MAX);
	if (!idmap_make_room(&core->sessions) || !idmap_make_room(&core->members))
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for another session; there are %u",
				  core->sessions.n);
	session = calloc(1, sizeof(*session));
	if (session == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for another session; there are %u",
				  core->sessions.n);
	session->id = ++core->last_session;
	session->first_member = ++core->last_member;
	session->n_members = 1;
	idmap_append(&core->sessions, session->id, session);
	idmap_append(&core->members, session->first_member, session);
	*session_p = session->id;
	*member_p = session->first_member;
	return PAGED_OK;
}

void
core_session_outlive(struct core *core, uint32_t id)
{
	idmap_find(&core->sessions, id)->outlives = true;
}

enum paged_status
core_session_join(struct core *core, uint32_t id, uint32_t *member_p, struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;

	status = core_session_find_active(core, id, &session, error);
	if (status != PAGED_OK)
		return status;
	if (core->last_member == UINT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT, "all %u ids of members are used up", UINT32_MAX);
	if (!idmap_make_room(&core->members))
		return paged_fail(error, PAGED_ERR_NOMEM, "session %u: no memory for another member; there are %u", id,
				  session->n_members);
	session->n_members++;
	idmap_append(&core->members, ++core->last_member, session);
	*member_p = core->last_member;
	return PAGED_OK;
}

void
core_member_leave(struct core *core, uint32_t member)
{
	struct core_session *session = idmap_find(&core->members, member);

	if (session == NULL)
		return;
	idmap_remove(&core->members, member);
	session->n_members--;
	if (session->outlives ? session->n_members == 0 : member == session->first_member)
		core_session_mark_ended(core, session);
	else
		core_session_queue_or_free(core, session);
}

enum paged_status
core_session_drain(struct core *core, uint32_t id, struct paged_error *error)
{
	struct core_session *session = idmap_find(&core->sessions, id);

	if (session == NULL)
		return paged_fail(error, PAGED_ERR_NOENT, "there is no session %u", id);
	session->draining = true;
	return PAGED_OK;
}

enum paged_status
core_session_end(struct core *core, uint32_t id, struct paged_error *error)
{
	struct core_session *session = idmap_find(&core->sessions, id);

	if (session == NULL)
		return paged_fail(error, PAGED_ERR_NOENT, "there is no session %u", id);
	core_session_mark_ended(core, session);
	return PAGED_OK;
}
