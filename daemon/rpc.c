/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc.h"

#include "common/clock.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

/* Conditions for a request. */
enum {
	NEEDS_SESSION = 1, /* the sender is not an observer */
	NEEDS_ADMIN = 2,   /* the sender is the daemon's uid, root, or in the admin-group */
	NEEDS_TIME = 4,    /* the daemon is not stopping */
};

static enum paged_status
rpc_ping(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	 struct paged_error *error)
{
	(void)rpc, (void)request, (void)reply;
	if (member->session != NULL && member->session->ended)
		return paged_fail(error, PAGED_ERR_GONE, "session %u has ended", member->session->id);
	return PAGED_OK;
}

static const struct {
	const char *name;
	rpc_handler_fn serve;
	unsigned int needs;
} rpc_table[WIRE_N_REQUESTS] = {
	[WIRE_PING] = { "ping", rpc_ping, 0 },
	[WIRE_CREATE] = { "create", rpc_create, NEEDS_SESSION | NEEDS_TIME },
	[WIRE_RESERVE] = { "reserve", rpc_reserve, NEEDS_SESSION | NEEDS_TIME },
	[WIRE_TRUNCATE] = { "truncate", rpc_truncate, NEEDS_SESSION },
	[WIRE_ERASE] = { "erase", rpc_erase, NEEDS_SESSION },
	[WIRE_GET_STATUS] = { "status", rpc_get_status, 0 },
	[WIRE_GET_POOLS] = { "pools", rpc_get_pools, 0 },
	[WIRE_GET_SESSIONS] = { "sessions", rpc_get_sessions, 0 },
	[WIRE_GET_SEQUENCES] = { "sequences", rpc_get_sequences, 0 },
	[WIRE_GET_TABLE] = { "table", rpc_get_table, 0 },
	[WIRE_GET_HANDLE] = { "get_handle", rpc_get_handle, 0 },
	[WIRE_CHECK] = { "check", rpc_check, NEEDS_ADMIN },
	[WIRE_KICK] = { "kick", rpc_kick, NEEDS_ADMIN },
	[WIRE_PUT_ARRAY] = { "put_array", rpc_put_array, NEEDS_SESSION | NEEDS_TIME },
	[WIRE_DROP_ARRAY] = { "drop_array", rpc_drop_array, NEEDS_SESSION },
	[WIRE_BUILD_MASK] = { "build_mask", rpc_build_mask, NEEDS_SESSION | NEEDS_TIME },
};

enum paged_status
daemon_rpc_open(struct rpc *rpc, struct daemon *daemon, struct paged_error *error)
{
	enum paged_status status;

	rpc->daemon = daemon;
	rpc->n_requests = 0;
	rpc_checks_open(rpc);
	status = wire_arena_create(&rpc->request_arena, error);
	if (status != PAGED_OK)
		return status;
	return wire_arena_create(&rpc->reply_arena, error);
}

void
daemon_rpc_close(struct rpc *rpc)
{
	if (rpc->daemon == NULL)
		return;
	rpc_checks_close(rpc);
	wire_arena_destroy(&rpc->request_arena);
	wire_arena_destroy(&rpc->reply_arena);
}

enum paged_status
member_check_pool(const struct daemon *daemon, const struct member *member, uint32_t pool, struct paged_error *error)
{
	if (pool >= daemon->pools.n)
		return paged_fail(error, PAGED_ERR_NOENT, "no pool number %u; there are %zu", pool, daemon->pools.n);
	if ((member->pool_mask >> pool & 1) == 0)
		return paged_fail(error, PAGED_ERR_PERM, "pool %s: its allow-list does not name uid %u",
				  daemon->pools.pool[pool].config->name, (unsigned)member->uid);
	return PAGED_OK;
}

static enum paged_status
rpc_check_permission(const struct rpc *rpc, const struct member *member, const struct wire_request *request,
		     struct paged_error *error)
{
	unsigned int needs = rpc_table[request->kind].needs;
	const char *name = rpc_table[request->kind].name;

	if ((needs & NEEDS_SESSION) && member->session == NULL)
		return paged_fail(error, PAGED_ERR_PERM, "%s: an observer only looks", name);
	if ((needs & NEEDS_ADMIN) && !member->admin)
		return paged_fail(error, PAGED_ERR_PERM,
				  "%s: uid %u is neither the daemon's, root, nor in the admin-group", name,
				  (unsigned)member->uid);
	if ((needs & NEEDS_TIME) && rpc->daemon->stopping)
		return paged_fail(error, PAGED_ERR_STOPPING, "%s: pagedd is stopping", name);
	return PAGED_OK;
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
	if (log_limit_pass(&rpc->daemon->endpoint.limit, "rpc", clock_ms()))
		log_error("rpc", "a reply of kind %d does not fit a message", (int)reply->kind);
	wire_arena_reset(&rpc->reply_arena);
	return wire_reply_pack(&failure, &rpc->reply_arena, buffer, buffer_size);
}

size_t
daemon_rpc_serve(struct rpc *rpc, struct member *member, const void *message, size_t size, uint8_t *buffer,
		 size_t buffer_size)
{
	struct wire_reply reply = { .kind = WIRE_REPLY_EMPTY, .text = "" };
	struct wire_request request = { 0 };
	struct paged_error error;

	rpc->deferred = false;
	wire_arena_reset(&rpc->request_arena);
	reply.status = wire_request_parse(message, size, &rpc->request_arena, &request, &error);
	reply.id = request.id;
	if (reply.status == PAGED_OK)
		reply.status = rpc_check_permission(rpc, member, &request, &error);
	if (reply.status == PAGED_OK)
		reply.status = rpc_table[request.kind].serve(rpc, member, &request, &reply, &error);
	if (reply.status != PAGED_OK) {
		log_debug("rpc", "member %u: %s", member->id, error.text);
		reply.kind = WIRE_REPLY_EMPTY;
		reply.text = error.text;
	}
	core_wake(rpc->daemon->core);
	rpc->n_requests++;
	member->n_requests++;
	if (rpc->deferred)
		return 0;
	return rpc_pack_reply(rpc, &reply, buffer, buffer_size);
}

void
daemon_rpc_reply_deferred(struct rpc *rpc, uint32_t member_id, struct endpoint_route *route,
			  const struct wire_reply *reply)
{
	struct endpoint *endpoint = &rpc->daemon->endpoint;
	struct member *member = member_find(&rpc->daemon->members, member_id);

	if (member != NULL && member->state == MEMBER_ATTACHED)
		endpoint_reply(endpoint, member, route,
			       rpc_pack_reply(rpc, reply, endpoint->reply, sizeof(endpoint->reply)));
}
