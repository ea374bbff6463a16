/* SPDX-License-Identifier: Apache-2.0 */
/**
 * zmq_auth.h - ZeroMQ's authentication protocol (ZAP, RFC 27), with the PLAIN mechanism
 *
 * Parses requests and sends the answers; whether a peer is admitted is the
 * caller's decision.
 */
#ifndef PAGED_DAEMON_ZMQ_AUTH_H
#define PAGED_DAEMON_ZMQ_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/log/log.h"

#define ZAP_DOMAIN "paged"

/** A peer that asks to be admitted. */
struct zap_peer {
	uint32_t id;          /* user name */
	const char *password; /* not checked yet */
	uint32_t uid, gid;    /* from the kernel */
	uint32_t pid;         /* from the kernel; 0: unknown */
};

/** Admit the peer?  If not, why_p gets the reason, for the log. */
typedef bool (*zap_admit_fn)(void *context, const struct zap_peer *peer, const char **why_p);

/**
 * zap_answer - answer one ZAP request
 *
 * @param[in] socket  the ZeroMQ socket of the handler
 * @param[in] limit   of log lines about refused peers and about replies that could not be sent
 * @return false: there was none
 */
bool zap_answer(void *socket, zap_admit_fn admit, void *context, struct log_limit *limit);

#endif
