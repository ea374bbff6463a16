/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that the library never sends: the daemon refuses them with a log line, keeps no state, and serves others. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/support/geometry.h"
#include "tests/support/wire_peer.h"

static struct it_daemon daemon_;
static unsigned int fds_before;

static void
daemon_begin(void)
{
	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_pool_entry();
	fds_before = it_count_fds(daemon_.pid);
}

static bool
fds_are_at_most(void *argument)
{
	(void)argument;
	return it_count_fds(daemon_.pid) <=
	       fds_before; /* fewer if descriptors of the first observer were still open then */
}

static void
daemon_end(void)
{
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES);
	it_require(it_wait(fds_are_at_most, NULL), "%u descriptors, %u before", it_count_fds(daemon_.pid), fds_before);
	it_daemon_stop(&daemon_);
}

static void
expect_protocol_refusal(const void *message, size_t size, const char *part)
{
	int fd = wire_peer_connect_control();

	wire_peer_send_bytes(fd, message, size);
	wire_peer_expect_refusal(fd, PAGED_ERR_PROTOCOL, part);
}

IT_TEST(first_message_must_be_a_hello)
{
	static uint8_t big[WIRE_MAX_MESSAGE + 1];
	const struct wire_control_request bye = { .kind = WIRE_BYE },
					  open = { .kind = WIRE_OPEN_POOL, .open_pool.name = "p" };
	unsigned int seed = 1;
	int fd;

	daemon_begin();
	expect_protocol_refusal("\xff\xff\xff\xff", 4, "");
	expect_protocol_refusal("\x0a\x7f", 2, "");
	expect_protocol_refusal(big, sizeof(big), "longer than 65536 bytes");
	expect_protocol_refusal(big, sizeof(big) - 1, "");
	fd = wire_peer_connect_control();
	wire_peer_send_control(fd, &bye);
	wire_peer_expect_refusal(fd, PAGED_ERR_PROTOCOL, "the first message is not a Hello");
	fd = wire_peer_connect_control();
	wire_peer_send_control(fd, &open);
	wire_peer_expect_refusal(fd, PAGED_ERR_PROTOCOL, "the first message is not a Hello");
	for (int i = 0; i < 200; i++) {
		size_t size = 1 + (size_t)rand_r(&seed) % 200;

		for (size_t k = 0; k < size; k++)
			big[k] = (uint8_t)rand_r(&seed);
		fd = wire_peer_connect_control();
		wire_peer_send_bytes(fd, big, size);
		close(fd);
	}
	it_require(it_daemon_logged(&daemon_, "longer than 65536 bytes"));
	daemon_end();
}

IT_TEST(invalid_hellos_are_refused)
{
	struct wire_control_request hello = {
		.kind = WIRE_HELLO, .hello = { .version_major = 1, .version_minor = 7, .role = WIRE_ROLE_SESSION }
	};
	struct wire_peer peer;
	int fd;

	daemon_begin();
	fd = wire_peer_connect_control();
	wire_peer_send_control(fd, &hello);
	wire_peer_expect_refusal(fd, PAGED_ERR_VERSION, "pagedd speaks version 2.0 of the protocol, the client 1.7");
	hello.hello.version_major = WIRE_VERSION_MAJOR;
	hello.hello.role = WIRE_ROLE_JOIN;
	fd = wire_peer_connect_control();
	wire_peer_send_control(fd, &hello);
	wire_peer_expect_refusal(fd, PAGED_ERR_GONE, "the join token names no active session");
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	hello.hello.role = WIRE_ROLE_SESSION;
	wire_peer_send_control(peer.control, &hello);
	wire_peer_expect_refusal(peer.control, PAGED_ERR_PROTOCOL, "a second Hello");
	peer.control = open("/dev/null", O_RDONLY);
	wire_peer_close(&peer);
	it_require(it_daemon_logged(&daemon_, "its control socket closed"));
	/* The member was this process, which is alive, so descriptors are not compared. */
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES);
	it_daemon_stop(&daemon_);
}

IT_TEST(connections_without_hello_are_closed)
{
	uint64_t started;
	int fd[70];

	daemon_begin();
	/* It accepts all of them in one turn of its loop, so that the first one's time is not over before the last. */
	kill(daemon_.pid, SIGSTOP);
	for (int i = 0; i < 70; i++)
		fd[i] = wire_peer_connect_control();
	started = it_now_ms();
	kill(daemon_.pid, SIGCONT);
	/* 64 connections without a Hello are allowed. */
	for (int i = 0; i < 6; i++)
		wire_peer_expect_refusal(
			fd[i], PAGED_ERR_LIMIT,
			"more than 64 connections have not sent a Hello yet, and this one is the oldest");
	wire_peer_expect_refusal(fd[6], PAGED_ERR_PROTOCOL, "no Hello within 5 s");
	it_require(it_now_ms() - started >= 5000);
	for (int i = 7; i < 70; i++)
		close(fd[i]);
	daemon_end();
}

IT_TEST(messages_with_descriptors_are_refused)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * 64)];
	} ancillary = { 0 };
	struct iovec part = { .iov_base = "\x0a\x00", .iov_len = 2 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &ancillary, .msg_controllen = sizeof(ancillary)
	};
	int fds[64], fd;

	daemon_begin();
	for (int i = 0; i < 64; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ancillary.header.cmsg_level = SOL_SOCKET;
	ancillary.header.cmsg_type = SCM_RIGHTS;
	ancillary.header.cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(&ancillary.header), fds, sizeof(fds));
	fd = wire_peer_connect_control();
	it_require(sendmsg(fd, &message, 0) == 2, "%m");
	wire_peer_expect_refusal(fd, PAGED_ERR_PROTOCOL, "the message carries descriptors");
	it_require(it_daemon_logged(&daemon_, "the message carries descriptors"));
	for (int i = 0; i < 64; i++)
		close(fds[i]);
	daemon_end();
}

IT_TEST(member_that_reads_no_notices_is_dropped)
{
	struct wire_control_request open = { .kind = WIRE_OPEN_POOL, .open_pool.name = "nope" };
	struct wire_peer peer;

	daemon_begin();
	wire_peer_attach(&peer, WIRE_ROLE_OBSERVER, NULL);
	for (int i = 0; i < 5000; i++)
		wire_peer_send_control(peer.control, &open);
	it_require(it_daemon_logged(&daemon_, "a message cannot be sent to it"));
	wire_peer_close(&peer);
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES);
	it_daemon_stop(&daemon_);
}

static bool
ping(struct wire_peer *peer, int limit_ms)
{
	struct wire_request request = { .kind = WIRE_PING };
	struct wire_reply reply;

	return wire_peer_try_call(peer, &request, &reply, limit_ms);
}

static bool
is_answered(struct wire_peer *peer)
{
	return ping(peer, IT_LIMIT_MS);
}

static bool
is_not_answered(struct wire_peer *peer)
{
	return !ping(peer, 500);
}

static void
reconnect_dealer(struct wire_peer *peer, uint32_t member, const uint8_t *token)
{
	zmq_close(peer->dealer);
	zmq_ctx_term(peer->context);
	wire_peer_connect_dealer(peer, member, token);
}

static void
connect_with_copied_token(int from, int to, void *argument)
{
	struct wire_peer *peer = argument;
	struct wire_peer copy = { .control = -1, .welcome = peer->welcome };

	(void)from;
	wire_peer_connect_dealer(&copy, peer->welcome.welcome.member, peer->welcome.welcome.token);
	it_require(is_not_answered(&copy), "another process got in with the member's token");
	it_send(to, "x", 1);
	_exit(0); /* the inherited ZeroMQ context must not be terminated here */
}

IT_TEST(token_is_valid_for_one_process_and_member)
{
	uint8_t token[WIRE_TOKEN_SIZE];
	struct it_worker worker;
	struct wire_peer peer, other;
	char c;

	daemon_begin();
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	it_require(is_answered(&peer));
	memcpy(token, peer.welcome.welcome.token, sizeof(token));
	token[15] ^= 1;
	reconnect_dealer(&peer, peer.welcome.welcome.member, token);
	it_require(is_not_answered(&peer), "a wrong token");
	reconnect_dealer(&peer, other.welcome.welcome.member, peer.welcome.welcome.token);
	it_require(is_not_answered(&peer), "another member's id");
	it_fork(&worker, connect_with_copied_token, &peer);
	it_receive(worker.from, &c, 1);
	it_join(&worker);
	reconnect_dealer(&peer, peer.welcome.welcome.member, peer.welcome.welcome.token);
	it_require(is_answered(&peer), "the right ones");
	reconnect_dealer(&peer, peer.welcome.welcome.member, peer.welcome.welcome.token);
	it_require(is_not_answered(&peer), "the right ones for the third time");
	it_require(is_answered(&other));
	it_require(it_daemon_logged(&daemon_, "another process than the member's"));
	wire_peer_bye(&peer);
	wire_peer_bye(&other);
	close(worker.to);
	close(worker.from);
	daemon_end();
}

IT_TEST(requests_need_an_open_control_socket)
{
	struct wire_peer peer;

	daemon_begin();
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	it_require(is_answered(&peer));
	close(peer.control);
	it_require(it_daemon_logged(&daemon_, "its control socket closed"));
	it_require(is_not_answered(&peer));
	peer.control = open("/dev/null", O_RDONLY);
	wire_peer_close(&peer);
	it_daemon_stop(&daemon_);
}

IT_TEST(invalid_requests_are_refused)
{
	static uint8_t big[WIRE_MAX_MESSAGE + 1];
	unsigned int seed = 2;
	struct wire_peer peer, other;
	uint8_t buffer[512];

	daemon_begin();
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	/* Two body frames are dropped.  An invalid body is refused with a reply. */
	zmq_send(peer.dealer, "a", 1, ZMQ_SNDMORE);
	zmq_send(peer.dealer, "b", 1, 0);
	it_require(is_answered(&peer));
	it_require(it_daemon_logged(&daemon_, "more than one body frame"));
	for (int i = 0; i < 200; i++) {
		size_t size = (size_t)rand_r(&seed) % 100;

		for (size_t k = 0; k < size; k++)
			buffer[k] = (uint8_t)rand_r(&seed);
		zmq_send(peer.dealer, buffer, size, 0);
		it_require(zmq_recv(peer.dealer, buffer, sizeof(buffer), 0) > 0, "each is answered");
	}
	/*
	 * A message of the maximum length gets a reply, one byte more ends the connection;
	 * the other member is not affected.
	 */
	zmq_send(peer.dealer, big, WIRE_MAX_MESSAGE, 0);
	it_require(zmq_recv(peer.dealer, buffer, sizeof(buffer), 0) > 0);
	zmq_send(peer.dealer, big, sizeof(big), 0);
	it_require(is_not_answered(&peer));
	it_require(is_answered(&other));
	wire_peer_bye(&peer);
	wire_peer_bye(&other);
	daemon_end();
}

/* Id 0 marks a reply to an unreadable request, so a request with id 0 is refused and changes nothing. */
IT_TEST(requests_with_id_0_are_refused)
{
	struct wire_request request = wire_peer_create_request(0, 1, 4);
	struct paged_seq_item item = { 0 };
	struct wire_reply reply;
	struct wire_peer peer;

	daemon_begin();
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	item.seq = wire_peer_create_seq(&peer, 4);
	for (int i = 0; i < 20; i++) {
		wire_peer_send(&peer, &request);
		request = (struct wire_request){ .kind = WIRE_RESERVE, .change = { 1, &item } };
		item.n_tokens = 8;
	}
	for (int i = 0; i < 20; i++) {
		wire_peer_receive(&peer, &reply);
		it_require(reply.id == 0 && reply.status == PAGED_ERR_PROTOCOL, "status %d: %s", reply.status,
			   reply.text);
		it_require(strstr(reply.text, "request id 0") != NULL, "%s", reply.text);
	}
	it_require(wire_peer_pool_entry().n_free == 63);
	wire_peer_bye(&peer);
	daemon_end();
}

/* A decoder independent of the product's: exactly the forms of RFC 3629. */
static bool
is_utf8(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;

	while (*c != 0) {
		unsigned int n = *c < 0x80 ? 0 : *c >= 0xc2 && *c < 0xe0 ? 1 : *c >= 0xe0 && *c < 0xf0 ? 2 : 3;

		if ((*c >= 0x80 && *c < 0xc2) || *c > 0xf4 || (*c == 0xe0 && c[1] < 0xa0) ||
		    (*c == 0xed && c[1] > 0x9f) || (*c == 0xf0 && c[1] < 0x90) || (*c == 0xf4 && c[1] > 0x8f))
			return false;
		for (c++; n > 0; n--, c++)
			if (*c < 0x80 || *c > 0xbf)
				return false;
	}
	return true;
}

/* Latin-1, a surrogate, a truncated character. */
static const char *const invalid_utf8[] = { "p\xe4", "\xed\xa0\x80", "p\xc3" };

/* A string field of proto3 must be UTF-8; other decoders reject the message otherwise. */
IT_TEST(error_messages_are_valid_utf8)
{
	const uint32_t q_len = 1, kv_len = 1;
	struct mask_request_name name = { .dtype = PAGED_I32 };
	struct wire_control_request open = { .kind = WIRE_OPEN_POOL };
	struct wire_control_reply refusal;
	struct wire_request request;
	struct wire_reply reply;
	struct seq_spec spec = { .n_tokens = 4 };
	struct wire_peer peer;

	daemon_begin();
	for (size_t i = 0; i < sizeof(invalid_utf8) / sizeof(invalid_utf8[0]); i++) {
		wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
		for (int k = 0; k < 5; k++) {
			request = (struct wire_request){ .kind = WIRE_DROP_ARRAY };
			if (k == 0) {
				strcpy(request.drop_array.name, invalid_utf8[i]);
			} else if (k == 1) {
				request.kind = WIRE_PUT_ARRAY;
				request.put_array = (struct wire_array_chunk){ .dtype = PAGED_I32, .n_dims = 1 };
				request.put_array.extents[0] = 1;
				request.put_array.size = sizeof(q_len);
				request.put_array.data = (const uint8_t *)&q_len;
				strcpy(request.put_array.name, invalid_utf8[i]);
			} else if (k == 2) {
				spec.tag = invalid_utf8[i];
				request.kind = WIRE_CREATE;
				request.create.n = 1;
				request.create.specs = &spec;
			} else {
				request.kind = WIRE_BUILD_MASK;
				request.build_mask = (struct mask_request){
					.n_rows = 1, .q_len = &q_len, .kv_len = &kv_len, .q_block = 1, .kv_block = 16
				};
				strcpy(name.name, k == 3 ? invalid_utf8[i] : "n");
				request.build_mask.text = k == 3 ? "n > 1" : invalid_utf8[i];
				request.build_mask.n_names = 1;
				request.build_mask.names = &name;
			}
			it_require(wire_peer_call(&peer, &request, &reply) != PAGED_OK, "name %zu, request %d", i, k);
			it_require(reply.text[0] != '\0' && is_utf8(reply.text), "name %zu, request %d: %s", i, k,
				   reply.text);
		}
		strcpy(open.open_pool.name, invalid_utf8[i]);
		wire_peer_send_control(peer.control, &open);
		it_require(wire_peer_receive_control(peer.control, &refusal, NULL) && refusal.kind == WIRE_REFUSAL);
		it_require(is_utf8(refusal.refusal.text), "%s", refusal.refusal.text);
		wire_peer_close(&peer);
	}
	it_require(wire_peer_pool_entry().n_sequences == 0);
	it_daemon_stop(&daemon_);
}

static void
send_without_reading(int from, int to, void *argument)
{
	static const uint8_t ping[] = { 0x08, 0x01, 0x12, 0x00 };
	struct wire_peer peer = { .control = wire_peer_connect_control() };

	(void)from, (void)argument;
	wire_peer_hello(peer.control, WIRE_ROLE_SESSION, NULL, &peer.welcome);
	wire_peer_connect_dealer(&peer, peer.welcome.welcome.member, peer.welcome.welcome.token);
	it_send(to, "x", 1);
	for (;;)
		if (zmq_send(peer.dealer, ping, sizeof(ping), ZMQ_DONTWAIT) < 0)
			usleep(1000);
}

/* Repeatedly send the maximum number of open requests before reading a reply. */
IT_TEST(max_open_requests_are_answered)
{
	struct wire_request request = { .kind = WIRE_PING };
	struct wire_reply reply;
	uint32_t n;
	struct wire_peer peer;

	daemon_begin();
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	n = peer.welcome.welcome.max_open_requests;
	it_require(n == WIRE_MAX_OPEN_REQUESTS);
	for (uint64_t round = 0; round < 200; round++) {
		for (uint64_t i = 1; i <= n; i++) {
			request.id = round * n + i;
			wire_peer_send(&peer, &request);
		}
		for (uint64_t i = 1; i <= n; i++) {
			wire_peer_receive(&peer, &reply);
			it_require(reply.id == round * n + i && reply.status == PAGED_OK, "%s", reply.text);
		}
	}
	wire_peer_bye(&peer);
	daemon_end();
}

/* The joined member gets a notice with the reason, and the session continues. */
IT_TEST(too_many_open_requests_end_the_member)
{
	static const uint8_t ping[] = { 0x08, 0x01, 0x12, 0x00 };
	struct wire_control_reply notice;
	struct wire_peer first, joined;
	bool has_notice = false;

	daemon_begin();
	wire_peer_attach(&first, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&joined, WIRE_ROLE_JOIN, first.welcome.welcome.join_token);
	for (int i = 0; !has_notice && i < 2000000; i++) {
		struct pollfd polled = { .fd = joined.control, .events = POLLIN };

		if (zmq_send(joined.dealer, ping, sizeof(ping), ZMQ_DONTWAIT) < 0)
			usleep(100);
		has_notice = i % 64 == 0 && poll(&polled, 1, 0) == 1;
	}
	it_require(has_notice && wire_peer_receive_control(joined.control, &notice, NULL));
	it_require(notice.kind == WIRE_NOTICE && notice.notice.kind == WIRE_NOTICE_ENDED);
	it_require(strstr(notice.notice.text, "more than 64 requests are open") != NULL, "%s", notice.notice.text);
	it_require(is_answered(&first));
	wire_peer_bye(&joined);
	wire_peer_bye(&first);
	daemon_end();
}

IT_TEST(member_that_reads_no_replies_is_dropped)
{
	struct it_worker worker;
	struct wire_peer other;
	char c;

	daemon_begin();
	/* Fork before this process has a ZeroMQ thread, which could hold a sanitizer's lock. */
	it_fork(&worker, send_without_reading, NULL);
	it_receive(worker.from, &c, 1);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	it_require(it_daemon_logged(&daemon_, "does not read its replies"));
	it_require(is_answered(&other));
	it_kill(&worker);
	close(worker.to);
	close(worker.from);
	wire_peer_bye(&other);
	daemon_end();
}

IT_MAIN
