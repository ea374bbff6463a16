/* SPDX-License-Identifier: Apache-2.0 */
/**
 * endpoint.h - the RPC channel: one ZeroMQ ROUTER with one ipc:// endpoint per member
 *
 * Each member connects to its own endpoint, which has a random name, so that
 * unbinding it drops this peer only.  A handler of ZeroMQ's authentication
 * protocol (ZAP) admits a connection if its PLAIN user name and password are
 * the id and token of a live member, and its uid, gid and pid, as reported by
 * the kernel, are the member's.  ZeroMQ then attaches the member's id to each
 * message as the property User-Id, which the sender cannot forge.  Messages
 * that a killed member left in the queue are dropped.
 *
 * The endpoint knows members by id only.  The callbacks in struct endpoint_ops
 * admit peers and serve messages.
 *
 * Nothing here blocks: a reply for which a peer's queue has no room is not
 * sent, and the owner revokes the member.
 */
#ifndef PAGED_DAEMON_ENDPOINT_H
#define PAGED_DAEMON_ENDPOINT_H

#include <stdbool.h>

#include "daemon/log/log.h"
#include "daemon/loop.h"
#include "daemon/runtime.h"
#include "daemon/zmq_auth.h"
#include "proto/wire.h"

/** The address of a deferred reply. */
struct endpoint_route;

/** RPC connections that a member may make in its life.  The library makes one; each uses a descriptor. */
enum { ENDPOINT_CONNECTIONS = 2 };

struct endpoint_ops {
	/** Admit a connection? */
	zap_admit_fn admit;
	/** Serve a message of an admitted peer; false: no such member, the message is dropped. */
	bool (*serve)(void *context, uint32_t member, const void *message, size_t size);
};

struct endpoint {
	const struct endpoint_ops *ops;
	void *admit_context, *serve_context;
	struct loop *loop;
	const struct runtime *runtime;
	void *context, *router, *zap;
	struct loop_source router_source, zap_source;
	struct loop_work work;
	bool router_pending, zap_pending; /* the socket may have messages */
	void *route;                      /* of the current message */
	uint64_t received_ns;             /* when the current message was received, on the monotonic clock */
	struct loop_timer trim;           /* armed after a peer was dropped */
	struct log_limit limit;
	uint64_t n_dropped; /* messages not served: no body, several body frames, or no live member */
	uint8_t reply[WIRE_MAX_MESSAGE];
};

/** endpoint_open - open the socket; the caller has set ops, contexts, loop and runtime, which are borrowed */
enum paged_status endpoint_open(struct endpoint *endpoint, struct paged_error *error);
void endpoint_close(struct endpoint *endpoint);

/** endpoint_bind - bind a new endpoint of a process; its name is random, sent to its member only and never logged */
enum paged_status endpoint_bind(struct endpoint *endpoint, pid_t pid, char name[WIRE_MAX_ENDPOINT],
				struct paged_error *error);

/** endpoint_unbind - unbind the endpoint, which drops its peer, and set name to ""; accepts "" */
void endpoint_unbind(struct endpoint *endpoint, char name[WIRE_MAX_ENDPOINT]);

/** endpoint_route_copy - copy the address of the current message for a later reply; NULL: no memory */
struct endpoint_route *endpoint_route_copy(struct endpoint *endpoint);
void endpoint_route_free(struct endpoint_route *route);

/** endpoint_route_received_ns - when the message was received whose route was copied */
uint64_t endpoint_route_received_ns(const struct endpoint_route *route);

/**
 * endpoint_serve_waiting - serve a message whose route was copied as the current one; its reply consumes the route,
 * which the caller frees
 */
void endpoint_serve_waiting(struct endpoint *endpoint, struct endpoint_route *route, uint32_t member,
			    const void *message, size_t size);

/**
 * endpoint_reply - reply to the current message with the first size bytes of endpoint->reply; call within ops->serve()
 *
 * @return false: the peer's queue is full; it does not read its replies, and would wait for this one for ever
 */
bool endpoint_reply(struct endpoint *endpoint, size_t size);

/** endpoint_reply_deferred - reply, as endpoint_reply(), to a message whose route was copied; call once per route */
bool endpoint_reply_deferred(struct endpoint *endpoint, struct endpoint_route *route, size_t size);

#endif
