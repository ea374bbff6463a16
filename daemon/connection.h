/* SPDX-License-Identifier: Apache-2.0 */
/**
 * connection.h - one connection to the control socket
 *
 * control.c accepts connections, reads their requests and frees them.
 * Nothing here blocks: a peer that does not read its messages is disconnected.
 */
#ifndef PAGED_DAEMON_CONNECTION_H
#define PAGED_DAEMON_CONNECTION_H

#include <stdbool.h>
#include <sys/queue.h>

#include "daemon/log/log.h"
#include "daemon/loop.h"
#include "daemon/policy.h"
#include "proto/wire.h"

struct control;
struct member;

struct connection {
	struct control *control;
	struct loop *loop;
	struct log_limit *limit; /* of log lines that peers can cause */
	struct loop_source source;
	struct loop_timer hello_timer;
	struct policy_peer peer;
	uint64_t accepted_ns;
	struct member *member; /* NULL before Hello and after Bye */
	bool unidentified;     /* has sent no Hello yet; is in control->unidentified */
	bool leaving;          /* has sent Bye and waits for the Farewell */
	bool stopping_sent;    /* has been sent the STOPPING notice */
	/** The socket is closed: free the connection, and revoke its member if it has one. */
	void (*closed)(struct connection *connection);
	LIST_ENTRY(connection) link;
	TAILQ_ENTRY(connection) unidentified_link;
};

/** connection_send - send one datagram, with the descriptors of a grant if any; false: it would block, or failed */
bool connection_send(struct connection *connection, const struct wire_control_reply *reply, const int *fds,
		     size_t n_fds);

/** connection_notify - send a message to a member; false: it could not be sent, and the connection is closed */
bool connection_notify(struct connection *connection, const struct wire_control_reply *notice);

/** connection_detach - close the connection of a member that has left, unless it waits for its Farewell */
void connection_detach(struct connection *connection);

void connection_close(struct connection *connection);

#endif
