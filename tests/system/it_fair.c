/* SPDX-License-Identifier: Apache-2.0 */
/* Expensive requests of one session do not delay the others. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "client/pagedclient.h"
#include "tests/support/wire_peer.h"
#include "tests/support/sequences.h"

static struct it_daemon daemon_;

static double
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int
compare_doubles(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* 98,304 slots were used once, one is in use. */
IT_TEST(listing_scans_a_bounded_number_of_slots)
{
	struct wire_request request = wire_peer_create_request(0, PAGED_MAX_REQUEST_SEQS, 0);
	enum { N = 100000 / PAGED_MAX_REQUEST_SEQS };
	static uint64_t ids[N][PAGED_MAX_REQUEST_SEQS];
	struct wire_reply reply;
	unsigned int n_parts = 0;
	struct wire_peer peer;

	it_daemon_start(
		&daemon_,
		"pool p { layers = 1 kv-heads = 1 head-dim = 32 pages = 64 page-size = 4 sequences = 100000 }\n", NULL,
		NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	for (int i = 0; i < N; i++) {
		it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
		memcpy(ids[i], reply.ids.seq, sizeof(ids[i]));
	}
	for (int i = 0; i < N; i++) {
		/* All but the last sequence. */
		request = (struct wire_request){
			.kind = WIRE_ERASE,
			.erase = { .n = PAGED_MAX_REQUEST_SEQS - (i == N - 1), .ids = ids[i] },
		};
		it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	}
	request = (struct wire_request){ .kind = WIRE_GET_SEQUENCES };
	do {
		it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
		it_require(reply.sequences.next_slot - request.get_sequences.from_slot <= 16384);
		request.get_sequences.from_slot = reply.sequences.next_slot;
		n_parts++;
	} while (reply.sequences.n == 0 && reply.sequences.more);
	it_require(reply.sequences.n == 1 && n_parts > 1);
	it_require(reply.sequences.report[0].seq == ids[N - 1][PAGED_MAX_REQUEST_SEQS - 1]);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon_);
}

/* Two million pages, which a check walks in many steps. */
#define BIG_POOL                                                                                                  \
	"pool p { layers = 1 kv-heads = 1 head-dim = 1 page-size = 1 pages = 2000000 sequences = 4 max-length = " \
	"2000000 }\n"

static void
check_repeatedly(int from, int to, void *argument)
{
	struct paged_check_result result = { .struct_size = sizeof(result) };
	struct paged_client *client;
	uint32_t n = 0;

	(void)argument;
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK, "%s", paged_client_error(client));
	it_send(to, &n, sizeof(n));
	for (;;) {
		struct pollfd polled = { .fd = from, .events = POLLIN };
		double started = now_us();

		it_require(paged_admin_check(client, "p", &result) == PAGED_OK, "%s", paged_client_error(client));
		it_require(result.holds == 1, "%s", result.text);
		n++;
		if (poll(&polled, 1, 0) == 1) {
			it_note("%u checks, the last in %.0f us, %u of %u pages free", n, now_us() - started,
				result.n_free, result.n_pages);
			break;
		}
	}
	it_send(to, &n, sizeof(n));
	paged_client_close(client);
}

/* A ping that is sent after a check is answered before it. */
static bool
ping_overtakes_check(void *argument)
{
	struct wire_peer *peer = argument;
	struct wire_request check = { .id = 1, .kind = WIRE_CHECK }, ping = { .id = 2, .kind = WIRE_PING };
	struct wire_reply first, second;

	wire_peer_send(peer, &check);
	wire_peer_send(peer, &ping);
	wire_peer_receive(peer, &first);
	it_require(first.status == PAGED_OK, "%s", first.text);
	wire_peer_receive(peer, &second);
	it_require(second.status == PAGED_OK && second.id != first.id, "%s", second.text);
	return first.id == 2;
}

IT_TEST(check_of_a_big_pool_does_not_delay_requests)
{
	enum { N = 400 };
	static double us[N];
	uint32_t tokens = 1900000, n;
	struct it_worker worker;
	struct paged_client *client;
	struct paged_pool *pool;
	struct wire_peer peer;
	paged_seq_id id[2];

	it_daemon_start(&daemon_, BIG_POOL, NULL, NULL);
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
	it_require(seqs_create(client, pool, 2, id) == PAGED_OK);
	it_require(seqs_reserve(client, 1, id, &tokens) == PAGED_OK, "%s", paged_client_error(client));
	it_fork(&worker, check_repeatedly, NULL);
	it_receive(worker.from, &n, sizeof(n));
	for (uint32_t i = 0; i < N; i++) {
		double started = now_us();

		tokens = i % 2 ? 0 : 100;
		if (i % 2)
			it_require(seqs_truncate(client, 1, &id[1], &tokens) == PAGED_OK);
		else
			it_require(seqs_reserve(client, 1, &id[1], &tokens) == PAGED_OK);
		us[i] = now_us() - started;
		usleep(500);
	}
	it_send(worker.to, &n, sizeof(n));
	it_receive(worker.from, &n, sizeof(n));
	it_join(&worker);
	qsort(us, N, sizeof(us[0]), compare_doubles);
	it_note("%d requests during %u checks: median %.0f us, 95%% below %.0f us", N, n, us[N / 2], us[N * 95 / 100]);
	it_require(n > 0);
	wire_peer_attach(&peer, WIRE_ROLE_OBSERVER, NULL);
	it_require(it_wait(ping_overtakes_check, &peer), "a check is not interrupted");
	wire_peer_bye(&peer);
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

/* Send the most expensive requests as fast as the daemon accepts them. */
static void
send_largest_requests(int from, int to, void *argument)
{
	static uint64_t ids[PAGED_MAX_REQUEST_SEQS];
	static struct paged_seq_item items[2][PAGED_MAX_REQUEST_SEQS];
	static uint8_t message[2][WIRE_MAX_MESSAGE], reply_bytes[WIRE_MAX_MESSAGE];
	struct wire_request request = wire_peer_create_request(0, PAGED_MAX_REQUEST_SEQS, 0);
	struct wire_reply reply;
	struct paged_error error;
	struct wire_arena arena;
	size_t size[2];
	struct wire_peer peer;

	(void)from, (void)argument;
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	memcpy(ids, reply.ids.seq, sizeof(ids));
	it_require(wire_arena_create(&arena, &error) == PAGED_OK);
	for (int k = 0; k < 2; k++) {
		for (uint32_t i = 0; i < PAGED_MAX_REQUEST_SEQS; i++)
			items[k][i] = (struct paged_seq_item){ .seq = ids[i], .n_tokens = k ? 0 : 32 };
		request = (struct wire_request){
			.id = 1,
			.kind = k ? WIRE_TRUNCATE : WIRE_RESERVE,
			.change = { .n = PAGED_MAX_REQUEST_SEQS, .items = items[k] },
		};
		size[k] = wire_request_pack(&request, &arena, message[k], sizeof(message[k]));
	}
	it_send(to, "x", 1);
	for (int i = 0;; i ^= 1) {
		while (zmq_recv(peer.dealer, reply_bytes, sizeof(reply_bytes), ZMQ_DONTWAIT) >= 0)
			;
		if (zmq_send(peer.dealer, message[i], size[i], ZMQ_DONTWAIT) < 0)
			usleep(100);
	}
}

/* A daemon that served requests as long as there are some would answer no hello. */
IT_TEST(requests_without_pause_keep_nobody_from_attaching)
{
	enum { N = 100 };
	struct it_worker worker[2];
	double us[N];
	char c;

	it_daemon_start(
		&daemon_,
		"pool p { layers = 1 kv-heads = 1 head-dim = 1 page-size = 1 pages = 300000 sequences = 8192 }\n", NULL,
		NULL);
	for (int i = 0; i < 2; i++) {
		it_fork(&worker[i], send_largest_requests, NULL);
		it_receive(worker[i].from, &c, 1);
	}
	for (int i = 0; i < N; i++) {
		const struct wire_control_request bye = { .kind = WIRE_BYE };
		double started = now_us();
		struct wire_control_reply reply;
		int fd = wire_peer_connect_control();

		wire_peer_hello(fd, WIRE_ROLE_OBSERVER, NULL, &reply);
		us[i] = now_us() - started;
		wire_peer_send_control(fd, &bye);
		it_require(wire_peer_receive_control(fd, &reply, NULL));
		close(fd);
	}
	qsort(us, N, sizeof(us[0]), compare_doubles);
	it_note("%d hellos while two others send requests without pause: median %.0f us, 95%% below %.0f us", N,
		us[N / 2], us[N * 95 / 100]);
	for (int i = 0; i < 2; i++)
		it_kill(&worker[i]);
	it_require(wire_peer_wait_free(300000));
	it_daemon_stop(&daemon_);
}

IT_MAIN
