/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/publisher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <zmq.h>

#include "events/log.h"

#define SEQUENCE_SIZE 8
/* Of frames that peers send: subscriptions, and requests for a replay. */
#define MAX_FRAME_SIZE 1024
/* Requests of a peer that wait. */
#define REQUESTS_HWM 16
/* Frames of a request that are looked at. */
#define REQUEST_FRAMES 3

struct publisher {
	const char *name;
	void *pub, *replay; /* sockets; replay NULL: none */
	char *topic;
	uint64_t next; /* sequence number of the next batch */

	/* Batches [next - n_kept, next); number s is at index s % buffer_steps. */
	zmq_msg_t *kept;
	uint32_t buffer_steps, n_kept;
	size_t buffer_size, kept_size; /* bytes */
};

static bool
endpoint_is_bound(const char *endpoint)
{
	return strchr(endpoint, '*') != NULL || strstr(endpoint, "::") != NULL || strncmp(endpoint, "ipc://", 6) == 0;
}

/* Creates a socket that bounds what a peer can make it store. */
static void *
socket_open(struct publisher *publisher, void *zmq, int type, int send_hwm, const char *endpoint, bool bound)
{
	const int receive_hwm = REQUESTS_HWM, linger = 0,
		  ipv6 = strchr(endpoint, '[') != NULL || strstr(endpoint, "::");
	const int64_t max_frame = MAX_FRAME_SIZE;
	void *socket = zmq_socket(zmq, type);

	if (socket == NULL) {
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: a ZeroMQ socket: %s", publisher->name,
			   zmq_strerror(errno));
		return NULL;
	}
	zmq_setsockopt(socket, ZMQ_SNDHWM, &send_hwm, sizeof(send_hwm));
	zmq_setsockopt(socket, ZMQ_RCVHWM, &receive_hwm, sizeof(receive_hwm));
	zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(socket, ZMQ_IPV6, &ipv6, sizeof(ipv6));
	zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max_frame, sizeof(max_frame));
	if ((bound ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint)) == 0) {
		/* With the port that a wildcard stands for. */
		char last[256] = "";
		size_t size = sizeof(last);

		zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, last, &size);
		events_log(EVENTS_LOG_INFO, "kv", "pool %s: %s %s %s", publisher->name,
			   type == ZMQ_PUB ? "events" : "replay", bound ? "at" : "to", last);
		return socket;
	}
	events_log(EVENTS_LOG_ERROR, "kv", "pool %s: %s: %s", publisher->name, endpoint, zmq_strerror(errno));
	zmq_close(socket);
	return NULL;
}

struct publisher *
publisher_open(void *zmq, const char *name, const struct publisher_options *options)
{
	struct publisher *publisher = calloc(1, sizeof(*publisher));

	if (publisher != NULL) {
		publisher->topic = strdup(options->topic);
		publisher->kept = calloc(options->buffer_steps + 1, sizeof(*publisher->kept));
	}
	if (publisher == NULL || publisher->topic == NULL || publisher->kept == NULL) {
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: no memory for %u batches", name, options->buffer_steps);
		publisher_close(publisher);
		return NULL;
	}
	publisher->name = name;
	publisher->buffer_steps = options->replay_endpoint != NULL ? options->buffer_steps : 0;
	publisher->buffer_size = options->buffer_size;
	publisher->pub = socket_open(publisher, zmq, ZMQ_PUB, (int)options->hwm, options->endpoint,
				     options->bind || endpoint_is_bound(options->endpoint));
	/* A whole replay fits into a peer's queue. */
	if (publisher->pub != NULL && options->replay_endpoint != NULL)
		publisher->replay = socket_open(publisher, zmq, ZMQ_ROUTER, (int)options->buffer_steps + 1,
						options->replay_endpoint, true);
	if (publisher->pub == NULL || (options->replay_endpoint != NULL && publisher->replay == NULL)) {
		publisher_close(publisher);
		return NULL;
	}
	return publisher;
}

static zmq_msg_t *
kept_batch(struct publisher *publisher, uint64_t sequence)
{
	return &publisher->kept[sequence % publisher->buffer_steps];
}

/* Forgets the oldest batch. */
static void
kept_drop(struct publisher *publisher)
{
	zmq_msg_t *batch = kept_batch(publisher, publisher->next - publisher->n_kept);

	publisher->kept_size -= zmq_msg_size(batch);
	publisher->n_kept--;
	zmq_msg_close(batch);
}

void
publisher_close(struct publisher *publisher)
{
	if (publisher == NULL)
		return;
	while (publisher->n_kept > 0)
		kept_drop(publisher);
	if (publisher->pub != NULL)
		zmq_close(publisher->pub);
	if (publisher->replay != NULL)
		zmq_close(publisher->replay);
	free(publisher->topic);
	free(publisher->kept);
	free(publisher);
}

static void
sequence_store(uint8_t bytes[SEQUENCE_SIZE], uint64_t sequence)
{
	for (int i = 0; i < SEQUENCE_SIZE; i++)
		bytes[i] = (uint8_t)(sequence >> 8 * (SEQUENCE_SIZE - 1 - i));
}

static uint64_t
sequence_load(const uint8_t *bytes)
{
	uint64_t sequence = 0;

	for (int i = 0; i < SEQUENCE_SIZE; i++)
		sequence = sequence << 8 | bytes[i];
	return sequence;
}

/* Topic, sequence number, and another reference to the payload.  What cannot be queued is dropped, by frame or whole.
 */
static void
batch_send(void *socket, const char *topic, uint64_t sequence, zmq_msg_t *payload)
{
	uint8_t bytes[SEQUENCE_SIZE];
	zmq_msg_t copy;

	sequence_store(bytes, sequence);
	zmq_send(socket, topic, strlen(topic), ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, bytes, sizeof(bytes), ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_msg_init(&copy);
	zmq_msg_copy(&copy, payload);
	if (zmq_msg_send(&copy, socket, ZMQ_DONTWAIT) < 0)
		zmq_msg_close(&copy);
}

bool
publisher_send(struct publisher *publisher, const void *payload, size_t size)
{
	zmq_msg_t batch;

	if (zmq_msg_init_size(&batch, size) != 0)
		return false;
	memcpy(zmq_msg_data(&batch), payload, size);
	batch_send(publisher->pub, publisher->topic, publisher->next, &batch);
	while (publisher->n_kept > 0 &&
	       (publisher->n_kept >= publisher->buffer_steps || publisher->kept_size + size > publisher->buffer_size))
		kept_drop(publisher);
	if (publisher->buffer_steps > 0 && size <= publisher->buffer_size) {
		*kept_batch(publisher, publisher->next) = batch;
		publisher->n_kept++;
		publisher->kept_size += size;
	} else {
		zmq_msg_close(&batch);
	}
	publisher->next++;
	return true;
}

/* The begin of each frame of a reply's envelope. */
static void
reply_begin(struct publisher *publisher, zmq_msg_t *peer)
{
	zmq_send(publisher->replay, zmq_msg_data(peer), zmq_msg_size(peer), ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(publisher->replay, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
}

static void
replay_send(struct publisher *publisher, zmq_msg_t *peer, uint64_t from)
{
	uint64_t oldest = publisher->next - publisher->n_kept;
	zmq_msg_t end;

	for (uint64_t sequence = MAX(from, oldest); sequence < publisher->next; sequence++) {
		reply_begin(publisher, peer);
		batch_send(publisher->replay, publisher->topic, sequence, kept_batch(publisher, sequence));
	}
	reply_begin(publisher, peer);
	zmq_msg_init(&end);
	batch_send(publisher->replay, "", UINT64_MAX, &end);
	zmq_msg_close(&end);
}

/* Receives a whole request.  Returns how many frames it had; those past REQUEST_FRAMES are dropped; 0: none waits. */
static unsigned int
request_receive(struct publisher *publisher, zmq_msg_t frames[REQUEST_FRAMES])
{
	unsigned int n = 0;
	bool more = true;

	while (more) {
		zmq_msg_t frame;

		zmq_msg_init(&frame);
		if (zmq_msg_recv(&frame, publisher->replay, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(&frame);
			break;
		}
		more = zmq_msg_more(&frame) != 0;
		if (n < REQUEST_FRAMES)
			zmq_msg_move(&frames[n], &frame);
		zmq_msg_close(&frame);
		n++;
	}
	return n;
}

bool
publisher_serve(struct publisher *publisher)
{
	zmq_msg_t frames[REQUEST_FRAMES];
	unsigned int n;

	if (publisher->replay == NULL)
		return false;
	for (unsigned int i = 0; i < REQUEST_FRAMES; i++)
		zmq_msg_init(&frames[i]);
	n = request_receive(publisher, frames);
	if (n == REQUEST_FRAMES && zmq_msg_size(&frames[1]) == 0 && zmq_msg_size(&frames[2]) == SEQUENCE_SIZE)
		replay_send(publisher, &frames[0], sequence_load(zmq_msg_data(&frames[2])));
	else if (n > 0)
		events_log(EVENTS_LOG_DEBUG, "kv",
			   "pool %s: a request for a replay has %u frames, or its number is not of 8 bytes",
			   publisher->name, n);
	for (unsigned int i = 0; i < REQUEST_FRAMES; i++)
		zmq_msg_close(&frames[i]);
	return n > 0;
}

bool
publisher_has_replay(const struct publisher *publisher)
{
	return publisher->replay != NULL;
}
