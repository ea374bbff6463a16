/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/wire_peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

static struct wire_arena arena;

static struct wire_arena *
arena_take(void)
{
	struct paged_error error;

	if (arena.base == NULL)
		it_require(wire_arena_create(&arena, &error) == PAGED_OK, "%s", error.text);
	wire_arena_reset(&arena);
	return &arena;
}

int
wire_peer_connect_control(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	it_require(fd >= 0, "%m");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", getenv("PAGED_RUNTIME_DIR"));
	it_require(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "%s: %m", address.sun_path);
	return fd;
}

void
wire_peer_send_bytes(int fd, const void *message, size_t size)
{
	send(fd, message, size, MSG_NOSIGNAL);
}

void
wire_peer_send_control(int fd, const struct wire_control_request *request)
{
	uint8_t buffer[1024];
	size_t size = wire_control_request_pack(request, buffer, sizeof(buffer));

	it_require(size > 0);
	wire_peer_send_bytes(fd, buffer, size);
}

bool
wire_peer_receive_control(int fd, struct wire_control_reply *reply, int *fds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * WIRE_N_POOL_FDS)];
	} ancillary;
	static uint8_t buffer[WIRE_MAX_MESSAGE];
	struct iovec part = { buffer, sizeof(buffer) };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &ancillary, .msg_controllen = sizeof(ancillary)
	};
	struct paged_error error;
	ssize_t n;

	it_require(it_readable(fd), "nothing was heard from the daemon");
	n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return false;
	it_require(wire_control_reply_parse(buffer, (size_t)n, arena_take(), reply, &error) == PAGED_OK, "%s",
		   error.text);
	if (CMSG_FIRSTHDR(&message) != NULL) {
		unsigned int n_fds = wire_control_reply_fds(reply);
		int got[WIRE_N_POOL_FDS];

		it_require(n_fds > 0 && CMSG_FIRSTHDR(&message)->cmsg_len == CMSG_LEN(sizeof(int) * n_fds));
		memcpy(got, ancillary.space + CMSG_LEN(0), sizeof(int) * n_fds);
		for (unsigned int i = 0; i < n_fds; i++) {
			if (fds != NULL)
				fds[i] = got[i];
			else
				close(got[i]);
		}
	}
	return true;
}

void
wire_peer_expect_refusal(int fd, enum paged_status status, const char *part)
{
	struct wire_control_reply reply;

	it_require(wire_peer_receive_control(fd, &reply, NULL), "hung up without a word; %s was expected", part);
	it_require(reply.kind == WIRE_REFUSAL, "kind %d", reply.kind);
	it_require(reply.refusal.status == status, "status %d: %s", reply.refusal.status, reply.refusal.text);
	it_require(strstr(reply.refusal.text, part) != NULL, "%s", reply.refusal.text);
	it_require(!wire_peer_receive_control(fd, &reply, NULL), "the connection goes on");
	close(fd);
}

void
wire_peer_hello(int fd, enum wire_role role, const uint8_t *join_token, struct wire_control_reply *reply)
{
	struct wire_control_request request = {
		.kind = WIRE_HELLO,
		.hello = { .version_major = WIRE_VERSION_MAJOR, .role = role, .name = "peer" },
	};

	if (join_token != NULL)
		memcpy(request.hello.join_token, join_token, WIRE_TOKEN_SIZE);
	wire_peer_send_control(fd, &request);
	it_require(wire_peer_receive_control(fd, reply, NULL), "the daemon hung up");
}

static void
option_set(void *socket, int option, int value)
{
	it_require(zmq_setsockopt(socket, option, &value, sizeof(value)) == 0);
}

static void
dealer_open(struct wire_peer *peer, uint32_t member, const uint8_t token[WIRE_TOKEN_SIZE])
{
	char user[16], password[2 * WIRE_TOKEN_SIZE + 1];

	snprintf(user, sizeof(user), "%u", member);
	for (int i = 0; i < WIRE_TOKEN_SIZE; i++)
		snprintf(password + 2 * i, 3, "%02x", token[i]);
	peer->context = zmq_ctx_new();
	peer->dealer = zmq_socket(peer->context, ZMQ_DEALER);
	it_require(peer->dealer != NULL);
	option_set(peer->dealer, ZMQ_LINGER, 0);
	option_set(peer->dealer, ZMQ_RECONNECT_IVL, -1);
	it_require(zmq_setsockopt(peer->dealer, ZMQ_PLAIN_USERNAME, user, strlen(user)) == 0);
	it_require(zmq_setsockopt(peer->dealer, ZMQ_PLAIN_PASSWORD, password, strlen(password)) == 0);
}

static void
dealer_connect(struct wire_peer *peer)
{
	it_require(zmq_connect(peer->dealer, peer->welcome.welcome.endpoint) == 0, "%s", zmq_strerror(zmq_errno()));
}

void
wire_peer_connect_dealer(struct wire_peer *peer, uint32_t member, const uint8_t token[WIRE_TOKEN_SIZE])
{
	dealer_open(peer, member, token);
	dealer_connect(peer);
}

/* Connects, and waits for the end of the handshake; false: the daemon has dropped it, because it took too long. */
static bool
dealer_shake_hands(struct wire_peer *peer)
{
	static const char at[] = "inproc://handshake";
	zmq_pollitem_t item = { .events = ZMQ_POLLIN };
	uint16_t event;
	char bytes[256];

	it_require(zmq_socket_monitor(peer->dealer, at, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) == 0);
	item.socket = zmq_socket(peer->context, ZMQ_PAIR);
	it_require(item.socket != NULL && zmq_connect(item.socket, at) == 0);
	option_set(item.socket, ZMQ_LINGER, 0);
	dealer_connect(peer);
	it_require(zmq_poll(&item, 1, IT_LIMIT_MS) == 1, "no handshake");
	it_require(zmq_recv(item.socket, bytes, sizeof(bytes), 0) == 6);
	memcpy(&event, bytes, sizeof(event));
	zmq_socket_monitor(peer->dealer, NULL, 0);
	zmq_close(item.socket);
	return event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
}

void
wire_peer_attach(struct wire_peer *peer, enum wire_role role, const uint8_t *join_token)
{
	*peer = (struct wire_peer){ .control = wire_peer_connect_control() };
	wire_peer_hello(peer->control, role, join_token, &peer->welcome);
	it_require(peer->welcome.kind == WIRE_WELCOME, "refused: %s", peer->welcome.refusal.text);
	/* On a busy machine, the daemon's limit of half a second is over now and then. */
	for (uint64_t end = it_now_ms() + IT_LIMIT_MS;;) {
		dealer_open(peer, peer->welcome.welcome.member, peer->welcome.welcome.token);
		if (dealer_shake_hands(peer))
			return;
		zmq_close(peer->dealer);
		zmq_ctx_term(peer->context);
		it_require(it_now_ms() < end, "the daemon drops each handshake");
	}
}

void
wire_peer_close(struct wire_peer *peer)
{
	if (peer->dealer != NULL) {
		zmq_close(peer->dealer);
		zmq_ctx_term(peer->context);
	}
	close(peer->control);
	*peer = (struct wire_peer){ .control = -1 };
}

void
wire_peer_bye(struct wire_peer *peer)
{
	const struct wire_control_request request = { .kind = WIRE_BYE };
	struct wire_control_reply reply;

	wire_peer_send_control(peer->control, &request);
	do
		it_require(wire_peer_receive_control(peer->control, &reply, NULL), "no farewell");
	while (reply.kind == WIRE_NOTICE);
	it_require(reply.kind == WIRE_FAREWELL, "kind %d", reply.kind);
	it_require(!wire_peer_receive_control(peer->control, &reply, NULL));
	wire_peer_close(peer);
}

/* A reply that is there or comes soon, in the buffer and the arena. */
static void
reply_take(struct wire_peer *peer, struct wire_reply *reply)
{
	static uint8_t buffer[WIRE_MAX_MESSAGE];
	struct paged_error error;
	int n = zmq_recv(peer->dealer, buffer, sizeof(buffer), 0);

	it_require(n >= 0, "%s", zmq_strerror(zmq_errno()));
	it_require(wire_reply_parse(buffer, (size_t)n, arena_take(), reply, &error) == PAGED_OK, "%s", error.text);
}

void
wire_peer_receive(struct wire_peer *peer, struct wire_reply *reply)
{
	zmq_pollitem_t item = { .socket = peer->dealer, .events = ZMQ_POLLIN };

	it_require(zmq_poll(&item, 1, IT_LIMIT_MS) == 1, "no reply came");
	reply_take(peer, reply);
}

void
wire_peer_send(struct wire_peer *peer, const struct wire_request *request)
{
	static uint8_t buffer[WIRE_MAX_MESSAGE];
	size_t size = wire_request_pack(request, arena_take(), buffer, sizeof(buffer));

	it_require(size > 0);
	it_require(zmq_send(peer->dealer, buffer, size, 0) >= 0, "%s", zmq_strerror(zmq_errno()));
}

bool
wire_peer_try_call(struct wire_peer *peer, struct wire_request *request, struct wire_reply *reply, int limit_ms)
{
	static uint8_t buffer[WIRE_MAX_MESSAGE];
	zmq_pollitem_t item = { .socket = peer->dealer, .events = ZMQ_POLLIN };
	size_t size;

	request->id = ++peer->last_id;
	size = wire_request_pack(request, arena_take(), buffer, sizeof(buffer));
	it_require(size > 0);
	if (zmq_send(peer->dealer, buffer, size, ZMQ_DONTWAIT) < 0)
		return false;
	if (zmq_poll(&item, 1, limit_ms) != 1)
		return false;
	reply_take(peer, reply);
	it_require(reply->id == request->id, "reply to %ju instead of %ju", (uintmax_t)reply->id,
		   (uintmax_t)request->id);
	return true;
}

enum paged_status
wire_peer_call(struct wire_peer *peer, struct wire_request *request, struct wire_reply *reply)
{
	it_require(wire_peer_try_call(peer, request, reply, IT_LIMIT_MS), "request of kind %d was not answered",
		   request->kind);
	return reply->status;
}

struct wire_request
wire_peer_create_request(uint32_t pool, uint32_t n, uint32_t n_tokens)
{
	static struct seq_spec specs[PAGED_MAX_REQUEST_SEQS];

	for (uint32_t i = 0; i < n; i++)
		specs[i] = (struct seq_spec){ .pool = pool, .n_tokens = n_tokens, .tag = "" };
	return (struct wire_request){ .kind = WIRE_CREATE, .create = { .n = n, .specs = specs } };
}

paged_seq_id
wire_peer_create_seq(struct wire_peer *peer, uint32_t n_tokens)
{
	struct wire_request request = wire_peer_create_request(0, 1, n_tokens);
	struct wire_reply reply;

	it_require(wire_peer_call(peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	return reply.ids.seq[0];
}

struct paged_pool_entry
wire_peer_pool_entry(void)
{
	struct wire_request request = { .kind = WIRE_GET_POOLS };
	struct paged_pool_entry report;
	struct wire_reply reply;
	struct wire_peer peer;

	wire_peer_attach(&peer, WIRE_ROLE_OBSERVER, NULL);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	report = reply.pools.report[0];
	wire_peer_bye(&peer);
	return report;
}

static bool
is_free(void *argument)
{
	return wire_peer_pool_entry().n_free == *(uint32_t *)argument;
}

bool
wire_peer_wait_free(uint32_t n_free)
{
	return it_wait(is_free, &n_free);
}
