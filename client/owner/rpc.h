/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rpc.h - requests over the client's DEALER socket
 *
 * One caller at a time waits for a reply.  A request that timed out stays in
 * the pending list until its reply arrives; if it created sequences (create, start, fork, hold), the
 * sequences in the late reply are erased, because no caller knows them.
 *
 * A post is a request whose reply no caller waits for.  A few posts of each kind may be outstanding.
 *
 * Each reply names its request.  Replies arrive in the order of the requests,
 * except those to a check or a block mask, which may arrive later, and refusals
 * of the daemon when too many requests wait, which may arrive earlier.
 */
#ifndef PAGED_CLIENT_RPC_H
#define PAGED_CLIENT_RPC_H

#include "client/owner/control.h"
#include "proto/wire.h"

/** Kinds of posts. */
enum rpc_post { RPC_NO_POST, RPC_RESERVE_AHEAD, RPC_PUBLISH, RPC_N_POSTS };

struct rpc_post_state {
	unsigned int n_open;        /* posts without a reply */
	struct paged_error refusal; /* the last refusal; status PAGED_OK: none since client_rpc_post_refusal() */
};

struct rpc_pending {
	uint64_t id;
	enum rpc_post post;
	uint64_t number; /* of a post: the caller's */
	bool creates;    /* all ids in its reply are new sequences */
	bool waited;     /* a caller waits for the reply */
};

struct rpc {
	struct control *control; /* its hang-up means that the daemon died */
	void *context, *socket;
	int fd; /* ZMQ_FD: readable when the socket's events must be checked */
	uint32_t timeout_ms;
	bool opening; /* a connection that is lost is made again */
	uint64_t last_id;
	struct rpc_pending pending[WIRE_MAX_OPEN_REQUESTS]; /* oldest first */
	unsigned int n_pending, max_open;

	struct rpc_post_state posts[RPC_N_POSTS];

	struct wire_arena arena;      /* memory of the reply */
	struct wire_arena send_arena; /* memory of a request that is sent while a reply is in use */
	uint8_t buffer[WIRE_MAX_MESSAGE];
};

/** How to connect: what the daemon's Welcome says, and the client's time-outs. */
struct rpc_params {
	const char *endpoint;
	const char *token_hex;
	uint32_t member;
	uint32_t
		max_open; /* the daemon's limit on outstanding requests; 0: an older daemon, which does not report it */
	uint32_t timeout_ms;  /* of requests */
	uint64_t deadline_ms; /* of the open */
};

/** client_rpc_open - connect, and check that the daemon answers; *rpc is all zero before the call */
enum paged_status client_rpc_open(struct rpc *rpc, struct control *control, const struct rpc_params *params,
				  struct paged_error *error);

/**
 * client_rpc_close - also valid after a failed open
 *
 * In a forked child only memory is freed, because the threads of the ZeroMQ context do not exist there.
 */
void client_rpc_close(struct rpc *rpc, bool in_child);

/**
 * client_rpc_call - send a request and wait for the reply
 *
 * @param[in,out] request  client_rpc_call() sets its id
 * @param[out]    reply    has status PAGED_OK and the requested kind; valid until the next call
 * @return the reply's status, or PAGED_ERR_GONE, PAGED_ERR_TIMEOUT, PAGED_ERR_PROTOCOL
 */
enum paged_status client_rpc_call(struct rpc *rpc, struct wire_request *request, enum wire_reply_kind kind,
				  struct wire_reply *reply, struct paged_error *error);

/**
 * client_rpc_post - send a request without waiting for its reply
 *
 * @retval PAGED_ERR_AGAIN  the limit of outstanding posts of this kind is reached, or the socket's queue is full
 */
enum paged_status client_rpc_post(struct rpc *rpc, enum rpc_post post, uint64_t number, struct wire_request *request,
				  struct paged_error *error);

/** client_rpc_oldest_post - the number of the oldest post of this kind without a reply; 0: there is none */
uint64_t client_rpc_oldest_post(const struct rpc *rpc, enum rpc_post post);

/** client_rpc_post_refusal - PAGED_OK, or once the daemon's last refusal of a post of this kind */
enum paged_status client_rpc_post_refusal(struct rpc *rpc, enum rpc_post post, struct paged_error *error);

/** client_rpc_dispatch - handle the replies that have arrived; never blocks; costs nothing if none is outstanding */
void client_rpc_dispatch(struct rpc *rpc);

#endif
