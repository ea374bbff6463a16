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

#include "core/core.h"
#include "daemon/connection.h"
#include "daemon/member.h"
#include "daemon/pools.h"
#include "daemon/session_cleanup.h"
#include "daemon/runtime.h"

/** The caller sets the pointers, which are borrowed, before daemon_control_open(). */
struct control {
	const struct config *config;
	struct loop *loop;
	const struct core *core;
	const struct pools *pools;
	const struct runtime *runtime;
	struct members *members;
	struct session_cleanup *session_cleanup;
	struct metrics *metrics;
	uint8_t boot_id[WIRE_BOOT_ID_SIZE];

	bool stopping;
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

enum paged_status daemon_control_open(struct control *control, struct paged_error *error);
void daemon_control_close(struct control *control);

/** daemon_control_stop - close the listener, refuse new work, and send every member the STOPPING notice */
void daemon_control_stop(struct control *control, uint32_t deadline_ms);

/**
 * daemon_control_send_farewells - after cleanup: send Farewell to the members that left, and close their connections
 */
void daemon_control_send_farewells(struct control *control);

#endif
