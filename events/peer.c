/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	/* Bytes from a peer in a second: subscriptions and requests are small. */
	INPUT_PER_S = 64 << 10,
	/* So that one that sends single bytes causes few turns, in which all peers are looked at. */
	READS_PER_S = 128,
	/* Sent to a peer before it is another's turn; each batch is sent by itself. */
	OUTPUT_PER_TURN = 256 << 10,
	SENDS_PER_TURN = 32,
	/* From the connection to READY. */
	HANDSHAKE_MS = 10000,
	/* Frames of a request: an empty one, and a sequence number. */
	REQUEST_FRAMES = 2,
};

struct peer *
peer_create(int fd, uint64_t now_ms)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (peer == NULL)
		return NULL;
	peer->fd = fd;
	peer->entry.origin = origin_of(fd);
	peer->entry.state = ADMISSION_NEW;
	peer->since_ms = now_ms;
	peer->input_left = INPUT_PER_S;
	peer->reads_left = READS_PER_S;
	zmtp_greeting_write(peer->out);
	peer->n_out = ZMTP_GREETING_SIZE;
	return peer;
}

void
peer_destroy(struct peer *peer)
{
	if (peer == NULL)
		return;
	close(peer->fd);
	batch_release(peer->batch);
	free(peer);
}

/* Subscriptions */

static void
peer_subscribe(struct peer *peer, const struct peer_service *service, const uint8_t *topic, size_t n, bool on)
{
	bool subscribed = false;

	if (n > strlen(service->topic) || memcmp(topic, service->topic, n) != 0)
		return;
	if (on)
		peer->topics[n / 8] |= (uint8_t)(1u << n % 8);
	else
		peer->topics[n / 8] &= (uint8_t) ~(1u << n % 8);
	for (size_t i = 0; i < sizeof(peer->topics); i++)
		subscribed = subscribed || peer->topics[i] != 0;
	if (subscribed && !peer->subscribed)
		peer->next = batch_log_next(service->log);
	peer->subscribed = subscribed;
	peer->entry.state = subscribed ? ADMISSION_ACTIVE : ADMISSION_IDLE;
}

/* The message form of ZMTP 3.0: 1 or 0, and the topic. */
static void
peer_take_subscription(struct peer *peer, const struct peer_service *service, const struct zmtp_item *item)
{
	if (item->more || peer->n_frames > 1 || item->body_size == 0 || item->body[0] > 1)
		return;
	peer_subscribe(peer, service, item->body + 1, item->body_size - 1, item->body[0] == 1);
}

/* Replays */

static void
peer_take_request(struct peer *peer, const struct zmtp_item *item)
{
	bool is_last = peer->n_frames == REQUEST_FRAMES;

	if (item->body_size != (is_last ? BATCH_SEQUENCE_SIZE : 0) || item->more == is_last)
		peer->frame_is_wrong = true;
	if (item->more || peer->frame_is_wrong)
		return;
	peer->requests[peer->n_requests++] = sequence_load(item->body);
	peer->entry.state = ADMISSION_ACTIVE;
}

/* The next batch of the first request, or its end marker. */
static struct batch *
replay_next(struct peer *peer, const struct peer_service *service)
{
	struct batch *batch = NULL;

	if (peer->replay_end == 0) {
		peer->replay_end = batch_log_next(service->log);
		if (peer->replay_end > service->buffer_steps)
			peer->requests[0] = MAX(peer->requests[0], peer->replay_end - service->buffer_steps);
	}
	if (peer->requests[0] < peer->replay_end)
		batch = batch_log_take(service->log, &peer->requests[0]);
	if (batch != NULL && peer->requests[0] <= peer->replay_end)
		return batch;
	batch_release(batch);
	peer->replay_end = 0;
	peer->n_requests--;
	memmove(peer->requests, peer->requests + 1, peer->n_requests * sizeof(peer->requests[0]));
	if (peer->n_requests == 0)
		peer->entry.state = ADMISSION_IDLE;
	return batch_log_end(service->log);
}

/* Input */

/* Are two sockets of these types allowed to talk? */
static bool
peer_type_fits(const struct peer_service *service, const struct zmtp_item *item)
{
	static const char *const types[][3] = {
		[PEER_SUBSCRIBERS] = { "SUB", "XSUB", NULL }, [PEER_REPLAYS] = { "DEALER", "REQ", "ROUTER" }
	};

	for (int i = 0; i < 3; i++) {
		const char *type = types[service->kind][i];

		if (type != NULL && strlen(type) == item->body_size && memcmp(type, item->body, item->body_size) == 0)
			return true;
	}
	return false;
}

/* Adds to what is sent before the next batch; drops what a peer leaves unread. */
static void
peer_command(struct peer *peer, const uint8_t *bytes, size_t n)
{
	memmove(peer->out, peer->out + peer->out_at, peer->n_out - peer->out_at);
	peer->n_out -= peer->out_at;
	peer->out_at = 0;
	if (peer->n_out + n > sizeof(peer->out))
		return;
	memcpy(peer->out + peer->n_out, bytes, n);
	peer->n_out += (uint32_t)n;
}

/* Returns false if the connection is to be closed. */
static bool
peer_take(struct peer *peer, const struct peer_service *service, const struct zmtp_item *item)
{
	uint8_t command[ZMTP_MAX_COMMAND];
	bool subscribers = service->kind == PEER_SUBSCRIBERS;

	if (item->kind == ZMTP_GREETING) {
		peer->greeted = true;
		peer_command(peer, command, zmtp_ready_write(subscribers ? "PUB" : "ROUTER", command));
		return true;
	}
	if (peer->entry.state == ADMISSION_NEW) {
		peer->entry.state = ADMISSION_IDLE;
		return item->kind == ZMTP_READY && peer_type_fits(service, item);
	}
	if (item->kind == ZMTP_PING)
		peer_command(peer, command, zmtp_pong_write(item, command));
	if (subscribers && (item->kind == ZMTP_SUBSCRIBE || item->kind == ZMTP_CANCEL))
		peer_subscribe(peer, service, item->body, item->body_size, item->kind == ZMTP_SUBSCRIBE);
	if (item->kind != ZMTP_FRAME)
		return item->kind != ZMTP_INVALID;
	if (peer->n_frames < UINT32_MAX)
		peer->n_frames++;
	if (subscribers)
		peer_take_subscription(peer, service, item);
	else
		peer_take_request(peer, item);
	if (!item->more) {
		peer->n_frames = 0;
		peer->frame_is_wrong = false;
	}
	return true;
}

/* Understands what was received.  Returns false if the connection is to be closed. */
static bool
peer_parse(struct peer *peer, const struct peer_service *service)
{
	size_t at = 0;

	while (peer->n_requests < PEER_MAX_REQUESTS) {
		struct zmtp_item item = peer->greeted ? zmtp_frame_read(peer->in + at, peer->n_in - at)
						      : zmtp_greeting_read(peer->in + at, peer->n_in - at);

		if (item.kind == ZMTP_INCOMPLETE)
			break;
		if (item.kind == ZMTP_INVALID || !peer_take(peer, service, &item))
			return false;
		at += item.size;
	}
	peer->n_in -= (uint32_t)at;
	memmove(peer->in, peer->in + at, peer->n_in);
	return true;
}

bool
peer_wants_input(const struct peer *peer)
{
	return peer->input_left > 0 && peer->reads_left > 0 && peer->n_requests < PEER_MAX_REQUESTS;
}

bool
peer_read(struct peer *peer, const struct peer_service *service)
{
	size_t room = sizeof(peer->in) - peer->n_in;
	ssize_t n;

	peer->reads_left--;
	n = recv(peer->fd, peer->in + peer->n_in, room < peer->input_left ? room : peer->input_left, 0);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	peer->n_in += (uint32_t)n;
	peer->input_left -= (uint32_t)n;
	return peer_parse(peer, service);
}

bool
peer_renew(struct peer *peer, uint64_t now_ms)
{
	peer->input_left = INPUT_PER_S;
	peer->reads_left = READS_PER_S;
	return peer->entry.state != ADMISSION_NEW || now_ms - peer->since_ms < HANDSHAKE_MS;
}

/* Output */

bool
peer_has_output(const struct peer *peer, uint64_t next)
{
	return peer->n_out > 0 || peer->batch != NULL || peer->n_requests > 0 ||
	       (peer->subscribed && peer->next < next);
}

/* Chooses what is sent after the last batch.  Returns false if there is nothing. */
static bool
peer_next_batch(struct peer *peer, const struct peer_service *service)
{
	if (service->kind == PEER_REPLAYS) {
		peer->batch = peer->n_requests > 0 ? replay_next(peer, service) : NULL;
		peer->batch_at = 0;
	} else if (peer->subscribed) {
		uint64_t next = batch_log_next(service->log);

		if (next > service->hwm)
			peer->next = MAX(peer->next, next - service->hwm);
		peer->batch = batch_log_take(service->log, &peer->next);
		peer->batch_at = BATCH_EMPTY_FRAME;
	}
	peer->batch_since = batch_log_next(service->log);
	return peer->batch != NULL;
}

/* Sends as much as the kernel takes.  Returns the number of bytes; 0: none now; -1: the connection has ended. */
static ssize_t
peer_send(struct peer *peer, const uint8_t *bytes, size_t n)
{
	ssize_t sent = send(peer->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN))
		return 0;
	return sent;
}

/* Commands are sent between batches, but not within one. */
static ssize_t
peer_send_some(struct peer *peer)
{
	ssize_t n;

	if (peer->batch != NULL) {
		n = peer_send(peer, peer->batch->bytes + peer->batch_at, peer->batch->size - peer->batch_at);
		peer->batch_at += n > 0 ? (size_t)n : 0;
		if (peer->batch_at == peer->batch->size) {
			batch_release(peer->batch);
			peer->batch = NULL;
		}
		return n;
	}
	n = peer_send(peer, peer->out + peer->out_at, peer->n_out - peer->out_at);
	peer->out_at += n > 0 ? (uint32_t)n : 0;
	if (peer->out_at == peer->n_out)
		peer->out_at = peer->n_out = 0;
	return n;
}

bool
peer_write(struct peer *peer, const struct peer_service *service)
{
	size_t total = 0;

	for (int i = 0; i < SENDS_PER_TURN && total < OUTPUT_PER_TURN; i++) {
		ssize_t n;

		if (peer->batch == NULL && peer->n_out == 0 && !peer_next_batch(peer, service))
			break;
		n = peer_send_some(peer);
		if (n <= 0)
			return n == 0;
		total += (size_t)n;
	}
	/* Requests that waited for room among those before them. */
	return peer_parse(peer, service);
}
