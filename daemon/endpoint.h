/* SPDX-License-Identifier: Apache-2.0 */
/**
 * endpoint.h - the RPC channel: one ZeroMQ ROUTER, an ipc:// endpoint a member
 *
 * Every member connects to an endpoint of its own with a random name, so
 * that unbinding it drops that peer and no other.  A handler for ZeroMQ's
 * authentication protocol (ZAP) admits a connection whose PLAIN user name
 * and password are id and token of a live member and whose kernel-reported
 * uid, gid and pid are that member's.  Each message then carries the member
 * as User-Id, which nothing in the message can change; messages that a
 * killed member left in the queue find it dead.
 *
 * Nothing here waits: a peer that has more requests open than the protocol
 * allows, and whose replies fit nowhere any more, is cut off.
 */
#ifndef PAGED_DAEMON_ENDPOINT_H
#define PAGED_DAEMON_ENDPOINT_H

#include <stdbool.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "proto/wire.h"

struct daemon;
struct member;

/** Where a reply goes that is not sent at once. */
struct endpoint_route;

/** RPC connections that one member may make in its life: the library makes one, and each costs a descriptor. */
enum { ENDPOINT_CONNECTIONS = 2 };

struct endpoint {
	struct daemon *daemon;
	void *context, *router, *zap;
	struct loop_source router_source, zap_source;
	struct loop_work work;
	bool router_pending, zap_pending; /* there may be something to take */
	void *route;                      /* of the message being served */
	struct loop_timer trim;           /* runs after a peer was dropped */
	struct log_limit limit;
	uint64_t n_dropped; /* messages that were no request: several frames, no live member */
	uint8_t reply[WIRE_MAX_MESSAGE];
};

enum paged_status endpoint_open(struct endpoint *endpoint, struct daemon *daemon, struct paged_error *error);
void endpoint_close(struct endpoint *endpoint);

/** endpoint_bind - a fresh random endpoint; name is for its member alone and never logged */
enum paged_status endpoint_bind(struct endpoint *endpoint, char name[WIRE_MAX_ENDPOINT], struct paged_error *error);

/** endpoint_unbind - drop the peer; name becomes ""; "" is nothing */
void endpoint_unbind(struct endpoint *endpoint, char name[WIRE_MAX_ENDPOINT]);

/** endpoint_route_keep - for a later reply to the message being served; NULL: no memory */
struct endpoint_route *endpoint_route_keep(struct endpoint *endpoint);
void endpoint_route_drop(struct endpoint_route *route);

/** endpoint_reply - the first size bytes of endpoint->reply, once; the member is alive */
void endpoint_reply(struct endpoint *endpoint, struct member *member, struct endpoint_route *route, size_t size);

#endif
