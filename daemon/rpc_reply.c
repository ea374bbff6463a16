/* SPDX-License-Identifier: Apache-2.0 */
/* Packs and sends replies, at once or deferred. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/log/log.h"
#include "daemon/rpc.h"

void
rpc_refuse(struct wire_reply *reply, const struct paged_error *error)
{
	reply->kind = WIRE_REPLY_EMPTY;
	reply->status = error->status;
	reply->text = error->text;
	if (paged_error_has_shortage(error)) {
		reply->kind = WIRE_REPLY_SHORTAGE;
		reply->shortage = error->shortage;
	}
}

static size_t
rpc_pack_reply(struct rpc *rpc, const struct wire_reply *reply, uint8_t *buffer, size_t buffer_size)
{
	struct wire_reply failure = { .id = reply->id,
				      .status = PAGED_ERR_LIMIT,
				      .text = "the reply does not fit a message" };
	size_t size;

	wire_arena_reset(&rpc->reply_arena);
	size = wire_reply_pack(reply, &rpc->reply_arena, buffer, buffer_size);
	if (size > 0)
		return size;
	if (log_limit_pass(&rpc->endpoint->limit, LOG_LEVEL_ERROR, "rpc", clock_ms()))
		log_error("rpc", "a reply of kind %d does not fit a message", (int)reply->kind);
	wire_arena_reset(&rpc->reply_arena);
	return wire_reply_pack(&failure, &rpc->reply_arena, buffer, buffer_size);
}

uint8_t *
rpc_pack(struct rpc *rpc, const struct wire_reply *reply, size_t *size_p)
{
	size_t size = rpc_pack_reply(rpc, reply, rpc->endpoint->reply, sizeof(rpc->endpoint->reply));
	uint8_t *packed = size > 0 ? malloc(size) : NULL;

	if (packed != NULL)
		memcpy(packed, rpc->endpoint->reply, size);
	*size_p = size;
	return packed;
}

/* A dropped reply would leave the member waiting for ever, so its access is revoked. */
static void
rpc_revoke_if_full(struct member *member, bool sent)
{
	char why[96];

	if (sent)
		return;
	snprintf(why, sizeof(why), "more than %u requests are open: it does not read its replies",
		 WIRE_MAX_OPEN_REQUESTS);
	member_revoke(member, why);
}

void
rpc_reply(struct rpc *rpc, struct member *member, const struct wire_reply *reply)
{
	size_t size = rpc_pack_reply(rpc, reply, rpc->endpoint->reply, sizeof(rpc->endpoint->reply));

	if (size > 0)
		rpc_revoke_if_full(member, endpoint_reply(rpc->endpoint, size));
}

/* Sends the first size bytes of the endpoint's reply. */
static void
rpc_send_deferred(struct rpc *rpc, enum wire_request_kind kind, struct member *member, struct endpoint_route *route,
		  enum paged_status status, size_t size)
{
	rpc_revoke_if_full(member, endpoint_reply_deferred(rpc->endpoint, route, size));
	metrics_replied(rpc->metrics, kind, status, clock_ns() - endpoint_route_received_ns(route));
}

void
rpc_reply_deferred(struct rpc *rpc, enum wire_request_kind kind, uint32_t member_id, struct endpoint_route *route,
		   const struct wire_reply *reply)
{
	struct member *member = member_find(rpc->members, member_id);

	if (member == NULL || member->state != MEMBER_ATTACHED)
		return;
	rpc_send_deferred(rpc, kind, member, route, reply->status,
			  rpc_pack_reply(rpc, reply, rpc->endpoint->reply, sizeof(rpc->endpoint->reply)));
}

void
rpc_reply_packed(struct rpc *rpc, enum wire_request_kind kind, uint32_t member_id, struct endpoint_route *route,
		 const uint8_t *reply, size_t size)
{
	struct member *member = member_find(rpc->members, member_id);

	if (member == NULL || member->state != MEMBER_ATTACHED)
		return;
	memcpy(rpc->endpoint->reply, reply, size);
	rpc_send_deferred(rpc, kind, member, route, PAGED_OK, size);
}
