/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of paged-events that take memory, keep others away or send what is no ZMTP.  All of it is on this machine. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "events/zmtp.h"
#include "tests/system/router_fixture.h"

enum {
	CONNECTIONS = 6000, /* of the test that opens many */
	TOPICS = 20456,     /* of one subscriber */
	TOPIC_SIZE = 1000,
	GROWTH_MAX_KIB = 16 << 10, /* libzmq's sockets cost more than 50 MiB */
	LIMIT_S = 60,
};

static struct it_daemon daemon_;
static struct events_process events;
static struct worker_fixture worker;
static struct router router;
static struct block_hasher hasher;
static struct router_block expected[ROUTER_MAX_BLOCKS];

static void
events_begin(const char *const *arguments)
{
	it_daemon_start(&daemon_, CHAIN_POOL(1024, ""), NULL, NULL);
	events_start(&events, &daemon_, arguments);
	it_require(events_logged(&events, "replay at"));
	worker_open(&worker, NULL, 0);
	it_require(block_hasher_init(&hasher, "sha256", NULL) == NULL);
}

static void
events_end(void)
{
	router_close(&router);
	worker_close(&worker);
	events_stop(&events);
	it_daemon_stop(&daemon_);
}

/* Publishes a chain; the router must learn of it. */
static void
follow_chain(uint32_t chain)
{
	size_t n = router.n_blocks;

	memcpy(expected, router.blocks, n * sizeof(expected[0]));
	chain_publish(&worker, chain, 3);
	n = router_expect_chain(expected, n, &hasher, chain, 3, NULL);
	router_follow(&router, expected, n);
}

/* Connections without libzmq */

/* Connects to "ipc://PATH", or to "tcp://127.0.0.1:PORT" from the address 127.0.0.FROM. */
static int
raw_connect(const char *endpoint, uint8_t from)
{
	const struct timeval limit = { .tv_sec = LIMIT_S };
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from) };
	bool tcp = strncmp(endpoint, "tcp", 3) == 0;
	int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), result;

	it_require(fd >= 0, "%m");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (tcp) {
		it_require(bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0, "%m");
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		address.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
		result = connect(fd, (const struct sockaddr *)&address, sizeof(address));
	} else {
		snprintf(path.sun_path, sizeof(path.sun_path), "%.100s", endpoint + 6);
		result = connect(fd, (const struct sockaddr *)&path, sizeof(path));
	}
	it_require(result == 0, "%s: %m", endpoint);
	return fd;
}

/* Sends what may meet a closed connection. */
static void
raw_send(int fd, const void *bytes, size_t n)
{
	ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

	it_require(sent == (ssize_t)n || errno == EPIPE || errno == ECONNRESET, "%zd of %zu bytes: %m", sent, n);
}

static void
raw_receive(int fd, void *bytes, size_t n)
{
	it_require(recv(fd, bytes, n, MSG_WAITALL) == (ssize_t)n, "%m");
}

/* Whether the other side closes the connection, whatever it sends before. */
static bool
raw_is_closed(int fd)
{
	char bytes[256];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		;
	return n == 0 || errno == ECONNRESET;
}

static void
raw_greet(int fd, const char *type)
{
	uint8_t bytes[ZMTP_GREETING_SIZE + ZMTP_MAX_COMMAND];

	zmtp_greeting_write(bytes);
	raw_send(fd, bytes, ZMTP_GREETING_SIZE + zmtp_ready_write(type, bytes + ZMTP_GREETING_SIZE));
}

/* Connects and exchanges greetings and READY. */
static int
raw_open(const char *endpoint, uint8_t from, const char *type)
{
	uint8_t greeting[ZMTP_GREETING_SIZE], head[2], body[256];
	int fd = raw_connect(endpoint, from);

	raw_greet(fd, type);
	raw_receive(fd, greeting, sizeof(greeting));
	raw_receive(fd, head, sizeof(head));
	it_require(greeting[0] == 0xff && head[0] == 4);
	raw_receive(fd, body, head[1]);
	it_require(memcmp(body, "\5READY\13Socket-Type\0\0\0", 21) == 0);
	return fd;
}

static void
raw_subscribe(int fd, const char *topic, size_t n)
{
	uint8_t body[1 + TOPIC_SIZE], frame[ZMTP_MAX_HEAD + sizeof(body)];

	it_require(n <= TOPIC_SIZE);
	body[0] = 1;
	memcpy(body + 1, topic, n);
	raw_send(fd, frame, (size_t)(zmtp_frame_write(frame, body, 1 + n, false) - frame));
}

/* Memory */

static unsigned long before_kib;

static void
memory_begin(void)
{
	before_kib = it_private_kib(events.pid);
}

static void
memory_check(void)
{
	unsigned long now_kib = it_private_kib(events.pid);

	it_note("%lu KiB before, %lu KiB after", before_kib, now_kib);
	it_require(it_sanitized() || now_kib < before_kib + GROWTH_MAX_KIB);
}

/* Connections that begin like HTTP, or with nothing at all, and end. */
static void
connect_shortly(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int fd = raw_connect(i % 2 == 0 ? events.endpoint : events.replay_endpoint, 1);

		raw_send(fd, "GET / HTTP/1.1\r\n\r\n", i % 3 * 9);
		close(fd);
	}
}

IT_TEST(short_connections_leave_nothing)
{
	events_begin(NULL);
	router_open(&router, &events, "");
	follow_chain(1);
	connect_shortly(200);
	follow_chain(2);
	memory_begin();
	connect_shortly(CONNECTIONS);
	follow_chain(3);
	memory_check();
	events_end();
}

/* Subscribes to many topics, as fast as the other side reads, for 5 s at most. */
static void
subscriber_run(int from, int to, void *argument)
{
	int fd = raw_open(events.endpoint, 1, "SUB");
	uint64_t end_ms = it_now_ms() + 5000;
	struct pollfd polled = { .fd = fd, .events = POLLOUT };
	uint8_t body[1 + TOPIC_SIZE] = { 1 }, frame[ZMTP_MAX_HEAD + sizeof(body)];
	size_t n = 0, at = 0;
	char end;

	(void)argument;
	for (uint32_t i = 0; i < TOPICS && it_now_ms() < end_ms; i += at == n) {
		ssize_t sent;

		if (at == n) {
			memcpy(body + 1, &i, sizeof(i));
			n = (size_t)(zmtp_frame_write(frame, body, sizeof(body), false) - frame);
			at = 0;
		}
		poll(&polled, 1, 100);
		sent = send(fd, frame + at, n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
		at += sent > 0 ? (size_t)sent : 0;
	}
	it_send(to, "", 1);
	/* Killed while its peer reads. */
	it_receive(from, &end, sizeof(end));
}

static void
evict_all(void)
{
	uint32_t n_evicted;

	worker_ok(&worker, paged_admin_evict(worker.client, "test", 0, &n_evicted));
	router_follow(&router, expected, 0);
}

IT_TEST(topics_of_one_subscriber_cost_nothing)
{
	struct it_worker subscriber;
	struct pollfd polled;
	uint32_t chain = 10;

	events_begin(NULL);
	router_open(&router, &events, "");
	follow_chain(1);
	it_fork(&subscriber, subscriber_run, NULL);
	memory_begin();
	polled = (struct pollfd){ .fd = subscriber.from, .events = POLLIN };
	/* Batches meanwhile: libzmq takes some subscriptions after each. */
	for (; poll(&polled, 1, 1) == 0; chain++)
		chain_publish(&worker, chain, 1);
	evict_all();
	memory_check();
	it_kill(&subscriber);
	for (uint32_t i = 0; i < 3; i++)
		follow_chain(chain + i);
	memory_check();
	events_end();
}

/* Each topic that the publisher's begins with is another subscription, whatever else is subscribed to. */
IT_TEST(topics_that_match)
{
	static const char *const arguments[] = { "--topic", "kv@1", NULL };
	uint8_t byte;
	int fds[3];

	events_begin(arguments);
	router_open(&router, &events, "kv");
	fds[0] = raw_open(events.endpoint, 1, "SUB");
	raw_subscribe(fds[0], "kv@1", 4);
	fds[1] = raw_open(events.endpoint, 1, "SUB");
	raw_subscribe(fds[1], "kv@1x", 5);
	raw_subscribe(fds[1], "k@", 2);
	/* The command of ZMTP 3.1. */
	fds[2] = raw_open(events.endpoint, 1, "XSUB");
	raw_send(fds[2], "\4\13\11SUBSCRIBEk", 13);
	for (uint32_t chain = 1; recv(fds[0], &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 1 ||
				 recv(fds[2], &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 1;
	     chain++) {
		follow_chain(chain);
		it_require(chain < 200, "a subscriber received nothing");
	}
	it_require(recv(fds[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	events_end();
}

/* Receives a replay up to its end.  Returns how many batches it had. */
static uint32_t
replay_receive(void)
{
	struct router_batch batch;
	uint32_t n = 0;

	for (; router_replayed(&router, &batch); n++)
		router_batch_free(&batch);
	return n;
}

/* One peer asks for everything twice, and then so often that its requests wait for each other. */
IT_TEST(each_replay_has_its_end)
{
	static const char *const arguments[] = { "--buffer-steps", "200", NULL };
	struct router_batch batch;
	uint64_t last = 0;

	events_begin(arguments);
	router_open(&router, &events, "");
	for (uint32_t chain = 0; last < 250; chain++) {
		chain_publish(&worker, chain, 1);
		while (router_receive(&router, &batch, last < 250 ? 5 : 0)) {
			last = batch.sequence;
			router_batch_free(&batch);
		}
	}
	for (int i = 0; i < 4; i++) {
		router_request(&router, 0);
		it_require(replay_receive() == 200);
	}
	for (int i = 0; i < 60; i++)
		router_request(&router, i % 2 == 0 ? 0 : UINT64_MAX);
	for (int i = 0; i < 60; i++)
		it_require(replay_receive() == (i % 2 == 0 ? 200 : 0));
	events_end();
}

/* The endpoint of a TCP port, from the log. */
static void
events_find_port(void)
{
	static char log[1 << 14];
	const char *found;
	FILE *file;
	size_t n;

	file = fopen(events.log, "r");
	it_require(file != NULL);
	n = fread(log, 1, sizeof(log) - 1, file);
	fclose(file);
	log[n] = '\0';
	found = strstr(log, "tcp://127.0.0.1:");
	it_require(found != NULL && sscanf(found, "%95s", events.endpoint) == 1);
}

/*
 * Connections of an address that send nothing displace each other, and keep away none that is in use.  unit_admission
 * has other addresses: on loopback, all are one.
 */
IT_TEST(silent_connections_keep_nobody_away)
{
	static const char *const arguments[] = { "--endpoint", "tcp://127.0.0.1:*", "--max-connections", "12", NULL };
	int subscribed[11], silent[60], own;
	char byte;

	events_begin(arguments);
	events_find_port();
	own = raw_open(events.endpoint, 2, "SUB");
	raw_subscribe(own, "", 0);
	/* The first of these displace none, the others each other. */
	for (int i = 0; i < 60; i++)
		silent[i] = raw_connect(events.endpoint, 3 + (uint8_t)i);
	/* Handshakes succeed meanwhile. */
	router_open(&router, &events, "");
	for (int i = 0; i < 10; i++) {
		subscribed[i] = raw_open(events.endpoint, 100, "SUB");
		raw_subscribe(subscribed[i], "", 0);
	}
	for (uint32_t chain = 1; chain < 4; chain++)
		follow_chain(chain);
	for (int i = 0; i < 60; i++)
		it_require(raw_is_closed(silent[i]));
	subscribed[10] = raw_connect(events.endpoint, 101);
	it_require(raw_is_closed(subscribed[10]));
	it_require(recv(own, &byte, 1, 0) == 1);
	it_require(events_logged(&events, "12 connections are open, which is the limit"));
	for (int i = 0; i < 60; i++)
		close(silent[i]);
	for (int i = 0; i < 11; i++)
		close(subscribed[i]);
	close(own);
	events_end();
}

/* Sends a greeting and then bytes, after which the connection must be closed. */
static void
expect_refused(const char *endpoint, const char *type, const void *bytes, size_t n)
{
	int fd = raw_connect(endpoint, 1);

	if (type != NULL)
		raw_greet(fd, type);
	raw_send(fd, bytes, n);
	it_require(raw_is_closed(fd));
	close(fd);
}

IT_TEST(what_is_no_zmtp_is_closed)
{
	uint8_t greeting[ZMTP_GREETING_SIZE], pong[9];
	int fd;

	events_begin(NULL);
	router_open(&router, &events, "");
	follow_chain(1);
	zmtp_greeting_write(greeting);
	greeting[12] = 'C'; /* of the mechanism */
	expect_refused(events.endpoint, NULL, greeting, sizeof(greeting));
	zmtp_greeting_write(greeting);
	greeting[10] = 1; /* ZMTP 2.0 */
	expect_refused(events.endpoint, NULL, greeting, 11);
	expect_refused(events.endpoint, "DEALER", "", 0);
	expect_refused(events.replay_endpoint, "SUB", "", 0);
	/* Long frames, known by their size alone; a flag that no version has; a command without a name. */
	expect_refused(events.endpoint, "SUB", "\2\0\0\0\0\0\0\4\1", 9);
	expect_refused(events.replay_endpoint, "REQ", "\3\377\377\377\377\377\377\377\377", 9);
	expect_refused(events.endpoint, "SUB", "\10\0", 2);
	expect_refused(events.endpoint, "SUB", "\4\0", 2);
	/* A heartbeat. */
	fd = raw_open(events.endpoint, 1, "SUB");
	raw_send(fd, "\4\11\4PING\0\12ab", 11);
	raw_receive(fd, pong, sizeof(pong));
	it_require(memcmp(pong, "\4\7\4PONGab", 9) == 0);
	close(fd);
	follow_chain(2);
	events_end();
}

/* What waits for peers that do not read is in memory once. */
IT_TEST(peers_that_do_not_read)
{
	enum { PEERS = 100 };
	int fds[PEERS];
	size_t n = 0;

	events_begin(NULL);
	router_open(&router, &events, "");
	follow_chain(1);
	memory_begin();
	for (int i = 0; i < PEERS; i++) {
		fds[i] = raw_open(i % 2 == 0 ? events.endpoint : events.replay_endpoint, 1, i % 2 == 0 ? "SUB" : "REQ");
		if (i % 2 == 0)
			raw_subscribe(fds[i], "", 0);
		else
			raw_send(fds[i], "\1\0\0\10\0\0\0\0\0\0\0\0", 12);
	}
	for (uint32_t chain = 2; chain < 300; chain++)
		chain_publish(&worker, chain, CHAIN_MAX_PAGES);
	for (uint32_t chain = 296; chain < 300; chain++)
		n = router_expect_chain(expected, n, &hasher, chain, CHAIN_MAX_PAGES, NULL);
	router_follow(&router, expected, n);
	memory_check();
	for (int i = 0; i < PEERS; i++)
		close(fds[i]);
	events_end();
}

IT_MAIN
