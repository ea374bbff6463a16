/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rpc.h - what requests mean
 *
 * rpc.c has the table: request kind -> name, handler, what the asker must
 * be.  A handler fills a reply or fails with a sentence; what a reply points
 * to lies in the scratch below and lives until the next request.
 */
#ifndef PAGED_DAEMON_RPC_H
#define PAGED_DAEMON_RPC_H

#include "core/core.h"
#include "daemon/endpoint.h"
#include "daemon/loop.h"
#include "proto/wire.h"

struct daemon;
struct member;

/** A request that is answered later. */
struct rpc_job {
	uint32_t member;
	uint32_t pool;
	uint64_t request;
	struct endpoint_route *route;
};

enum { RPC_MAX_CHECKS = 16 };

struct rpc_checks {
	struct loop_work work;
	struct core_audit *audit; /* of the first in line; NULL: not begun */
	struct rpc_job job[RPC_MAX_CHECKS];
	uint32_t n;
};

struct rpc {
	struct daemon *daemon;
	uint64_t n_requests; /* answered */
	bool deferred;       /* the request being served is answered later */
	struct rpc_checks checks;
	struct wire_arena request_arena, reply_arena;
	union { /* of the request being served */
		uint64_t ids[PAGED_MAX_REQUEST_SEQS];
		uint32_t pages[WIRE_TABLE_MAX];
		struct paged_pool_entry pools[WIRE_LIST_MAX];
		struct paged_session_entry sessions[WIRE_LIST_MAX];
		struct paged_seq_entry sequences[WIRE_LIST_MAX];
	} scratch;
};

enum paged_status rpc_open(struct rpc *rpc, struct daemon *daemon, struct paged_error *error);
void rpc_close(struct rpc *rpc);

/**
 * rpc_serve - answer one message
 *
 * @param[in] member  who sent it; alive
 * @return bytes of the reply; 0: it comes later
 */
size_t rpc_serve(struct rpc *rpc, struct member *member, const void *message, size_t size, uint8_t *reply,
		 size_t reply_size);

/** rpc_reply_late - answer a request that was deferred, if its member is still there */
void rpc_reply_late(struct rpc *rpc, uint32_t member, struct endpoint_route *route, const struct wire_reply *reply);

/** rpc_pool_check - the pool exists, and its allow-list admits the member */
enum paged_status rpc_pool_check(const struct daemon *daemon, const struct member *member, uint32_t pool,
				 struct paged_error *error);

typedef enum paged_status (*rpc_handler_fn)(struct rpc *rpc, struct member *member, const struct wire_request *request,
					    struct wire_reply *reply, struct paged_error *error);

/* rpc_sequences.c */
enum paged_status rpc_create(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			     struct paged_error *);
enum paged_status rpc_reserve(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			      struct paged_error *);
enum paged_status rpc_truncate(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			       struct paged_error *);
enum paged_status rpc_erase(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
			    struct paged_error *);

/* rpc_admin.c */
enum paged_status rpc_get_status(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
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
enum paged_status rpc_kick(struct rpc *, struct member *, const struct wire_request *, struct wire_reply *,
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
