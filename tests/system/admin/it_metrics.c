/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon counts: every reply, by kind and status, as its clients see them; members, sessions and turns. */
#include "config.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/pagedclient.h"
#include "tests/support/geometry.h"
#include "tests/support/random.h"
#include "tests/support/wire_peer.h"

#define N_REQUESTS 2000u

/* The replies that this test has received, by kind and status. */
static struct expected {
	const char *name;
	uint64_t n_replies[PAGED_METRICS_STATUSES];
} expected[] = {
	{ .name = "attach" },     { .name = "invalid" },  { .name = "ping" },    { .name = "create" },
	{ .name = "reserve" },    { .name = "truncate" }, { .name = "erase" },   { .name = "check" },
	{ .name = "build_mask" }, { .name = "status" },   { .name = "metrics" },
};
#define N_EXPECTED (sizeof(expected) / sizeof(expected[0]))

static uint64_t *
expected_replies(const char *name)
{
	for (size_t i = 0; i < N_EXPECTED; i++)
		if (strcmp(expected[i].name, name) == 0)
			return expected[i].n_replies;
	it_require(false, "%s", name);
	return NULL;
}

/* A request whose reply is counted. */
static enum paged_status
call(struct wire_peer *peer, const char *name, struct wire_request request, struct wire_reply *reply)
{
	enum paged_status status = wire_peer_call(peer, &request, reply);

	expected_replies(name)[status]++;
	return status;
}

static uint64_t
histogram_count(const struct paged_histogram *histogram)
{
	uint64_t n = 0;

	it_require(histogram->n_buckets == PAGED_HISTOGRAM_BUCKETS);
	for (uint32_t i = 0; i < PAGED_HISTOGRAM_BUCKETS; i++)
		n += histogram->counts[i];
	return n;
}

/* The sum of the durations lies between those that the buckets' bounds allow. */
static void
histogram_expect(const struct paged_histogram *histogram, uint64_t n)
{
	uint64_t least = 0, most = 0;

	it_require(histogram_count(histogram) == n, "%" PRIu64 " durations of %" PRIu64, histogram_count(histogram), n);
	for (uint32_t i = 0; i < PAGED_HISTOGRAM_BUCKETS; i++) {
		least += i > 0 ? histogram->counts[i] * PAGED_BUCKET_NS(i - 1) : 0;
		most += histogram->counts[i] * PAGED_BUCKET_NS(i);
	}
	it_require(histogram->sum_ns >= least, "%" PRIu64, histogram->sum_ns);
	it_require(histogram->sum_ns <= most || histogram->counts[PAGED_HISTOGRAM_BUCKETS - 1] > 0, "%" PRIu64,
		   histogram->sum_ns);
}

static void
expect_kind(const struct paged_request_entry *entry)
{
	uint64_t zeros[PAGED_METRICS_STATUSES] = { 0 }, *replies = zeros, n = 0;

	for (size_t i = 0; i < N_EXPECTED; i++)
		if (strcmp(expected[i].name, entry->name) == 0)
			replies = expected[i].n_replies;
	it_require(entry->n_statuses == PAGED_METRICS_STATUSES);
	for (uint32_t i = 0; i < PAGED_METRICS_STATUSES; i++) {
		it_require(entry->n_replies[i] == replies[i], "%s: %" PRIu64 " replies with status %u of %" PRIu64,
			   entry->name, entry->n_replies[i], i, replies[i]);
		n += replies[i];
	}
	histogram_expect(&entry->latency, n);
}

/* Asks for the metrics, compares those of the requests, and returns the others. */
static struct paged_metrics
expect_metrics(struct wire_peer *peer)
{
	struct wire_request request = { .kind = WIRE_GET_METRICS };
	struct wire_reply reply;
	size_t n_known = 0;

	it_require(wire_peer_call(peer, &request, &reply) == PAGED_OK && reply.kind == WIRE_REPLY_METRICS);
	for (uint32_t i = 0; i < reply.metrics.n; i++) {
		expect_kind(&reply.metrics.requests[i]);
		for (size_t k = 0; k < N_EXPECTED; k++)
			n_known += strcmp(expected[k].name, reply.metrics.requests[i].name) == 0;
	}
	it_require(n_known == N_EXPECTED);
	expected_replies("metrics")[PAGED_OK]++;
	return reply.metrics.daemon;
}

static uint64_t
random_number(uint64_t n)
{
	static uint64_t i;

	return random_bits(20261127, i++) % n;
}

/* The session's sequences, and one that has ended. */
static paged_seq_id seqs[8];
static uint32_t n_seqs;

static void
random_request(struct wire_peer *peer)
{
	static const uint32_t q_len = 100, kv_len = 64;
	uint32_t which = (uint32_t)random_number(n_seqs + 1);
	struct paged_seq_item item = { .seq = which < n_seqs ? seqs[which] : PAGED_SEQ(7, 0, 3) };
	struct wire_request request = { .change = { 1, &item } };
	struct wire_reply reply;

	item.n_tokens = (uint32_t)random_number(120);
	switch (random_number(8)) {
	case 0:
		call(peer, "ping", (struct wire_request){ .kind = WIRE_PING }, &reply);
		return;
	case 1:
		if (call(peer, "create", wire_peer_create_request(0, 1, (uint32_t)random_number(100)), &reply) ==
		    PAGED_OK)
			seqs[n_seqs++] = reply.ids.seq[0];
		return;
	case 2:
		request.kind = WIRE_RESERVE;
		call(peer, "reserve", request, &reply);
		return;
	case 3:
		request.kind = WIRE_TRUNCATE;
		call(peer, "truncate", request, &reply);
		return;
	case 4:
		request = (struct wire_request){ .kind = WIRE_ERASE, .erase = { 1, &item.seq } };
		if (call(peer, "erase", request, &reply) == PAGED_OK)
			seqs[which] = seqs[--n_seqs];
		return;
	case 5:
		request = (struct wire_request){ .kind = WIRE_CHECK, .check.pool = (uint32_t)random_number(4) / 3 };
		call(peer, "check", request, &reply);
		return;
	case 6:
		request = (struct wire_request){ .kind = WIRE_BUILD_MASK,
						 .build_mask = { .n_rows = 1,
								 .q_len = &q_len,
								 .kv_len = &kv_len,
								 .q_block = 32,
								 .kv_block = (uint32_t)random_number(8) == 0 ? 0 : 32,
								 .text = "causal" } };
		call(peer, "build_mask", request, &reply);
		return;
	case 7:
		request =
			(struct wire_request){ .kind = WIRE_ERASE }; /* names no sequence: refused when it is parsed */
		call(peer, "invalid", request, &reply);
		return;
	}
}

/* Every reply is counted once, under the status that its client received. */
IT_TEST(replies_by_kind_and_status)
{
	struct it_daemon daemon;
	struct wire_peer peer;
	struct paged_metrics before, after;
	uint32_t n_refusals = 0;

	it_daemon_start(&daemon, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	expected_replies("attach")[PAGED_OK]++;
	before = expect_metrics(&peer);
	for (uint32_t i = 0; i < N_REQUESTS; i++) {
		random_request(&peer);
		if (i % 100 == 0)
			expect_metrics(&peer);
	}
	after = expect_metrics(&peer);
	it_require(after.n_requests - before.n_requests == N_REQUESTS + N_REQUESTS / 100 + 1, "%" PRIu64,
		   after.n_requests - before.n_requests);
	it_require(histogram_count(&after.turns) > histogram_count(&before.turns));
	it_require(after.uptime_ms >= before.uptime_ms && after.n_dropped == 0 && after.n_died == 0);
	for (size_t i = 0; i < N_EXPECTED; i++)
		for (uint32_t k = 1; k < PAGED_METRICS_STATUSES; k++)
			n_refusals += expected[i].n_replies[k] > 10;
	it_require(n_refusals >= 5, "%u statuses", n_refusals);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon);
}

static void
worker_wait_to_be_killed(int from, int to, void *argument)
{
	struct wire_peer peer;
	char byte;

	(void)argument;
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	it_send(to, "a", 1);
	it_receive(from, &byte, 1);
}

static bool
one_has_died(void *argument)
{
	struct wire_request request = { .kind = WIRE_GET_METRICS };
	struct wire_reply reply;

	it_require(wire_peer_call(argument, &request, &reply) == PAGED_OK);
	expected_replies("metrics")[PAGED_OK]++;
	return reply.metrics.daemon.n_died == 1;
}

/* Members and sessions: attached, refused, killed; and an observer may ask. */
IT_TEST(members_and_sessions)
{
	struct wire_control_request hello = { .kind = WIRE_HELLO,
					      .hello = { .version_major = WIRE_VERSION_MAJOR + 1 } };
	struct it_daemon daemon;
	struct wire_peer observer, joined;
	struct paged_metrics metrics;
	struct it_worker worker;
	char byte;
	int fd;

	it_daemon_start(&daemon, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&observer, WIRE_ROLE_OBSERVER, NULL);
	expected_replies("attach")[PAGED_OK]++;
	metrics = expect_metrics(&observer);
	it_require(metrics.n_members == 1 && metrics.n_opened == 0 && metrics.n_sessions == 0 &&
		   metrics.n_attached == 1);

	fd = wire_peer_connect_control();
	wire_peer_send_control(fd, &hello);
	wire_peer_expect_refusal(fd, PAGED_ERR_VERSION, "version");
	expected_replies("attach")[PAGED_ERR_VERSION]++;
	fd = wire_peer_connect_control();
	wire_peer_send_bytes(fd, "\xff\xff", 2);
	wire_peer_expect_refusal(fd, PAGED_ERR_PROTOCOL, "bytes");
	expected_replies("attach")[PAGED_ERR_PROTOCOL]++;

	it_fork(&worker, worker_wait_to_be_killed, NULL);
	it_receive(worker.from, &byte, 1);
	wire_peer_attach(&joined, WIRE_ROLE_SESSION, NULL);
	expected_replies("attach")[PAGED_OK] += 2;
	metrics = expect_metrics(&observer);
	it_require(metrics.n_members == 3 && metrics.n_opened == 2 && metrics.n_sessions == 2 && metrics.n_died == 0);
	it_kill(&worker);
	it_require(it_wait(one_has_died, &observer));
	wire_peer_bye(&joined);
	metrics = expect_metrics(&observer);
	it_require(metrics.n_members == 1 && metrics.n_opened == 2 && metrics.n_sessions == 0 && metrics.n_died == 1);
	it_require(metrics.n_attached == 3, "%" PRIu64, metrics.n_attached);
	wire_peer_bye(&observer);
	it_daemon_stop(&daemon);
}

/* The public call, with entries and a struct of other sizes than the library's, and with an owner in this process. */
IT_TEST(library)
{
	static const struct paged_pool_params pool = { .struct_size = sizeof(pool),
						       .name = "p",
						       .n_layers = 1,
						       .n_kv_heads = 1,
						       .k_dim = 32,
						       .v_dim = 32,
						       .dtype = PAGED_F16,
						       .page_size = 4,
						       .n_pages = 8,
						       .n_slots = 2 };
	struct paged_client_params params = { .struct_size = sizeof(params), .observer = 1 };
	struct paged_metrics metrics = { .struct_size = sizeof(metrics) };
	struct paged_metrics small = { .struct_size = offsetof(struct paged_metrics, n_requests), .n_requests = 77 };
	struct paged_request_entry *list;
	struct paged_client *client;
	struct it_daemon daemon;
	char(*names)[24];
	size_t n, n_names;

	it_daemon_start(&daemon, SMALL_POOL_CONFIG, NULL, NULL);
	it_require(paged_client_open(NULL, &params, &client) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_admin_metrics(client, &metrics, sizeof(*list), &list, &n) == PAGED_OK);
	it_require(metrics.n_members == 1 && histogram_count(&metrics.turns) > 0 && n > N_EXPECTED);
	it_require(paged_admin_metrics(client, &small, sizeof(*names), (struct paged_request_entry **)&names,
				       &n_names) == PAGED_OK);
	it_require(small.uptime_ms >= metrics.uptime_ms && small.n_requests == 77 && n_names == n);
	for (size_t i = 0; i < n; i++)
		it_require(strcmp(names[i], list[i].name) == 0);
	paged_free(names);
	paged_free(list);
	it_require(paged_admin_metrics(client, &metrics, 0, &list, &n) == PAGED_ERR_INVALID);
	it_require(paged_admin_metrics(client, NULL, sizeof(*list), &list, &n) == PAGED_ERR_INVALID);
	paged_client_close(client);
	it_daemon_stop(&daemon);

	params.observer = 0;
	it_require(paged_client_open_embedded(&pool, 1, &params, &client) == PAGED_OK, "%s",
		   paged_client_error(client));
	it_require(paged_client_ping(client) == PAGED_OK);
	it_require(paged_admin_metrics(client, &metrics, sizeof(*list), &list, &n) == PAGED_OK);
	it_require(n == 0 && metrics.n_sessions == 1 && metrics.n_members == 1 && metrics.turns.sum_ns == 0);
	paged_free(list);
	paged_client_close(client);
}

IT_MAIN
