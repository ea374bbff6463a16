/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the daemon on tickets: give, adopt, cancel, and their list. */
#include "config.h"

#include "client/owner/owner_remote.h"

#include <string.h>

enum paged_status
remote_give(struct owner *owner, uint32_t n, const struct paged_seq_item *items, const struct seq_give *give,
	    uint8_t ticket[PAGED_TICKET_SIZE], struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GIVE, .give = { .n = n, .items = items, .how = *give } };
	struct wire_reply reply;
	enum paged_status status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_TICKET, &reply, error);

	if (status == PAGED_OK)
		memcpy(ticket, reply.ticket.bytes, PAGED_TICKET_SIZE);
	return status;
}

/* A late reply is ignored: the sequences are this session's then. */
enum paged_status
remote_adopt(struct owner *owner, uint32_t pool, const uint8_t ticket[PAGED_TICKET_SIZE], uint32_t n_max,
	     struct paged_seq_item *items, uint32_t *n_p, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_ADOPT, .adopt = { .pool = pool, .n_max = n_max } };
	struct wire_reply reply;
	enum paged_status status;

	memcpy(request.adopt.ticket, ticket, PAGED_TICKET_SIZE);
	status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_ADOPTED, &reply, error);
	if (status != PAGED_OK)
		return status;
	if (reply.adopted.n > n_max)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%u sequences were adopted, there is room for %u",
				  reply.adopted.n, n_max);
	memcpy(items, reply.adopted.items, reply.adopted.n * sizeof(*items));
	*n_p = reply.adopted.n;
	return PAGED_OK;
}

enum paged_status
remote_cancel(struct owner *owner, const uint8_t ticket[PAGED_TICKET_SIZE], struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_CANCEL };
	struct wire_reply reply;

	memcpy(request.cancel.ticket, ticket, PAGED_TICKET_SIZE);
	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

enum paged_status
remote_tickets(struct owner *owner, struct paged_ticket_entry **list_p, size_t *n_p, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_TICKETS };
	struct wire_reply reply;
	enum paged_status status;

	do {
		status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_TICKETS, &reply, error);
		if (status == PAGED_OK)
			status = list_append(list_p, n_p, reply.tickets.report, reply.tickets.n, sizeof(**list_p),
					     error);
		if (status != PAGED_OK || *n_p == 0)
			return status;
		request.get_tickets.after = (*list_p)[*n_p - 1].number;
	} while (reply.tickets.more && reply.tickets.n > 0);
	return PAGED_OK;
}
