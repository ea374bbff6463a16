/* SPDX-License-Identifier: Apache-2.0 */
/**
 * peer.h - one connection of a subscriber, or of one who asks for replays
 *
 * A peer holds a buffer for one frame, a reference to the batch that is being sent, and numbers.  A subscriber's
 * topics are remembered only if the publisher's topic begins with them: no other makes a difference.
 *
 * Each request for a replay is answered by the batches that are kept, in order, and the end marker.  If batches
 * are dropped while a replay is under way, the replay goes on with the oldest that is kept.
 */
#ifndef PAGED_EVENTS_PEER_H
#define PAGED_EVENTS_PEER_H

#include "events/admission.h"
#include "events/batch_log.h"
#include "events/zmtp.h"

/** Longest topic of a publisher, bytes. */
#define PEER_MAX_TOPIC 255
/** Requests for a replay that wait; no more is read from a peer while they do. */
#define PEER_MAX_REQUESTS 16

/** What the peers of one endpoint have in common. */
struct peer_service {
	enum { PEER_SUBSCRIBERS, PEER_REPLAYS } kind;
	struct batch_log *log;
	const char *topic;
	uint32_t hwm;          /* batches that wait for a subscriber, at most */
	uint32_t buffer_steps; /* batches that a replay has, at most */
};

struct peer {
	int fd;
	struct admission_entry entry;
	uint64_t since_ms; /* when the connection began */

	/* Input: what was received and not understood yet. */
	bool greeted;
	uint32_t n_in, input_left; /* bytes; those that may be received in this second */
	uint32_t reads_left;       /* in this second */
	uint8_t in[ZMTP_MAX_HEAD + ZMTP_MAX_BODY];
	uint32_t n_frames; /* of the message that is being received */
	bool frame_is_wrong;

	/* Output: commands, then batches. */
	uint32_t n_out, out_at;
	uint8_t out[ZMTP_GREETING_SIZE + 2 * ZMTP_MAX_COMMAND];
	struct batch *batch; /* being sent; NULL: none */
	size_t batch_at;
	uint64_t batch_since; /* batch_log_next() when it was taken */

	/* Subscribers: bit i is set if the first i bytes of the topic are subscribed to. */
	uint8_t topics[PEER_MAX_TOPIC / 8 + 1];
	bool subscribed;
	uint64_t next; /* batch */

	/* Replays. */
	uint64_t requests[PEER_MAX_REQUESTS];
	uint32_t n_requests;
	uint64_t replay_end; /* of the first request; 0: it has not begun */
};

/** peer_create - a connection, whose socket the peer owns; sends the greeting; NULL: no memory */
struct peer *peer_create(int fd, uint64_t now_ms);

/** peer_destroy - takes NULL */
void peer_destroy(struct peer *peer);

/** peer_read - receive, once; false: the connection is to be closed */
bool peer_read(struct peer *peer, const struct peer_service *service);

/** peer_write - send what can be sent now, up to a limit; false: the connection is to be closed */
bool peer_write(struct peer *peer, const struct peer_service *service);

/** peer_wants_input - may more be received from this peer now? */
bool peer_wants_input(const struct peer *peer);

/** peer_has_output - is there something to be sent?  `next` is batch_log_next() */
bool peer_has_output(const struct peer *peer, uint64_t next);

/** peer_renew - a second has passed; false: the handshake takes too long, the connection is to be closed */
bool peer_renew(struct peer *peer, uint64_t now_ms);

#endif
