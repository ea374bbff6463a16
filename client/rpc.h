/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rpc.h - requests over the client's DEALER
 *
 * One caller at a time waits for an answer.  A request whose caller gave up
 * stays known: its reply is taken when it comes, and if it was a create, the
 * sequences that nobody has heard of are erased again.
 *
 * Replies come in the order of the requests, but for those to a check and a
 * block mask, which come when they come: each names the request that it answers.
 */
#ifndef PAGED_CLIENT_RPC_H
#define PAGED_CLIENT_RPC_H

#include "client/control.h"
#include "proto/wire.h"

/** Most requests without an answer; fewer where the daemon takes fewer. */
#define RPC_MAX_PENDING 64u

struct rpc_pending {
	uint64_t id;
	enum wire_request_kind kind;
	bool waited; /* a call waits for the reply */
};

struct rpc {
	struct control *control; /* hangs up when the daemon dies */
	void *context, *socket;
	int fd; /* readable when the socket must be looked at */
	uint32_t timeout_ms;
	uint64_t last_id;
	struct rpc_pending pending[RPC_MAX_PENDING]; /* oldest first */
	unsigned int n_pending, max_pending;

	uint64_t ahead_id;        /* the outstanding reserve-ahead; 0: none */
	struct paged_error ahead; /* what became of the last one */

	struct wire_arena arena;      /* the reply */
	struct wire_arena send_arena; /* a request, while a reply lives */
	uint8_t buffer[WIRE_MAX_MESSAGE];
};

/**
 * rpc_open - connects in the background; *rpc is all zero
 *
 * @param[in] max_open  requests that the daemon takes without a reply; 0: an older one, which does not say
 */
enum paged_status rpc_open(struct rpc *rpc, struct control *control, const char *endpoint, uint32_t member,
			   const char *token_hex, uint32_t max_open, uint32_t timeout_ms, struct paged_error *error);

/** rpc_close - also after a failed open; in a child, memory only: the context's threads are not there to end */
void rpc_close(struct rpc *rpc, bool in_child);

/**
 * rpc_call - send a request (its id is chosen here) and wait for the reply
 *
 * @param[out] reply  with status PAGED_OK and of the kind wanted; lives until the next call
 * @return the reply's status, or PAGED_ERR_GONE, PAGED_ERR_TIMEOUT, PAGED_ERR_PROTOCOL
 */
enum paged_status rpc_call(struct rpc *rpc, struct wire_request *request, enum wire_reply_kind kind,
			   struct wire_reply *reply, struct paged_error *error);

/** rpc_reserve_ahead - as owner_ops.reserve_ahead: at most one is outstanding */
enum paged_status rpc_reserve_ahead(struct rpc *rpc, uint32_t n, const struct paged_seq_item *items,
				    struct paged_error *error);

/** rpc_dispatch - take in replies that are there; never blocks; free when none is outstanding */
void rpc_dispatch(struct rpc *rpc);

#endif
