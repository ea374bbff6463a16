/* SPDX-License-Identifier: Apache-2.0 */
/**
 * control.h - the control socket: attaching, sending descriptors, leaving
 *
 * A connection must send its hello within HELLO_MS and then belongs to a
 * member.  The number of connections without a hello is limited: above the
 * limit the oldest of them is closed, so silent peers cannot block new ones.
 * A datagram that is not a valid message, is too long or carries descriptors
 * ends its connection.  The daemon receives no descriptors: recvmsg() gets no
 * control buffer, so the kernel drops them.
 *
 * Nothing here blocks: a peer that does not read its messages is disconnected.
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
	bool unidentified;     /* has sent no hello yet; is in control->unidentified */
	bool leaving;          /* has sent Bye and waits for the Farewell */
	bool stopping_sent;    /* has been sent the STOPPING notice */
	LIST_ENTRY(connection) link;
	TAILQ_ENTRY(connection) unidentified_link;
};

struct control {
	struct daemon *daemon;
	struct loop_source listener;
	int spare_fd; /* closed temporarily to accept and drop a peer when descriptors run out */
	unsigned int n_unidentified;
	TAILQ_HEAD(, connection) unidentified; /* the oldest first */
	unsigned int n_leaving;
	LIST_HEAD(, connection) connections;
	struct wire_arena arena;
	struct log_limit limit;
	uint8_t buffer[WIRE_MAX_MESSAGE];
};

enum paged_status daemon_control_open(struct control *control, struct daemon *daemon, struct paged_error *error);
void daemon_control_close(struct control *control);

/** daemon_control_stop - close the listener and send every member the STOPPING notice */
void daemon_control_stop(struct control *control, uint32_t deadline_ms);

/** daemon_control_notify - send a message to a member; false: it could not be sent, and the connection is closed and
 * freed */
bool daemon_control_notify(struct connection *connection, const struct wire_control_reply *notice);

/** daemon_control_detach - the member has left: close its connection, unless it waits for its Farewell */
void daemon_control_detach(struct connection *connection);

/** daemon_control_send_farewells - the cleanup after leaving members is complete: send each its Farewell and close */
void daemon_control_send_farewells(struct control *control);

#endif
