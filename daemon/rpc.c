/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc.h"

#include "common/clock.h"
#include "daemon/log/log.h"

/* Conditions for a request, and what follows it. */
enum {
	NEEDS_SESSION = 1,  /* the sender is not an observer */
	NEEDS_ADMIN = 2,    /* the sender is the daemon's uid, root, or in the admin-group */
	NEEDS_TIME = 4,     /* the daemon is not stopping */
	MOVES_DEADLINE = 8, /* a pin or ticket may have another deadline */
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
	[WIRE_START] = { "start", rpc_start, NEEDS_SESSION | NEEDS_TIME },
	[WIRE_FORK] = { "fork", rpc_fork, NEEDS_SESSION | NEEDS_TIME },
	[WIRE_PUBLISH] = { "publish", rpc_publish, NEEDS_SESSION | NEEDS_TIME },
	[WIRE_TRIM] = { "trim", rpc_trim, NEEDS_SESSION },
	[WIRE_PIN] = { "pin", rpc_pin, NEEDS_SESSION | NEEDS_TIME | MOVES_DEADLINE },
	[WIRE_HOLD] = { "hold", rpc_hold, NEEDS_SESSION | NEEDS_TIME },
	[WIRE_GET_PINS] = { "pins", rpc_get_pins, NEEDS_TIME },
	[WIRE_UNPIN] = { "unpin", rpc_unpin, NEEDS_ADMIN },
	[WIRE_EVICT] = { "evict", rpc_evict, NEEDS_ADMIN },
	[WIRE_GET_PREFIXES] = { "prefixes", rpc_get_prefixes, 0 },
	[WIRE_GIVE] = { "give", rpc_give, NEEDS_SESSION | NEEDS_TIME | MOVES_DEADLINE },
	[WIRE_ADOPT] = { "adopt", rpc_adopt, NEEDS_SESSION | NEEDS_TIME | MOVES_DEADLINE },
	[WIRE_CANCEL] = { "cancel", rpc_cancel, NEEDS_SESSION | MOVES_DEADLINE },
	[WIRE_GET_TICKETS] = { "tickets", rpc_get_tickets, 0 },
	[WIRE_GET_QUOTAS] = { "quotas", rpc_get_quotas, 0 },
	[WIRE_GET_STATUS] = { "status", rpc_get_status, 0 },
	[WIRE_GET_METRICS] = { "metrics", rpc_get_metrics, 0 },
	[WIRE_GET_POOLS] = { "pools", rpc_get_pools, 0 },
	[WIRE_GET_SESSIONS] = { "sessions", rpc_get_sessions, 0 },
	[WIRE_GET_SEQUENCES] = { "sequences", rpc_get_sequences, 0 },
	[WIRE_GET_TABLE] = { "table", rpc_get_table, 0 },
	[WIRE_GET_HANDLE] = { "get_handle", rpc_get_handle, 0 },
	[WIRE_CHECK] = { "check", rpc_check, NEEDS_ADMIN },
	[WIRE_KICK] = { "kick", rpc_kick, NEEDS_ADMIN | MOVES_DEADLINE },
	[WIRE_DRAIN] = { "drain", rpc_drain, NEEDS_ADMIN },
	[WIRE_SET_LOG_LEVEL] = { "log_level", rpc_set_log_level, NEEDS_ADMIN },
	[WIRE_PUT_ARRAY] = { "put_array", rpc_put_array, NEEDS_SESSION | NEEDS_TIME },
	[WIRE_DROP_ARRAY] = { "drop_array", rpc_drop_array, NEEDS_SESSION },
	[WIRE_BUILD_MASK] = { "build_mask", rpc_build_mask, NEEDS_SESSION | NEEDS_TIME },
};

enum paged_status
daemon_rpc_open(struct rpc *rpc, struct paged_error *error)
{
	enum paged_status status;

	for (unsigned int kind = 0; kind < WIRE_N_REQUESTS; kind++)
		metrics_name(rpc->metrics, kind, rpc_table[kind].name);
	rpc_checks_open(rpc);
	rpc_unfinished_open(rpc);
	status = wire_arena_create(&rpc->request_arena, error);
	if (status != PAGED_OK)
		return status;
	return wire_arena_create(&rpc->reply_arena, error);
}

void
daemon_rpc_close(struct rpc *rpc)
{
	if (rpc->loop == NULL)
		return;
	rpc_checks_close(rpc);
	rpc_unfinished_close(rpc);
	wire_arena_destroy(&rpc->request_arena);
	wire_arena_destroy(&rpc->reply_arena);
}

static enum paged_status
rpc_check_permission(const struct rpc *rpc, const struct member *member, const struct wire_request *request,
		     struct paged_error *error)
{
	unsigned int needs = rpc_table[request->kind].needs;
	const char *name = rpc_table[request->kind].name;

	if ((needs & NEEDS_SESSION) && member->session == NULL)
		return paged_fail(error, PAGED_ERR_PERM, "%s: an observer may only read", name);
	if ((needs & NEEDS_ADMIN) && !member->admin)
		return paged_fail(error, PAGED_ERR_PERM,
				  "%s: uid %u is neither the daemon's, root, nor in the admin-group", name,
				  (unsigned)member->uid);
	if ((needs & NEEDS_TIME) && rpc->stopping)
		return paged_fail(error, PAGED_ERR_STOPPING, "%s: pagedd is stopping", name);
	return PAGED_OK;
}

/* Serves a request that the member may make now; a long one is replied to when the core has finished it. */
static enum paged_status
rpc_serve(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	uint32_t session = member->session != NULL ? member->session->id : 0;
	uint64_t n_worked = core_n_worked(rpc->core);
	/* Requests that only read are served while another one of the session is unfinished. */
	bool was_busy = core_session_is_busy(rpc->core, session);
	enum paged_status status = rpc_table[request->kind].serve(rpc, member, request, reply, error);

	metrics_worked(rpc->metrics, request->kind, core_n_worked(rpc->core) - n_worked);
	if (status == PAGED_OK && !was_busy && !rpc->deferred && core_session_is_busy(rpc->core, session))
		rpc_unfinished_begin(rpc, member, request->kind, reply);
	return status;
}

bool
daemon_rpc_serve(void *context, uint32_t member_id, const void *message, size_t size)
{
	struct rpc *rpc = context;
	struct wire_reply reply = { .kind = WIRE_REPLY_EMPTY, .text = "" };
	struct member *member = member_find(rpc->members, member_id);
	struct wire_request request = { 0 };
	uint64_t received_ns = rpc->endpoint->received_ns;
	unsigned int kind = METRICS_INVALID;
	struct paged_error error;

	if (member == NULL || member->state != MEMBER_ATTACHED)
		return false;
	rpc->deferred = false;
	wire_arena_reset(&rpc->request_arena);
	reply.status = wire_request_parse(message, size, &rpc->request_arena, &request, &error);
	reply.id = request.id;
	if (reply.status == PAGED_OK) {
		kind = request.kind;
		reply.status = rpc_check_permission(rpc, member, &request, &error);
	}
	if (reply.status == PAGED_OK && rpc_table[kind].needs & NEEDS_SESSION &&
	    rpc_unfinished_wait(rpc, member, message, size, &reply.status, &error))
		return true;
	core_set_now(rpc->core, received_ns / 1000000);
	if (reply.status == PAGED_OK)
		reply.status = rpc_serve(rpc, member, &request, &reply, &error);
	if (reply.status != PAGED_OK) {
		log_write(LOG_LEVEL_DEBUG, "rpc", member_ids(member), "member %u: %s", member->id, error.text);
		rpc_refuse(&reply, &error);
	}
	core_wake(rpc->core);
	if (core_tick_needed(rpc->core) || (reply.status == PAGED_OK && rpc_table[request.kind].needs & MOVES_DEADLINE))
		cache_cleanup_schedule(rpc->cache_cleanup);
	rpc->n_requests++;
	member->n_requests++;
	if (rpc->deferred)
		return true;
	rpc_reply(rpc, member, &reply);
	metrics_replied(rpc->metrics, kind, reply.status, clock_ns() - received_ns);
	return true;
}
