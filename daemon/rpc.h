/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rpc.h - dispatch and handlers of requests
 *
 * rpc.c has the table: request kind -> name, handler, permissions required.
 * A handler fills a reply or fails with an error text.  The reply's pointers
 * refer to `scratch` below and are valid until the next request.
 */
#ifndef PAGED_DAEMON_RPC_H
#define PAGED_DAEMON_RPC_H

#include "core/core.h"
#include "daemon/background_thread.h"
#include "daemon/cache_cleanup.h"
#include "daemon/endpoint.h"
#include "daemon/loop.h"
#include "daemon/member.h"
#include "daemon/metrics.h"
#include "daemon/pools.h"
#include "proto/wire.h"

/** A check request that is answered later. */
struct rpc_job {
	uint32_t member;
	uint32_t pool;
	uint64_t request;
	struct endpoint_route *route;
};

enum { RPC_MAX_CHECKS = 16 };

struct rpc_checks {
	struct loop_work work;
	struct core_audit *audit; /* of job[0]; NULL: not begun */
	struct rpc_job job[RPC_MAX_CHECKS];
	uint32_t n;
};

/** The caller sets the pointers, which are borrowed, and started_ms before daemon_rpc_open(). */
struct rpc {
	const struct config *config;
	struct loop *loop;
	struct core *core;
	const struct pools *pools;
	struct members *members;
	struct endpoint *endpoint;
	struct background_thread *background;
	struct cache_cleanup *cache_cleanup;
	struct metrics *metrics;
	uint64_t started_ms; /* the daemon's start, on the monotonic clock */

	bool stopping;       /* the daemon accepts no new work */
	uint64_t n_requests; /* served, including failed and deferred ones */
	bool deferred;       /* the current request is answered later */
	struct rpc_checks checks;
	struct loop_work unfinished_work;
	TAILQ_HEAD(, rpc_unfinished) unfinished;
	bool resumed; /* the current request has waited for another */
	struct wire_arena request_arena, reply_arena;
	union { /* of the current request */
		uint64_t ids[PAGED_MAX_REQUEST_SEQS];
		uint32_t pages[WIRE_TABLE_MAX];
		struct paged_pool_entry pools[WIRE_LIST_MAX];
		struct paged_session_entry sessions[WIRE_LIST_MAX];
		struct paged_seq_entry sequences[WIRE_LIST_MAX];
		struct paged_node_entry nodes[WIRE_LIST_MAX];
		struct paged_ticket_entry tickets[WIRE_LIST_MAX];
		struct paged_quota_entry quotas[WIRE_LIST_MAX];
		struct paged_pin_entry pins[WIRE_LIST_MAX];
		struct paged_seq_item items[PAGED_MAX_REQUEST_SEQS];
		struct {
			struct core_publish publishes[WIRE_MAX_PUBLISHES];
			uint32_t n_published[WIRE_MAX_PUBLISHES];
			uint32_t ends[WIRE_MAX_PUBLISHES];
			uint32_t extra_page[WIRE_MAX_EXTRAS];
		} publish;
	} scratch;
};

enum paged_status daemon_rpc_open(struct rpc *rpc, struct paged_error *error);
void daemon_rpc_close(struct rpc *rpc);

/**
 * daemon_rpc_serve - serve one message
 *
 * @param[in] context  the rpc; see endpoint_ops
 * @return false: there is no such attached member
 */
bool daemon_rpc_serve(void *context, uint32_t member, const void *message, size_t size);

typedef enum paged_status (*rpc_handler_fn)(struct rpc *rpc, struct member *member, const struct wire_request *request,
					    struct wire_reply *reply, struct paged_error *error);

/* rpc_reply.c */

/** rpc_reply - reply to the current request; if the member's queue is full, revoke the member */
void rpc_reply(struct rpc *rpc, struct member *member, const struct wire_reply *reply);

/** rpc_reply_deferred - reply to a deferred request; does nothing if its member is no longer attached */
void rpc_reply_deferred(struct rpc *rpc, enum wire_request_kind kind, uint32_t member, struct endpoint_route *route,
			const struct wire_reply *reply);

/** rpc_refuse - fill a reply with an error and, if pages or slots were missing, with their numbers */
void rpc_refuse(struct wire_reply *reply, const struct paged_error *error);

/** rpc_pack - pack a reply into memory that the caller frees; NULL: no memory */
uint8_t *rpc_pack(struct rpc *rpc, const struct wire_reply *reply, size_t *size_p);

/** rpc_reply_packed - rpc_reply_deferred() with a reply without an error that is packed already */
void rpc_reply_packed(struct rpc *rpc, enum wire_request_kind kind, uint32_t member, struct endpoint_route *route,
		      const uint8_t *reply, size_t size);

/* rpc_unfinished.c */

/** rpc_unfinished_begin - reply to the current request when the core has finished it; may finish it now */
void rpc_unfinished_begin(struct rpc *rpc, struct member *member, enum wire_request_kind kind,
			  const struct wire_reply *reply);

/**
 * rpc_unfinished_wait - let the current message wait if a request of the member's session is unfinished
 *
 * @param[out] status_p  PAGED_ERR_AGAIN: too many wait; PAGED_ERR_NOMEM; else unchanged
 * @return true: it waits, and is served later
 */
bool rpc_unfinished_wait(struct rpc *rpc, const struct member *member, const void *message, size_t size,
			 enum paged_status *status_p, struct paged_error *error);
void rpc_unfinished_open(struct rpc *rpc);
void rpc_unfinished_close(struct rpc *rpc);

/* rpc_sequences.c */
enum paged_status rpc_create(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			     struct paged_error *);
enum paged_status rpc_reserve(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			      struct paged_error *);
enum paged_status rpc_truncate(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			       struct paged_error *);
enum paged_status rpc_trim(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			   struct paged_error *);
enum paged_status rpc_erase(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			    struct paged_error *);

/* rpc_sharing.c */
enum paged_status rpc_start(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			    struct paged_error *);
enum paged_status rpc_fork(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			   struct paged_error *);
enum paged_status rpc_publish(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			      struct paged_error *);
enum paged_status rpc_pin(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			  struct paged_error *);
enum paged_status rpc_hold(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			   struct paged_error *);
enum paged_status rpc_get_pins(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			       struct paged_error *);
enum paged_status rpc_unpin(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			    struct paged_error *);
enum paged_status rpc_evict(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			    struct paged_error *);
enum paged_status rpc_get_prefixes(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				   struct paged_error *);

/* rpc_handover.c */
enum paged_status rpc_give(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			   struct paged_error *);
enum paged_status rpc_adopt(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			    struct paged_error *);
enum paged_status rpc_cancel(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			     struct paged_error *);
enum paged_status rpc_get_tickets(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				  struct paged_error *);

/* rpc_admin.c */
enum paged_status rpc_get_status(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				 struct paged_error *);
enum paged_status rpc_get_metrics(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				  struct paged_error *);
enum paged_status rpc_get_pools(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				struct paged_error *);
enum paged_status rpc_get_sessions(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				   struct paged_error *);
enum paged_status rpc_get_sequences(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				    struct paged_error *);
enum paged_status rpc_get_table(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				struct paged_error *);
enum paged_status rpc_get_handle(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				 struct paged_error *);
enum paged_status rpc_get_quotas(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				 struct paged_error *);
enum paged_status rpc_kick(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			   struct paged_error *);
enum paged_status rpc_drain(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			    struct paged_error *);
enum paged_status rpc_set_log_level(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				    struct paged_error *);

/* rpc_masks.c */
enum paged_status rpc_put_array(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				struct paged_error *);
enum paged_status rpc_drop_array(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				 struct paged_error *);
enum paged_status rpc_build_mask(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
				 struct paged_error *);

/* rpc_check.c */
enum paged_status rpc_check(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			    struct paged_error *);
void rpc_checks_open(struct rpc *rpc);
void rpc_checks_close(struct rpc *rpc);

#endif
