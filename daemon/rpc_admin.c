/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that list the daemon's state, the memory handle of a pool, kick, drain, and the log's level. */
#include <config.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/log/log.h"
#include "daemon/rpc.h"

/* Slots that one request scans at most: all of millions of slots may be free. */
#define SCAN_SLOTS 16384u

enum paged_status
rpc_get_status(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	(void)member, (void)request, (void)error;
	reply->kind = WIRE_REPLY_STATUS;
	reply->status_report = (struct paged_daemon_info){
		.version = PACKAGE_VERSION,
		.uptime_ms = clock_ms() - rpc->started_ms,
		.n_requests = rpc->n_requests,
		.n_sessions = core_n_sessions(rpc->core),
		.n_pools = (uint32_t)rpc->pools->n,
		.pid = (uint32_t)getpid(),
		.stopping = rpc->stopping,
	};
	return PAGED_OK;
}

enum paged_status
rpc_get_metrics(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
		struct paged_error *error)
{
	const struct metrics *metrics = rpc->metrics;

	(void)member, (void)request, (void)error;
	reply->kind = WIRE_REPLY_METRICS;
	reply->metrics.daemon = (struct paged_metrics){
		.uptime_ms = clock_ms() - rpc->started_ms,
		.n_requests = rpc->n_requests,
		.n_dropped = rpc->endpoint->n_dropped,
		.n_attached = metrics->n_attached,
		.n_died = metrics->n_died,
		.n_opened = metrics->n_opened,
		.n_members = rpc->members->n,
		.n_sessions = core_n_sessions(rpc->core),
		.turns = metrics->turns,
		.longest_turn_ns = rpc->loop->longest_turn_ns,
	};
	reply->metrics.n = METRICS_N_KINDS;
	reply->metrics.requests = metrics->requests;
	return PAGED_OK;
}

enum paged_status
rpc_get_pools(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	      struct paged_error *error)
{
	uint32_t n = (uint32_t)rpc->pools->n;

	(void)member, (void)request, (void)error;
	for (uint32_t i = 0; i < n; i++) {
		const struct pool *pool = &rpc->pools->pool[i];
		struct paged_pool_entry *entry = &rpc->scratch.pools[i];

		core_pool_status(rpc->core, i, entry);
		layout_report(&pool->config->layout, entry);
		snprintf(entry->backend, sizeof(entry->backend), "%s", pool->memory.ops->name);
		snprintf(entry->memory, sizeof(entry->memory), "%s", pool->memory.text);
		snprintf(entry->device, sizeof(entry->device), "%s", pool->memory.device);
		snprintf(entry->model, sizeof(entry->model), "%s",
			 pool->config->model != NULL ? pool->config->model : "");
	}
	reply->kind = WIRE_REPLY_POOLS;
	reply->pools.n = n;
	reply->pools.report = rpc->scratch.pools;
	return PAGED_OK;
}

/* Appends the entry of a member; NULL: of a session without members. */
static void
sessions_append_member(struct rpc *rpc, const struct paged_session_entry *session, const struct member *member,
		       uint32_t *n_p)
{
	struct paged_session_entry *entry = &rpc->scratch.sessions[(*n_p)++];

	*entry = *session;
	if (member == NULL)
		return;
	entry->member = member->id;
	entry->pid = (uint32_t)member->pid;
	entry->uid = member->uid;
	entry->n_requests = member->n_requests;
	entry->first = member->first;
	memcpy(entry->name, member->name, sizeof(entry->name));
}

/* Appends the entries of a session's members after `after_member`; false: not all fit. */
static bool
sessions_append_session(struct rpc *rpc, const struct paged_session_entry *entry, uint32_t after_member, uint32_t *n_p)
{
	const struct session *session = daemon_session_find(rpc->members, entry->session);
	const struct member *member;

	if (session == NULL) { /* its members have left, but not all of its pages are free yet */
		if (*n_p == WIRE_LIST_MAX)
			return false;
		sessions_append_member(rpc, entry, NULL, n_p);
		return true;
	}
	TAILQ_FOREACH(member, &session->members, session_link) {
		if (member->id <= after_member)
			continue;
		if (*n_p == WIRE_LIST_MAX)
			return false;
		sessions_append_member(rpc, entry, member, n_p);
	}
	return true;
}

enum paged_status
rpc_get_sessions(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
		 struct paged_error *error)
{
	uint32_t after = request->get_sessions.after_session;
	struct paged_session_entry entry;
	uint32_t n = 0;
	bool complete = true;

	(void)member, (void)error;
	/* First the remaining members of the session in which the previous reply ended. */
	if (after > 0 && daemon_session_find(rpc->members, after) != NULL &&
	    core_session_next(rpc->core, after - 1, &entry) && entry.session == after)
		complete = sessions_append_session(rpc, &entry, request->get_sessions.after_member, &n);
	while (complete && core_session_next(rpc->core, after, &entry)) {
		complete = sessions_append_session(rpc, &entry, 0, &n);
		after = entry.session;
	}
	reply->kind = WIRE_REPLY_SESSIONS;
	reply->sessions.n = n;
	reply->sessions.report = rpc->scratch.sessions;
	reply->sessions.more = !complete;
	return PAGED_OK;
}

static enum paged_status
sequence_fill_entry(const struct rpc *rpc, paged_seq_id id, struct paged_seq_entry *entry, struct paged_error *error)
{
	enum paged_status status = core_seq_status(rpc->core, id, entry, error);
	const struct session *session;
	const struct member *first;

	if (status != PAGED_OK)
		return status;
	session = daemon_session_find(rpc->members, entry->session);
	first = session ? TAILQ_FIRST(&session->members) : NULL;
	if (first != NULL && first->first) {
		entry->pid = (uint32_t)first->pid;
		memcpy(entry->name, first->name, sizeof(entry->name));
	}
	return PAGED_OK;
}

enum paged_status
rpc_get_sequences(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
		  struct paged_error *error)
{
	uint32_t pool = request->get_sequences.pool, slot = request->get_sequences.from_slot;
	uint32_t end = slot < UINT32_MAX - SCAN_SLOTS ? slot + SCAN_SLOTS : UINT32_MAX;
	enum paged_status status = member_check_pool(member, pool, error);
	paged_seq_id id;
	uint32_t n = 0;

	if (status != PAGED_OK)
		return status;
	while (n < WIRE_LIST_MAX && core_seq_next(rpc->core, pool, slot, end, &id)) {
		status = sequence_fill_entry(rpc, id, &rpc->scratch.sequences[n++], error);
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
	reply->sequences.more = slot < core_high_slot(rpc->core, pool);
	return PAGED_OK;
}

enum paged_status
rpc_get_table(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	      struct paged_error *error)
{
	uint32_t pool = PAGED_SEQ_POOL(request->get_table.seq), from = request->get_table.from_entry, n;
	enum paged_status status = member_check_pool(member, pool, error);

	if (status == PAGED_OK)
		status = sequence_fill_entry(rpc, request->get_table.seq, &reply->table.sequence, error);
	if (status != PAGED_OK)
		return status;
	n = core_seq_pages(rpc->core, request->get_table.seq, from, rpc->scratch.pages, WIRE_TABLE_MAX);
	reply->kind = WIRE_REPLY_TABLE;
	reply->table.n = n;
	reply->table.page = rpc->scratch.pages;
	reply->table.more = (uint64_t)from + n < reply->table.sequence.n_pages;
	return PAGED_OK;
}

/* The handle is a secret.  It needs the same permission as OpenPool, and also counts as opening the pool. */
enum paged_status
rpc_get_handle(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	uint32_t pool = request->get_handle.pool;
	enum paged_status status = member_check_pool(member, pool, error);
	const struct memory *memory;

	if (status != PAGED_OK)
		return status;
	memory = &rpc->pools->pool[pool].memory;
	reply->kind = WIRE_REPLY_HANDLE;
	status = memory->ops->handle(memory, &reply->handle, error);
	if (status == PAGED_OK)
		member->opened_mask |= 1ull << pool;
	return status;
}

enum paged_status
rpc_get_quotas(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	uint32_t position = request->get_quotas.from, n = 0;
	struct paged_quota_entry next;

	(void)member, (void)error;
	while (n < WIRE_LIST_MAX && core_tenant_next(rpc->core, &position, &rpc->scratch.quotas[n]))
		n++;
	reply->kind = WIRE_REPLY_QUOTAS;
	reply->quotas.n = n;
	reply->quotas.report = rpc->scratch.quotas;
	reply->quotas.next = position;
	reply->quotas.more = core_tenant_next(rpc->core, &position, &next);
	return PAGED_OK;
}

enum paged_status
rpc_kick(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	 struct paged_error *error)
{
	char why[64];

	(void)reply;
	snprintf(why, sizeof(why), "kicked by process %d, uid %u", (int)member->pid, (unsigned)member->uid);
	return daemon_session_end(rpc->members, request->kick.session, request->kick.kill, why, error);
}

enum paged_status
rpc_drain(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	char who[64];

	(void)reply;
	snprintf(who, sizeof(who), "process %d, uid %u", (int)member->pid, (unsigned)member->uid);
	return daemon_session_drain(rpc->members, request->drain.session, who, error);
}

enum paged_status
rpc_set_log_level(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
		  struct paged_error *error)
{
	uint32_t level = request->set_log_level.level, was = log_get_level();

	(void)rpc;
	if (level != 0 && log_level_name(level) == NULL)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "log level %u is none of 3 (error), 4 (warning), 6 (info), 7 (debug)", level);
	reply->kind = WIRE_REPLY_LOG_LEVEL;
	reply->log_level.was = was;
	if (level == 0 || level == was)
		return PAGED_OK;
	log_set_level(LOG_LEVEL_INFO); /* this line is logged at any level */
	log_write(LOG_LEVEL_INFO, "log", member_ids(member), "the level is %s, and was %s: set by process %d, uid %u",
		  log_level_name(level), log_level_name(was), (int)member->pid, (unsigned)member->uid);
	log_set_level(level);
	return PAGED_OK;
}
