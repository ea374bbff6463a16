/* SPDX-License-Identifier: Apache-2.0 */
/**
 * publisher.h - batches of events over ZeroMQ, as vLLM's ZmqEventPublisher sends them
 *
 * A PUB socket sends each batch as three frames: topic, sequence number (8 bytes,
 * big-endian, from 0 on), payload.  A ROUTER replays the last batches to
 * subscribers that have missed some.  A request has two frames: an empty one, and the
 * first sequence number that is wanted (8 bytes, big-endian).  Each reply has four: an
 * empty one, topic, sequence number, payload; the last has an empty topic and payload and
 * 8 bytes of 0xff as number.
 *
 * Peers may be hostile.  A publisher has a thread, which speaks ZMTP (zmtp.h) and gives each
 * peer turns of limited length.  No peer can make it wait: a subscriber that does not
 * read loses the oldest batches past the high-water mark, and a replay waits for its peer alone.
 * What waits is in one log (batch_log.h), so its memory does not depend on the number of
 * peers.  Batches that the log has dropped and that are being sent may take a quarter of its size:
 * past that, the connection is closed that has held one for the longest.  A connection costs less than
 * 4 KiB, and origins share the connections (admission.h).
 * Requests that are malformed are ignored; frames that are too long, and whatever is not ZMTP 3,
 * end the connection.
 *
 * Threads: one at a time.
 */
#ifndef PAGED_EVENTS_PUBLISHER_H
#define PAGED_EVENTS_PUBLISHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct publisher_options {
	/** Bound if `bind` is set, if it has "*" or "::" in it, or is ipc://; else connected to. */
	const char *endpoint;
	bool bind;
	/** Bound; NULL: no replay. */
	const char *replay_endpoint;
	const char *topic;        /* at most PEER_MAX_TOPIC bytes */
	uint32_t buffer_steps;    /* batches to keep for replay */
	size_t buffer_size;       /* bytes that wait for subscribers or are kept for replay, at most; a quarter more
				     may be held by peers that do not read */
	uint32_t hwm;             /* batches that wait for a subscriber, at most */
	uint32_t max_connections; /* of each endpoint */
	uint32_t linger_ms;       /* publisher_close() goes on sending to subscribers for so long, at most */
};

struct publisher;

/**
 * publisher_open - create the sockets, and start the thread
 *
 * @param[in] name  for log lines; borrowed
 * @return NULL: the reason was logged
 */
struct publisher *publisher_open(const char *name, const struct publisher_options *options);

/** publisher_stop - let the thread send what waits and end; for several publishers, before publisher_close() */
void publisher_stop(struct publisher *publisher);

/** publisher_close - takes NULL */
void publisher_close(struct publisher *publisher);

/** publisher_send - send a batch with the next sequence number, and keep it for replay; false: no memory */
bool publisher_send(struct publisher *publisher, const void *payload, size_t size);

#endif
