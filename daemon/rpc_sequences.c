/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on sequences: checks the permission for each pool; the core does the rest. */
#include "daemon/rpc.h"

enum paged_status
rpc_create(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	   struct paged_error *error)
{
	const struct seq_spec *specs = request->create.specs;
	enum paged_status status = PAGED_OK;
	uint32_t n = request->create.n;

	for (uint32_t i = 0; i < n && status == PAGED_OK; i++)
		status = member_check_pool(member, specs[i].pool, error);
	if (status == PAGED_OK)
		status = core_seq_create(rpc->core, member->session->id, n, specs, rpc->scratch.ids, error);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_IDS;
	reply->ids.n = n;
	reply->ids.seq = rpc->scratch.ids;
	return PAGED_OK;
}

static enum paged_status
rpc_check_items(const struct member *member, const struct wire_request *request, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < request->change.n && status == PAGED_OK; i++)
		status = member_check_pool(member, PAGED_SEQ_POOL(request->change.items[i].seq), error);
	return status;
}

enum paged_status
rpc_reserve(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	    struct paged_error *error)
{
	enum paged_status status = rpc_check_items(member, request, error);

	(void)reply;
	return status != PAGED_OK ? status
				  : core_seq_reserve(rpc->core, member->session->id, request->change.n,
						     request->change.items, error);
}

enum paged_status
rpc_truncate(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	     struct paged_error *error)
{
	enum paged_status status = rpc_check_items(member, request, error);

	(void)reply;
	return status != PAGED_OK ? status
				  : core_seq_truncate(rpc->core, member->session->id, request->change.n,
						      request->change.items, error);
}

enum paged_status
rpc_trim(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	 struct paged_error *error)
{
	enum paged_status status = rpc_check_items(member, request, error);

	(void)reply;
	return status != PAGED_OK
		       ? status
		       : core_seq_trim(rpc->core, member->session->id, request->change.n, request->change.items, error);
}

enum paged_status
rpc_erase(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	(void)reply;
	for (uint32_t i = 0; i < request->erase.n && status == PAGED_OK; i++)
		status = member_check_pool(member, PAGED_SEQ_POOL(request->erase.ids[i]), error);
	return status != PAGED_OK
		       ? status
		       : core_seq_erase(rpc->core, member->session->id, request->erase.n, request->erase.ids, error);
}
