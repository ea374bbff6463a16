/* SPDX-License-Identifier: Apache-2.0 */
/**
 * control.h - the control socket: who may attach, descriptors out, goodbye
 *
 * A connection has HELLO_MS to say hello and is a member's from then on.
 * Few may be without one: a newcomer too many takes the place of the one
 * that is silent for longest, so that silence keeps nobody out.  A datagram that is no message, is too long or
 * carries descriptors ends its connection.  The daemon never receives a
 * descriptor: it offers no room for one, so the kernel drops them.
 *
 * Nothing here waits: a peer that does not read what it is told is dropped.
 */
#ifndef PAGED_DAEMON_CONTROL_H
#define PAGED_DAEMON_CONTROL_H

#include <stdbool.h>
#include <sys/queue.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/policy.h"
#include "proto/wire.h"

struct daemon;
struct member;

struct connection {
	struct control *control;
	struct loop_source source;
	struct loop_timer hello_timer;
	struct policy_peer peer;
	struct member *member; /* NULL before the hello and after the goodbye */
	bool stranger;         /* has said no hello; in the list of those */
	bool leaving;          /* waits for its farewell */
	bool told_stopping;
	LIST_ENTRY(connection) link;
	TAILQ_ENTRY(connection) stranger_link;
};

struct control {
	struct daemon *daemon;
	struct loop_source listener;
	int spare_fd; /* given up for a moment to turn a peer away when descriptors run out */
	unsigned int n_strangers;
	TAILQ_HEAD(, connection) strangers; /* the oldest first */
	unsigned int n_leaving;
	LIST_HEAD(, connection) connections;
	struct wire_arena arena;
	struct log_limit limit;
	uint8_t buffer[WIRE_MAX_MESSAGE];
};

enum paged_status control_open(struct control *control, struct daemon *daemon, struct paged_error *error);
void control_close(struct control *control);

/** control_stop - accept nobody, tell everybody */
void control_stop(struct control *control, uint32_t deadline_ms);

/** control_notify - tell a member something; a peer that cannot be told is disconnected (and freed): false */
bool control_notify(struct connection *connection, const struct wire_control_reply *notice);

/** control_detach - the member is gone: close, unless it waits for its farewell */
void control_detach(struct connection *connection);

/** control_farewell - what leaving members left has been cleaned up: tell them so */
void control_farewell(struct control *control);

#endif
