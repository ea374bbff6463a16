/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the daemon that list and administer. */
#include "config.h"

#include "client/owner/owner_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

static enum paged_status
remote_get_pools(struct owner *owner, struct wire_reply *reply, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_POOLS };

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_POOLS, reply, error);
}

enum paged_status
remote_pool_find(struct owner *owner, const char *name, uint32_t *pool_p, struct paged_error *error)
{
	struct wire_reply reply;
	enum paged_status status = remote_get_pools(owner, &reply, error);
	size_t used = 0;
	char names[160] = "";

	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < reply.pools.n; i++) {
		const struct paged_pool_entry *report = &reply.pools.report[i];

		if (strcmp(report->name, name) == 0) {
			*pool_p = report->number;
			return PAGED_OK;
		}
		if (used < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
						 report->name);
	}
	return paged_fail(error, PAGED_ERR_NOENT, "no pool %s; there are: %s", name, names);
}

enum paged_status
remote_status(struct owner *owner, struct paged_daemon_info *info, struct paged_error *error)
{
	struct remote *remote = remote_of(owner);
	struct wire_request request = { .kind = WIRE_GET_STATUS };
	struct wire_reply reply;
	enum paged_status status = client_rpc_call(&remote->rpc, &request, WIRE_REPLY_STATUS, &reply, error);

	if (status != PAGED_OK)
		return status;
	*info = reply.status_report;
	text_hex(info->boot_id, remote->boot_id, WIRE_BOOT_ID_SIZE);
	return PAGED_OK;
}

enum paged_status
list_append(void *list_p, size_t *n_p, const void *more, size_t n_more, size_t size, struct paged_error *error)
{
	void *list;

	memcpy(&list, list_p, sizeof(list));
	list = realloc(list, (*n_p + n_more + 1) * size);
	if (list == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a list of %zu entries", *n_p + n_more);
	memcpy(list_p, &list, sizeof(list));
	if (n_more > 0)
		memcpy((uint8_t *)list + *n_p * size, more, n_more * size);
	*n_p += n_more;
	return PAGED_OK;
}

enum paged_status
remote_pools(struct owner *owner, struct paged_pool_entry **list_p, size_t *n_p, struct paged_error *error)
{
	struct wire_reply reply;
	enum paged_status status = remote_get_pools(owner, &reply, error);

	if (status != PAGED_OK)
		return status;
	return list_append(list_p, n_p, reply.pools.report, reply.pools.n, sizeof(**list_p), error);
}

enum paged_status
remote_metrics(struct owner *owner, struct paged_metrics *metrics, struct paged_request_entry **list_p, size_t *n_p,
	       struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_METRICS };
	struct wire_reply reply;
	enum paged_status status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_METRICS, &reply, error);

	if (status != PAGED_OK)
		return status;
	*metrics = reply.metrics.daemon;
	return list_append(list_p, n_p, reply.metrics.requests, reply.metrics.n, sizeof(**list_p), error);
}

enum paged_status
remote_sessions(struct owner *owner, struct paged_session_entry **list_p, size_t *n_p, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_SESSIONS };
	struct wire_reply reply;
	enum paged_status status;

	do {
		status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_SESSIONS, &reply, error);
		if (status == PAGED_OK)
			status = list_append(list_p, n_p, reply.sessions.report, reply.sessions.n, sizeof(**list_p),
					     error);
		if (status != PAGED_OK || *n_p == 0)
			return status;
		request.get_sessions.after_session = (*list_p)[*n_p - 1].session;
		request.get_sessions.after_member = (*list_p)[*n_p - 1].member;
	} while (reply.sessions.more && reply.sessions.n > 0);
	return PAGED_OK;
}

enum paged_status
remote_sequences(struct owner *owner, uint32_t pool, struct paged_seq_entry **list_p, size_t *n_p,
		 struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_SEQUENCES, .get_sequences = { .pool = pool } };
	struct wire_reply reply;
	enum paged_status status;
	bool more;

	do {
		status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_SEQUENCES, &reply, error);
		if (status == PAGED_OK)
			status = list_append(list_p, n_p, reply.sequences.report, reply.sequences.n, sizeof(**list_p),
					     error);
		if (status != PAGED_OK)
			return status;
		more = reply.sequences.more && reply.sequences.next_slot > request.get_sequences.from_slot;
		request.get_sequences.from_slot = reply.sequences.next_slot;
	} while (more);
	return PAGED_OK;
}

enum paged_status
remote_prefixes(struct owner *owner, uint32_t pool, struct paged_node_entry **list_p, size_t *n_p,
		struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_PREFIXES, .get_prefixes = { .pool = pool } };
	struct wire_reply reply;
	enum paged_status status;
	bool more;

	do {
		status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_PREFIXES, &reply, error);
		if (status == PAGED_OK)
			status = list_append(list_p, n_p, reply.prefixes.report, reply.prefixes.n, sizeof(**list_p),
					     error);
		if (status != PAGED_OK)
			return status;
		more = reply.prefixes.more && reply.prefixes.next_page > request.get_prefixes.from_page;
		request.get_prefixes.from_page = reply.prefixes.next_page;
	} while (more);
	return PAGED_OK;
}

enum paged_status
remote_quotas(struct owner *owner, struct paged_quota_entry **list_p, size_t *n_p, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_QUOTAS };
	struct wire_reply reply;
	enum paged_status status;

	do {
		status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_QUOTAS, &reply, error);
		if (status == PAGED_OK)
			status = list_append(list_p, n_p, reply.quotas.report, reply.quotas.n, sizeof(**list_p), error);
		if (status != PAGED_OK)
			return status;
		request.get_quotas.from = reply.quotas.next;
	} while (reply.quotas.more && reply.quotas.n > 0);
	return PAGED_OK;
}

enum paged_status
remote_pins(struct owner *owner, uint32_t pool, struct paged_pin_entry **list_p, size_t *n_p, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_PINS, .get_pins = { .pool = pool } };
	struct wire_reply reply;
	enum paged_status status;

	do {
		status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_PINS, &reply, error);
		if (status == PAGED_OK)
			status = list_append(list_p, n_p, reply.pins.report, reply.pins.n, sizeof(**list_p), error);
		if (status != PAGED_OK || *n_p == 0)
			return status;
		request.get_pins.after = (*list_p)[*n_p - 1].number;
	} while (reply.pins.more && reply.pins.n > 0);
	return PAGED_OK;
}

enum paged_status
remote_unpin(struct owner *owner, uint32_t pool, uint64_t number, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_UNPIN, .unpin = { .pool = pool, .number = number } };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

enum paged_status
remote_table(struct owner *owner, paged_seq_id seq, struct paged_seq_entry *entry, uint32_t **pages_p, size_t *n_p,
	     struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_TABLE, .get_table = { .seq = seq } };
	struct wire_reply reply;
	enum paged_status status;

	do {
		status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_TABLE, &reply, error);
		if (status == PAGED_OK)
			status = list_append(pages_p, n_p, reply.table.page, reply.table.n, sizeof(**pages_p), error);
		if (status != PAGED_OK)
			return status;
		*entry = reply.table.sequence;
		request.get_table.from_entry = (uint32_t)*n_p;
	} while (reply.table.more && reply.table.n > 0);
	return PAGED_OK;
}

enum paged_status
remote_check(struct owner *owner, uint32_t pool, struct paged_check_result *result, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_CHECK, .check = { .pool = pool } };
	struct wire_reply reply;
	enum paged_status status =
		client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_CHECK_RESULT, &reply, error);

	if (status == PAGED_OK)
		*result = reply.check_result;
	return status;
}

enum paged_status
remote_kick(struct owner *owner, uint32_t session, bool kill_members, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_KICK, .kick = { .session = session, .kill = kill_members } };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

enum paged_status
remote_drain(struct owner *owner, uint32_t session, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_DRAIN, .drain = { .session = session } };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

enum paged_status
remote_evict(struct owner *owner, uint32_t pool, uint32_t n, uint32_t *n_evicted_p, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_EVICT, .evict = { .pool = pool, .n_pages = n } };
	struct wire_reply reply;
	enum paged_status status;
	uint32_t n_evicted = 0;

	do {
		status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EVICTED, &reply, error);
		if (status != PAGED_OK)
			return status;
		n_evicted += reply.evicted.n_pages;
		if (n > 0)
			request.evict.n_pages = n - n_evicted;
	} while (reply.evicted.more && reply.evicted.n_pages > 0 && (n == 0 || n_evicted < n));
	*n_evicted_p = n_evicted;
	return PAGED_OK;
}

enum paged_status
remote_log_level(struct owner *owner, uint32_t level, uint32_t *was_p, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_SET_LOG_LEVEL, .set_log_level = { .level = level } };
	struct wire_reply reply;
	enum paged_status status =
		client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_LOG_LEVEL, &reply, error);

	if (status == PAGED_OK)
		*was_p = reply.log_level.was;
	return status;
}
