/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a session about its sequences: permission here, meaning in the core. */
#include "daemon/daemon.h"
#include "daemon/rpc.h"

enum paged_status
rpc_create(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	   struct paged_error *error)
{
	uint32_t pool = request->create.pool, n = request->create.n;
	enum paged_status status = rpc_pool_check(rpc->daemon, member, pool, error);

	if (status == PAGED_OK)
		status = core_seq_create(rpc->daemon->core, member->session->id, pool, n, rpc->scratch.ids, error);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_IDS;
	reply->ids.n = n;
	reply->ids.seq = rpc->scratch.ids;
	return PAGED_OK;
}

/* The parallel arrays of the wire as the core takes them; every pool checked. */
static enum paged_status
items_take(struct rpc *rpc, const struct member *member, const struct wire_items *items, struct paged_error *error)
{
	enum paged_status status;

	for (uint32_t i = 0; i < items->n_pools; i++) {
		status = rpc_pool_check(rpc->daemon, member, items->pool[i], error);
		if (status != PAGED_OK)
			return status;
	}
	for (uint32_t i = 0; i < items->n; i++)
		rpc->scratch.items[i] = (struct core_item){
			.pool = items->pool[items->n_pools == 1 ? 0 : i],
			.tokens = items->tokens ? items->tokens[i] : 0,
			.seq = items->seq[i],
		};
	return PAGED_OK;
}

typedef enum paged_status (*core_verb_fn)(struct core *core, uint32_t session, uint32_t n,
					  const struct core_item *items, struct paged_error *error);

static enum paged_status
items_serve(struct rpc *rpc, const struct member *member, const struct wire_items *items, core_verb_fn verb,
	    struct paged_error *error)
{
	enum paged_status status = items_take(rpc, member, items, error);

	if (status != PAGED_OK)
		return status;
	return verb(rpc->daemon->core, member->session->id, items->n, rpc->scratch.items, error);
}

enum paged_status
rpc_reserve(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	    struct paged_error *error)
{
	(void)reply;
	return items_serve(rpc, member, &request->items, core_seq_reserve, error);
}

enum paged_status
rpc_truncate(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	     struct paged_error *error)
{
	(void)reply;
	return items_serve(rpc, member, &request->items, core_seq_truncate, error);
}

enum paged_status
rpc_erase(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	(void)reply;
	return items_serve(rpc, member, &request->items, core_seq_erase, error);
}
