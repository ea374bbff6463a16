/* SPDX-License-Identifier: Apache-2.0 */
/**
 * peer_set.h - the peers of one endpoint: those that were accepted, or the one that is connected to
 *
 * Threads: the publisher's.
 */
#ifndef PAGED_EVENTS_PEER_SET_H
#define PAGED_EVENTS_PEER_SET_H

#include <poll.h>

#include "events/connector.h"
#include "events/peer.h"
#include "events/transport.h"

struct peer_set {
	struct peer_service service;
	const char *name; /* of the pool, for log lines */
	struct transport_listener listener;
	struct connector *connector; /* NULL: the listener is bound */
	bool full;                   /* of file descriptors: nothing is accepted in this second */

	uint32_t n, n_max;
	struct peer **peers;             /* [n_max] the first n are connected */
	struct admission_entry *entries; /* [n_max] room for admission */
	uint64_t n_accepted;
	/* Refused since the last log line, and when that was. */
	uint64_t n_refused, logged_ms;
	/* Closed because their peers did not read. */
	uint64_t n_stalled, stalled_logged_ms;
};

/**
 * peer_set_open - bind or connect
 *
 * @param[in,out] set  the caller has set service, name and n_max
 * @return false: the reason was logged
 */
bool peer_set_open(struct peer_set *set, const char *endpoint, bool bound);
void peer_set_close(struct peer_set *set);

/** peer_set_fill - what the set waits for: at most n_max + 1 descriptors; returns their number */
size_t peer_set_fill(const struct peer_set *set, struct pollfd *polled);

/** peer_set_serve - give each peer its turn; polled has the results of peer_set_fill() */
void peer_set_serve(struct peer_set *set, const struct pollfd *polled, uint64_t now_ms);

/** peer_set_renew - a second has passed */
void peer_set_renew(struct peer_set *set, uint64_t now_ms);

/** peer_set_has_output - does something wait for a peer? */
bool peer_set_has_output(const struct peer_set *set);

/** Batches that the log has dropped and that are being sent. */
struct peer_set_held {
	size_t size; /* bytes */
	/* The peer that has held one for the longest. */
	struct peer_set *set; /* NULL: none */
	uint32_t peer;
};

/** peer_set_hold - add the batches of a set; first is batch_log_first() */
void peer_set_hold(struct peer_set *set, uint64_t first, struct peer_set_held *held);

/** peer_set_close_holder - close the connection of that peer */
void peer_set_close_holder(const struct peer_set_held *held);

/** peer_set_needs - the first batch that a subscriber still waits for, or UINT64_MAX */
uint64_t peer_set_needs(const struct peer_set *set);

#endif
