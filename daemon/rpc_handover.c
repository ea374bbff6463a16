/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on tickets: give, adopt, cancel, and their list.  A reply that is lost leaves the sequences with an owner:
 * the ticket until it expires, or the session that adopted.
 */
#include <string.h>
#include <sys/param.h>

#include "daemon/random.h"
#include "daemon/rpc.h"

/* Sequences whose pages one request counts, approximately: a ticket may have thousands. */
#define LIST_SEQUENCES 32768u

enum paged_status
rpc_give(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	 struct paged_error *error)
{
	const struct paged_seq_item *items = request->give.items;
	struct seq_give how = request->give.how;
	enum paged_status status = PAGED_OK;
	uint8_t ticket[PAGED_TICKET_SIZE];

	for (uint32_t i = 0; i < request->give.n && status == PAGED_OK; i++)
		status = member_check_pool(member, PAGED_SEQ_POOL(items[i].seq), error);
	if (how.timeout_ms == 0)
		how.timeout_ms = MIN(CORE_TICKET_MS, rpc->config->max_ticket_ms);
	if (status == PAGED_OK && how.timeout_ms > rpc->config->max_ticket_ms)
		return paged_fail(error, PAGED_ERR_LIMIT, "a ticket of %u ms, and max-ticket-time is %u ms",
				  how.timeout_ms, rpc->config->max_ticket_ms);
	if (status == PAGED_OK)
		status = daemon_random(ticket, sizeof(ticket), error);
	if (status == PAGED_OK)
		status = core_seq_give(rpc->core, member->session->id, request->give.n, items, &how, ticket, error);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_TICKET;
	memcpy(reply->ticket.bytes, ticket, sizeof(ticket));
	return PAGED_OK;
}

enum paged_status
rpc_adopt(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	uint32_t n_max = request->adopt.n_max < PAGED_MAX_REQUEST_SEQS ? request->adopt.n_max : PAGED_MAX_REQUEST_SEQS;
	enum paged_status status = member_check_pool(member, request->adopt.pool, error);

	if (status == PAGED_OK)
		status = core_seq_adopt(rpc->core, member->session->id, member->uid, request->adopt.pool,
					request->adopt.ticket, n_max, rpc->scratch.items, &reply->adopted.n, error);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_ADOPTED;
	reply->adopted.items = rpc->scratch.items;
	return PAGED_OK;
}

enum paged_status
rpc_cancel(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	   struct paged_error *error)
{
	(void)reply;
	return core_ticket_cancel(rpc->core, member->session->id, request->cancel.ticket, error);
}

enum paged_status
rpc_get_tickets(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
		struct paged_error *error)
{
	uint64_t after = request->get_tickets.after;
	uint32_t n = 0, n_sequences = 0;
	struct paged_ticket_entry next;

	(void)member, (void)error;
	while (n < WIRE_LIST_MAX && n_sequences < LIST_SEQUENCES &&
	       core_ticket_next(rpc->core, after, &rpc->scratch.tickets[n])) {
		n_sequences += rpc->scratch.tickets[n].n_sequences;
		after = rpc->scratch.tickets[n++].number;
	}
	reply->kind = WIRE_REPLY_TICKETS;
	reply->tickets.n = n;
	reply->tickets.report = rpc->scratch.tickets;
	reply->tickets.more = core_ticket_next(rpc->core, after, &next);
	return PAGED_OK;
}
