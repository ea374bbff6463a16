/* SPDX-License-Identifier: Apache-2.0 */
/**
 * publisher.h - batches of events over ZeroMQ, as vLLM's ZmqEventPublisher sends them
 *
 * A PUB socket sends each batch as three frames: topic, sequence number (8 bytes,
 * big-endian, from 0 on), payload.  A ROUTER replays the last batches to
 * subscribers that have missed some.  A request has three frames: the routing
 * id, an empty one, and the first sequence number that is wanted (8 bytes,
 * big-endian).  Each reply has five: routing id, an empty one, topic, sequence number,
 * payload; the last has an empty topic and payload and 8 bytes of 0xff as number.
 *
 * Peers may be hostile.  No send waits: a subscriber that does not read loses
 * batches past the high-water mark, and a replay to a peer that does not read ends
 * where its queue is full.  Queues hold references to payloads, not copies.
 * Requests that are malformed are ignored, and frames that are too long end the
 * connection.
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
	const char *topic;
	uint32_t buffer_steps; /* batches to keep for replay */
	size_t buffer_size;    /* bytes of these, at most */
	uint32_t hwm;          /* batches that wait for a subscriber, at most */
};

struct publisher;

/**
 * publisher_open - create the sockets
 *
 * @param[in] zmq    the ZeroMQ context
 * @param[in] name   for log lines; borrowed
 * @return NULL: the reason was logged
 */
struct publisher *publisher_open(void *zmq, const char *name, const struct publisher_options *options);

/** publisher_close - takes NULL */
void publisher_close(struct publisher *publisher);

/** publisher_send - send a batch with the next sequence number, and keep it for replay; false: no memory */
bool publisher_send(struct publisher *publisher, const void *payload, size_t size);

/** publisher_serve - answer one request for a replay, if there is one; false: there was none */
bool publisher_serve(struct publisher *publisher);

/** publisher_has_replay - whether publisher_serve() has something to do */
bool publisher_has_replay(const struct publisher *publisher);

#endif
