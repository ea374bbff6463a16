/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that look at the daemon, and the two that an administrator makes. */
#include <config.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/rpc.h"

/* Slots that one request looks at: of millions that were used once, all may be free. */
#define SCAN_SLOTS 16384u

enum paged_status
rpc_get_status(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	const struct daemon *daemon = rpc->daemon;

	(void)member, (void)request, (void)error;
	reply->kind = WIRE_REPLY_STATUS;
	snprintf(reply->status_report.version, sizeof(reply->status_report.version), "%s", PACKAGE_VERSION);
	reply->status_report.uptime_ms = loop_now_ms() - daemon->started_ms;
	reply->status_report.n_requests = rpc->n_requests;
	reply->status_report.n_sessions = core_n_sessions(daemon->core);
	reply->status_report.n_pools = (uint32_t)daemon->pools.n;
	reply->status_report.pid = (uint32_t)getpid();
	reply->status_report.stopping = daemon->stopping;
	return PAGED_OK;
}

static void
pool_report(const struct daemon *daemon, uint32_t index, struct wire_pool_report *report)
{
	const struct pool *pool = &daemon->pools.pool[index];
	struct core_pool_status books;

	core_pool_status(daemon->core, index, &books);
	*report = (struct wire_pool_report){
		.pool = index,
		.page_bytes = pool->config->layout.page_bytes,
		.size = pool->config->layout.size,
		.n_free = books.n_free,
		.n_referenced = books.n_referenced,
		.n_quarantined = books.n_quarantined,
		.n_slots = books.n_slots,
		.n_sequences = books.n_sequences,
		.max_length = books.max_length,
	};
	snprintf(report->name, sizeof(report->name), "%s", pool->config->name);
	snprintf(report->backend, sizeof(report->backend), "%s", pool->memory.ops->name);
	snprintf(report->memory, sizeof(report->memory), "%s", pool->memory.text);
	snprintf(report->device, sizeof(report->device), "%s", pool->memory.device);
	pools_geometry(pool, &report->geometry);
}

enum paged_status
rpc_get_pools(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	      struct paged_error *error)
{
	uint32_t n = (uint32_t)rpc->daemon->pools.n;

	(void)member, (void)request, (void)error;
	for (uint32_t i = 0; i < n; i++)
		pool_report(rpc->daemon, i, &rpc->scratch.pools[i]);
	reply->kind = WIRE_REPLY_POOLS;
	reply->pools.n = n;
	reply->pools.report = rpc->scratch.pools;
	return PAGED_OK;
}

static struct wire_session_report
session_report(const struct core_session_status *books, const struct member *member)
{
	struct wire_session_report report = {
		.session = books->session,
		.ended = books->state == CORE_SESSION_ENDED,
		.n_sequences = books->n_sequences,
		.n_pages = books->n_pages,
		.n_quarantined = books->n_quarantined,
	};

	if (member == NULL)
		return report;
	report.member = member->id;
	report.pid = (uint32_t)member->pid;
	report.uid = member->uid;
	report.n_requests = member->n_requests;
	report.first = member->first;
	snprintf(report.name, sizeof(report.name), "%s", member->name);
	return report;
}

/* Entries of one session, those after a member; false: they did not all fit. */
static bool
session_list(struct rpc *rpc, const struct core_session_status *books, uint32_t after_member, uint32_t *n_p)
{
	const struct session *session = session_find(&rpc->daemon->members, books->session);
	const struct member *member;

	if (session == NULL) { /* its members are gone, its pages not yet all free */
		if (*n_p == WIRE_LIST_MAX)
			return false;
		rpc->scratch.sessions[(*n_p)++] = session_report(books, NULL);
		return true;
	}
	TAILQ_FOREACH(member, &session->members, session_link) {
		if (member->id <= after_member)
			continue;
		if (*n_p == WIRE_LIST_MAX)
			return false;
		rpc->scratch.sessions[(*n_p)++] = session_report(books, member);
	}
	return true;
}

enum paged_status
rpc_get_sessions(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
		 struct paged_error *error)
{
	uint32_t after = request->get_sessions.after_session;
	struct core_session_status books;
	uint32_t n = 0;
	bool complete = true;

	(void)member, (void)error;
	/* What is left of the session that the previous part ended in. */
	if (after > 0 && session_find(&rpc->daemon->members, after) != NULL &&
	    core_session_next(rpc->daemon->core, after - 1, &books) && books.session == after)
		complete = session_list(rpc, &books, request->get_sessions.after_member, &n);
	while (complete && core_session_next(rpc->daemon->core, after, &books)) {
		complete = session_list(rpc, &books, 0, &n);
		after = books.session;
	}
	reply->kind = WIRE_REPLY_SESSIONS;
	reply->sessions.n = n;
	reply->sessions.report = rpc->scratch.sessions;
	reply->sessions.more = !complete;
	return PAGED_OK;
}

static enum paged_status
sequence_report(const struct daemon *daemon, paged_seq_id id, struct wire_sequence_report *report,
		struct paged_error *error)
{
	uint32_t pool = PAGED_SEQ_POOL(id);
	const struct region_view *view = core_pool_view(daemon->core, pool);
	const struct session *session;
	const struct member *first;
	struct region_look look;

	if (region_look_begin(view, id, &look) != REGION_READ)
		return paged_fail(error, PAGED_ERR_STALE, "pool %s: no live sequence " SEQ_FORMAT,
				  daemon->pools.pool[pool].config->name, SEQ_ARGS(id));
	*report = (struct wire_sequence_report){
		.seq = id,
		.session = look.owner,
		.length = look.length,
		.capacity = look.capacity,
		.n_pages = look.capacity / view->page_size,
	};
	snprintf(report->tag, sizeof(report->tag), "%s", core_seq_tag(daemon->core, id));
	session = session_find(&daemon->members, look.owner);
	first = session ? TAILQ_FIRST(&session->members) : NULL;
	if (first != NULL && first->first) {
		report->pid = (uint32_t)first->pid;
		snprintf(report->name, sizeof(report->name), "%s", first->name);
	}
	return PAGED_OK;
}

enum paged_status
rpc_get_sequences(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
		  struct paged_error *error)
{
	uint32_t pool = request->get_sequences.pool, slot = request->get_sequences.from_slot;
	uint32_t end = slot < UINT32_MAX - SCAN_SLOTS ? slot + SCAN_SLOTS : UINT32_MAX;
	enum paged_status status = rpc_pool_check(rpc->daemon, member, pool, error);
	paged_seq_id id;
	uint32_t n = 0;

	if (status != PAGED_OK)
		return status;
	while (n < WIRE_LIST_MAX && core_seq_next(rpc->daemon->core, pool, slot, end, &id)) {
		status = sequence_report(rpc->daemon, id, &rpc->scratch.sequences[n++], error);
		if (status != PAGED_OK)
			return status;
		slot = PAGED_SEQ_SLOT(id) + 1;
	}
	if (n < WIRE_LIST_MAX)
		slot = end;
	reply->kind = WIRE_REPLY_SEQUENCES;
	reply->sequences.n = n;
	reply->sequences.report = rpc->scratch.sequences;
	reply->sequences.next_slot = slot;
	reply->sequences.more = slot < core_high_slot(rpc->daemon->core, pool);
	return PAGED_OK;
}

enum paged_status
rpc_get_table(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	      struct paged_error *error)
{
	uint32_t pool = PAGED_SEQ_POOL(request->get_table.seq), from = request->get_table.from_entry, n, n_pages;
	enum paged_status status = rpc_pool_check(rpc->daemon, member, pool, error);
	const _Atomic uint32_t *row;

	if (status == PAGED_OK)
		status = sequence_report(rpc->daemon, request->get_table.seq, &reply->table.sequence, error);
	if (status != PAGED_OK)
		return status;
	row = region_row(core_pool_view(rpc->daemon->core, pool), PAGED_SEQ_SLOT(request->get_table.seq));
	n_pages = reply->table.sequence.n_pages;
	for (n = 0; n < WIRE_TABLE_MAX && n_pages > from && n < n_pages - from; n++)
		rpc->scratch.pages[n] = atomic_load_explicit(&row[from + n], memory_order_relaxed);
	reply->kind = WIRE_REPLY_TABLE;
	reply->table.n = n;
	reply->table.page = rpc->scratch.pages;
	reply->table.more = n_pages > from && n_pages - from > n;
	return PAGED_OK;
}

/* For who opened the pool, or could: a secret, and a part of what PoolGrant gives. */
enum paged_status
rpc_get_handle(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	uint32_t pool = request->get_handle.pool;
	enum paged_status status = rpc_pool_check(rpc->daemon, member, pool, error);
	const struct memory *memory;

	if (status != PAGED_OK)
		return status;
	memory = &rpc->daemon->pools.pool[pool].memory;
	reply->kind = WIRE_REPLY_HANDLE;
	status = memory->ops->handle(memory, &reply->handle, error);
	if (status == PAGED_OK)
		member->opened_mask |= 1ull << pool;
	return status;
}

enum paged_status
rpc_kick(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	 struct paged_error *error)
{
	char why[64];

	(void)reply;
	snprintf(why, sizeof(why), "kicked by process %d, uid %u", (int)member->pid, (unsigned)member->uid);
	return session_end(&rpc->daemon->members, request->kick.session, request->kick.kill, why, error);
}
