/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What strangers send to paged-events: connections of subscribers and of programs that ask for replays, fed with any
 * bytes in any pieces, while batches are published; and the texts of its endpoints.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/peer.h"
#include "events/transport.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "events";
const unsigned int fuzz_mutations = 500;

/* The first byte of an input: its low bits select what is tested. */
enum { SUBSCRIBER, REPLAY, ENDPOINT, N_KINDS };
enum { MAX_PIECE = 64, MAX_ENDPOINT = 512 };

static volatile unsigned int sum;

/* Reads what the peer was sent, so that more can be sent. */
static void
peer_drain(int fd)
{
	uint8_t bytes[4096];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		for (ssize_t i = 0; i < n; i++)
			sum += bytes[i];
}

static void
peer_check(const struct peer *peer)
{
	fuzz_require(peer->n_in <= sizeof(peer->in) && peer->n_out <= sizeof(peer->out));
	fuzz_require(peer->out_at <= peer->n_out && peer->n_requests <= PEER_MAX_REQUESTS);
	fuzz_require(peer->batch == NULL || peer->batch_at < peer->batch->size);
}

/* Each piece of the input begins with a byte: its size, and whether a batch is published or a second passes. */
static void
fuzz_peer(const struct peer_service *service, const uint8_t *data, size_t size)
{
	struct peer *peer;
	int ends[2];

	fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
	peer = peer_create(ends[0], 0);
	fuzz_require(peer != NULL);
	for (uint64_t now_ms = 0; size > 0;) {
		size_t n = data[0] % MAX_PIECE + 1;
		bool publishes = data[0] & 64, renews = data[0] & 128;

		data++;
		size--;
		n = n < size ? n : size;
		if (n > 0 && send(ends[1], data, n, MSG_NOSIGNAL) != (ssize_t)n)
			break;
		data += n;
		size -= n;
		if (publishes)
			fuzz_require(batch_log_append(service->log, data, size < 300 ? size : 300));
		if (renews && !peer_renew(peer, now_ms += 1000))
			break;
		if (peer_wants_input(peer) && !peer_read(peer, service))
			break;
		peer_check(peer);
		if (peer_has_output(peer, batch_log_next(service->log)) && !peer_write(peer, service))
			break;
		peer_check(peer);
		peer_drain(ends[1]);
	}
	peer_destroy(peer);
	close(ends[1]);
}

static void
fuzz_endpoint(const uint8_t *data, size_t size)
{
	struct transport_addresses addresses;
	char text[MAX_ENDPOINT];

	if (size >= sizeof(text))
		return;
	memcpy(text, data, size);
	text[size] = '\0';
	transport_is_bound(text);
	if (transport_check(text) == NULL && transport_resolve(text, true, &addresses) == NULL)
		fuzz_require(addresses.n >= 1 && addresses.n <= TRANSPORT_MAX_ADDRESSES);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct peer_service service = { .topic = "kv-events", .hwm = 3, .buffer_steps = 4 };

	if (size == 0)
		return 0;
	if (data[0] % N_KINDS == ENDPOINT) {
		fuzz_endpoint(data + 1, size - 1);
		return 0;
	}
	service.kind = data[0] % N_KINDS == SUBSCRIBER ? PEER_SUBSCRIBERS : PEER_REPLAYS;
	service.log = batch_log_create(service.topic, 5, 1000);
	fuzz_require(service.log != NULL);
	for (int i = 0; i < 3; i++)
		fuzz_require(batch_log_append(service.log, "payload", 7));
	fuzz_peer(&service, data + 1, size - 1);
	batch_log_destroy(service.log);
	return 0;
}

/* Writes a connection in pieces; returns its size. */
static size_t
seed_connection(int kind, const char *type, const char *frames, size_t n_frames, uint8_t *buffer)
{
	uint8_t bytes[ZMTP_GREETING_SIZE + 2 * ZMTP_MAX_COMMAND + 256];
	size_t n = ZMTP_GREETING_SIZE, at = 0, written = 0;

	zmtp_greeting_write(bytes);
	n += zmtp_ready_write(type, bytes + n);
	memcpy(bytes + n, frames, n_frames);
	n += n_frames;
	buffer[written++] = (uint8_t)kind;
	while (at < n) {
		size_t piece = n - at < MAX_PIECE ? n - at : MAX_PIECE;

		buffer[written++] = (uint8_t)((piece - 1) | 64);
		memcpy(buffer + written, bytes + at, piece);
		written += piece;
		at += piece;
	}
	return written;
}

size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	static const char subscriber[] = "\0\1\1\0\3\1kv\4\14\11SUBSCRIBEkv\4\10\6CANCELk\4\12\4PING\0\5abc\0\1\0";
	static const char request[] = "\1\0\0\10\0\0\0\0\0\0\0\1\1\0\0\10\0\0\0\0\0\0\0\7\2\0\0\0\0\0\0\0\1x";
	static const char *const endpoints[] = { "\2tcp://127.0.0.1:5557", "\2tcp://[::1]:0", "\2ipc:///run/paged/kv",
						 "\2tcp://*:*" };

	fuzz_require(buffer_size >= 1024);
	if (index == 0)
		return seed_connection(SUBSCRIBER, "SUB", subscriber, sizeof(subscriber) - 1, buffer);
	if (index == 1)
		return seed_connection(REPLAY, "DEALER", request, sizeof(request) - 1, buffer);
	index -= 2;
	if (index >= sizeof(endpoints) / sizeof(endpoints[0]))
		return 0;
	strcpy((char *)buffer, endpoints[index]);
	return strlen(endpoints[index]);
}
