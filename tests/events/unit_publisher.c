/* SPDX-License-Identifier: Apache-2.0 */
/* What peers cost and receive: turns of a set of peers, and a publisher with its thread. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "events/peer_set.h"
#include "events/publisher.h"

enum { PEERS = 4, NOW_MS = 1000 };

static char dir[] = "/tmp/unit_publisher.XXXXXX", path[64], endpoint[80];

static void
dir_create(void)
{
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/kv", dir);
	snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
}

static void
dir_remove(void)
{
	cr_assert_eq(rmdir(dir), 0);
}

/* A client of ZMTP */

static int
client_connect(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, path);
	cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* Greets, and subscribes to everything. */
static void
client_subscribe(int fd)
{
	uint8_t bytes[ZMTP_GREETING_SIZE + ZMTP_MAX_COMMAND + 8];
	size_t n = ZMTP_GREETING_SIZE;

	zmtp_greeting_write(bytes);
	n += zmtp_ready_write("SUB", bytes + n);
	n = (size_t)(zmtp_frame_write(bytes + n, "\1", 1, false) - bytes);
	cr_assert_eq(send(fd, bytes, n, 0), n);
}

/* Receives what has been sent.  Returns its size. */
static size_t
client_drain(int fd)
{
	static char bytes[1 << 16];
	size_t total = 0;
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		total += (size_t)n;
	return total;
}

/* Turns of a set */

static struct peer_set set;
static int clients[PEERS];

/* A turn, after which something is ready or not. */
static void
turn(void)
{
	struct pollfd polled[1 + PEERS];
	size_t n = peer_set_fill(&set, polled);

	cr_assert_geq(poll(polled, n, 0), 0);
	peer_set_serve(&set, polled, NOW_MS);
}

/* A set with subscribers, which have received the greeting. */
static void
set_begin(uint32_t n_batches, size_t size)
{
	struct batch_log *log = batch_log_create("", n_batches, size);

	set = (struct peer_set){ .service = { PEER_SUBSCRIBERS, log, "", n_batches, 0 },
				 .name = "test",
				 .n_max = PEERS };
	cr_assert(peer_set_open(&set, endpoint, true));
	for (int i = 0; i < PEERS; i++) {
		clients[i] = client_connect();
		client_subscribe(clients[i]);
	}
	for (int i = 0; i < 16; i++)
		turn();
	cr_assert_eq(set.n, PEERS);
	for (int i = 0; i < PEERS; i++) {
		cr_assert(set.peers[i]->subscribed);
		cr_assert_gt(client_drain(clients[i]), ZMTP_GREETING_SIZE);
	}
}

static void
set_end(void)
{
	for (int i = 0; i < PEERS; i++)
		close(clients[i]);
	peer_set_close(&set);
	batch_log_destroy(set.service.log);
}

/* Is there a peer from which something, or nothing, may be received now? */
static bool
any_wants_input(bool wanted)
{
	for (uint32_t i = 0; i < set.n; i++)
		if (peer_wants_input(set.peers[i]) == wanted)
			return true;
	return false;
}

/* One that sends single bytes is not served for the rest of the second. */
Test(publisher, single_bytes_cause_few_turns, .init = dir_create, .fini = dir_remove)
{
	set_begin(8, SIZE_MAX);
	cr_assert(!any_wants_input(false));
	/* The head of a frame of 200 bytes. */
	cr_assert_eq(send(clients[0], "\0\310", 2, 0), 2);
	for (int i = 0; i < 200; i++) {
		cr_assert_eq(send(clients[0], "x", 1, 0), 1);
		turn();
	}
	cr_assert(any_wants_input(false));
	cr_assert(any_wants_input(true));
	peer_set_renew(&set, NOW_MS);
	cr_assert(!any_wants_input(false));
	cr_assert_eq(set.n, PEERS);
	set_end();
}

/* Small batches for one peer leave time for the others, and come in further turns. */
Test(publisher, sends_of_a_turn, .init = dir_create, .fini = dir_remove)
{
	enum { BATCHES = 1000, FRAMES = 2 + 10 + 3 };
	size_t total = 0;

	set_begin(BATCHES, SIZE_MAX);
	for (int i = 0; i < BATCHES; i++)
		cr_assert(batch_log_append(set.service.log, "x", 1));
	for (int i = 0; i < BATCHES; i++) {
		turn();
		for (int j = 0; j < PEERS; j++) {
			size_t n = client_drain(clients[j]);

			cr_assert(n <= 32 * FRAMES, "%zu bytes", n);
			total += n;
		}
	}
	cr_assert_eq(total, PEERS * BATCHES * FRAMES);
	set_end();
}

/* What the kernel has no room for is not tried in each turn. */
Test(publisher, nothing_is_sent_without_room, .init = dir_create, .fini = dir_remove)
{
	struct pollfd polled[1 + PEERS] = { 0 };

	set_begin(8, SIZE_MAX);
	cr_assert(batch_log_append(set.service.log, "x", 1));
	peer_set_fill(&set, polled);
	peer_set_serve(&set, polled, NOW_MS);
	for (int i = 0; i < PEERS; i++)
		cr_assert_eq(client_drain(clients[i]), 0);
	turn();
	for (int i = 0; i < PEERS; i++)
		cr_assert_gt(client_drain(clients[i]), 0);
	set_end();
}

/* A publisher with its thread */

static const struct publisher_options options = { .endpoint = endpoint,
						  .topic = "",
						  .buffer_size = 4 << 20,
						  .hwm = 1000,
						  .max_connections = 64,
						  .linger_ms = 60000 };

/* A subscriber whose subscription the publisher knows. */
static int
client_open(void)
{
	int fd = client_connect();
	uint8_t bytes[ZMTP_GREETING_SIZE + ZMTP_MAX_COMMAND], last[9];
	size_t n = zmtp_ready_write("PUB", bytes);

	client_subscribe(fd);
	/* A heartbeat, which is answered after what was sent before. */
	cr_assert_eq(send(fd, "\4\11\4PING\0\12ab", 11, 0), 11);
	cr_assert_eq(recv(fd, bytes, ZMTP_GREETING_SIZE + n, MSG_WAITALL), (ssize_t)(ZMTP_GREETING_SIZE + n));
	cr_assert_eq(recv(fd, last, sizeof(last), MSG_WAITALL), (ssize_t)sizeof(last));
	cr_assert_eq(memcmp(last, "\4\7\4PONGab", sizeof(last)), 0);
	return fd;
}

/* Does the other side close the connection, whatever it sends before? */
static bool
client_is_closed(int fd)
{
	static char bytes[1 << 16];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		;
	return n == 0;
}

/* Each peer that does not read holds a batch of its own that the log has dropped. */
Test(publisher, held_batches_are_limited, .init = dir_create, .fini = dir_remove)
{
	enum { STALLED = 32, SIZE = 400 << 10, KEPT = 10, HELD = 2 };
	struct publisher *publisher = publisher_open("test", &options);
	char *payload = calloc(1, SIZE);
	uint32_t n_closed = 0;
	int fds[STALLED];

	cr_assert_not_null(publisher);
	for (int i = 0; i < STALLED; i++) {
		uint8_t byte;

		fds[i] = client_open();
		cr_assert(publisher_send(publisher, payload, SIZE));
		/* It holds this one from now on. */
		cr_assert_eq(recv(fds[i], &byte, 1, 0), 1);
	}
	/* So many are in the log, and so many of those that it has dropped may be held. */
	for (int i = 0; i < STALLED - KEPT - HELD; i++) {
		struct pollfd polled = { .fd = fds[i], .events = POLLRDHUP };

		cr_assert_eq(poll(&polled, 1, 60000), 1, "%d", i);
		n_closed += client_is_closed(fds[i]);
	}
	cr_assert_eq(n_closed, STALLED - KEPT - HELD);
	for (int i = 0; i < STALLED; i++) {
		cr_assert(i < STALLED - KEPT - HELD || !client_is_closed(fds[i]), "%d", i);
		close(fds[i]);
	}
	publisher_close(publisher);
	free(payload);
}

static void *
close_run(void *publisher)
{
	publisher_close(publisher);
	return NULL;
}

/* What waits for a subscriber that reads is sent before the end. */
Test(publisher, the_end_is_sent, .init = dir_create, .fini = dir_remove)
{
	enum { SIZE = 10000, BATCHES = 100 };
	static char bytes[SIZE];
	struct publisher *publisher = publisher_open("test", &options);
	size_t total = 0;
	pthread_t thread;
	ssize_t n;
	int fd;

	cr_assert_not_null(publisher);
	fd = client_open();
	for (int i = 0; i < BATCHES; i++)
		cr_assert(publisher_send(publisher, bytes, SIZE));
	cr_assert_eq(pthread_create(&thread, NULL, close_run, publisher), 0);
	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		total += (size_t)n;
	cr_assert_gt(total, (size_t)BATCHES * SIZE);
	pthread_join(thread, NULL);
	close(fd);
}
