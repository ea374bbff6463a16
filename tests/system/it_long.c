/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The longest requests of each kind: none does more work at a time than a step, others are served between the steps,
 * and its session may be killed or kicked in the middle.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "core/core.h"
#include "tests/support/wire_peer.h"

#define LENGTH 262144u
#define N_CHILDREN 60u
#define N_PAGES 600000u
/* The pool is as bad as it can be: a page for each token, so that page tables are long. */
static const char configuration[] = "pool p { layers = 1 kv-heads = 1 head-dim = 1 page-size = 1 pages = 600000 "
				    "sequences = 64 max-length = 262144 }\n";
/* Entries, pages and nodes: the daemon's step, and as many again for a walk up a chain of nodes. */
#define MOST_VISITED 6144u

static struct it_daemon daemon_;
static paged_seq_id parent, children[N_CHILDREN];

static enum paged_status
call(struct wire_peer *peer, struct wire_request request, struct wire_reply *reply)
{
	return wire_peer_call(peer, &request, reply);
}

static void
expect_ok(struct wire_peer *peer, struct wire_request request)
{
	struct wire_reply reply;

	it_require(call(peer, request, &reply) == PAGED_OK, "%s", reply.text);
}

static struct wire_request
fork_request(void)
{
	static struct seq_fork forks[N_CHILDREN];

	for (uint32_t i = 0; i < N_CHILDREN; i++)
		forks[i] = (struct seq_fork){ .parent = parent, .n_tokens = LENGTH };
	return (struct wire_request){ .kind = WIRE_FORK, .fork = { N_CHILDREN, forks } };
}

static void
make_parent(struct wire_peer *peer)
{
	parent = wire_peer_create_seq(peer, LENGTH);
}

/* A sequence of LENGTH pages, and children that share all of them. */
static void
make_children(struct wire_peer *peer)
{
	struct wire_reply reply;

	make_parent(peer);
	it_require(call(peer, fork_request(), &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.ids.n == N_CHILDREN);
	memcpy(children, reply.ids.seq, sizeof(children));
}

static uint64_t
most_visited(struct wire_peer *peer, const char *kind)
{
	struct wire_reply reply;

	it_require(call(peer, (struct wire_request){ .kind = WIRE_GET_METRICS }, &reply) == PAGED_OK);
	it_note("longest turn: %" PRIu64 " us", reply.metrics.daemon.longest_turn_ns / 1000);
	for (uint32_t i = 0; i < reply.metrics.n; i++)
		if (strcmp(reply.metrics.requests[i].name, kind) == 0)
			return reply.metrics.requests[i].most_visited;
	it_require(false, "no requests %s", kind);
	return 0;
}

static void
expect_steps(struct wire_peer *peer, const char *kind)
{
	uint64_t n = most_visited(peer, kind);

	it_require(n > 0 && n <= MOST_VISITED, "%s: %" PRIu64 " entries at a time", kind, n);
}

/* Sequences that have pages of their own, more than a step takes. */
static void
grow(struct wire_peer *peer)
{
	static const struct seq_start_spec start = { .n_tokens = LENGTH / 4, .tag = "" };
	struct paged_seq_item item = { .seq = wire_peer_create_seq(peer, LENGTH / 2), .n_tokens = LENGTH };

	expect_ok(peer, (struct wire_request){ .kind = WIRE_RESERVE, .change = { 1, &item } });
	expect_ok(peer, (struct wire_request){ .kind = WIRE_START, .start = { .n = 1, .specs = &start } });
	it_require(wire_peer_pool_entry().n_referenced == 2 * LENGTH + LENGTH / 4);
}

IT_TEST(no_request_does_more_than_a_step)
{
	struct paged_seq_item items[N_CHILDREN];
	struct wire_peer peer;

	it_daemon_start(&daemon_, configuration, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	make_children(&peer);
	for (uint32_t i = 0; i < N_CHILDREN; i++)
		items[i] = (struct paged_seq_item){ .seq = children[i], .n_tokens = LENGTH / 4 };
	expect_ok(&peer, (struct wire_request){ .kind = WIRE_TRIM, .change = { N_CHILDREN, items } });
	for (uint32_t i = 0; i < N_CHILDREN; i++)
		items[i].n_tokens = LENGTH / 2;
	expect_ok(&peer, (struct wire_request){ .kind = WIRE_TRUNCATE, .change = { N_CHILDREN, items } });
	expect_ok(&peer, (struct wire_request){ .kind = WIRE_ERASE, .erase = { N_CHILDREN, children } });
	it_require(wire_peer_pool_entry().n_referenced == LENGTH && wire_peer_pool_entry().n_sequences == 1);
	expect_steps(&peer, "fork");
	expect_steps(&peer, "trim");
	expect_steps(&peer, "truncate");
	expect_steps(&peer, "erase");
	grow(&peer);
	expect_steps(&peer, "create");
	expect_steps(&peer, "reserve");
	expect_steps(&peer, "start");
	wire_peer_bye(&peer);
	it_require(wire_peer_wait_free(N_PAGES));
	it_daemon_stop(&daemon_);
}

/* The only prefix of the pool. */
#define PREFIX (4 * WIRE_MAX_PUBLISH_PAGES)
static uint32_t prefix_pages[PREFIX];
static uint64_t prefix_serials[PREFIX];

/* Serials count on from page to page of the prefix. */
static void
read_prefix(struct wire_peer *peer)
{
	struct wire_request request = { .kind = WIRE_GET_PREFIXES };
	uint64_t first = UINT64_MAX;
	struct wire_reply reply;
	uint32_t n = 0;

	for (int pass = 0; pass < 2; pass++) {
		request.get_prefixes.from_page = 0;
		do {
			it_require(call(peer, request, &reply) == PAGED_OK, "%s", reply.text);
			for (uint32_t i = 0; i < reply.prefixes.n; i++) {
				const struct paged_node_entry *node = &reply.prefixes.report[i];

				first = MIN(first, node->serial);
				if (pass == 0 || node->serial - first >= PREFIX)
					continue;
				prefix_pages[node->serial - first] = node->page;
				prefix_serials[node->serial - first] = node->serial;
				n++;
			}
			request.get_prefixes.from_page = reply.prefixes.next_page;
		} while (reply.prefixes.more);
	}
	it_require(n == PREFIX);
}

static void
make_prefix(struct wire_peer *peer)
{
	static uint32_t tokens[WIRE_MAX_PUBLISH_PAGES];
	/* A create in a new slot replaces its page table once, from version 0 to 2. */
	struct seq_publish_spec spec = { .seq = wire_peer_create_seq(peer, PREFIX), .version = 2 };

	spec.n_pages = WIRE_MAX_PUBLISH_PAGES;
	for (; spec.from < PREFIX; spec.from += spec.n_pages)
		expect_ok(peer, (struct wire_request){ .kind = WIRE_PUBLISH,
						       .publish = { .n = 1,
								    .specs = &spec,
								    .n_tokens = WIRE_MAX_PUBLISH_PAGES,
								    .tokens = tokens } });
	read_prefix(peer);
	expect_ok(peer, (struct wire_request){ .kind = WIRE_ERASE, .erase = { 1, &spec.seq } });
	it_require(wire_peer_pool_entry().n_cached == PREFIX);
}

static void
start_pin_hold(struct wire_peer *peer)
{
	const uint32_t last = CORE_MAX_PIN_PAGES - 1;
	struct wire_request pin = {
		.kind = WIRE_PIN, .pin = { .page = prefix_pages[last], .serial = prefix_serials[last], .seconds = 60 }
	};
	struct seq_start_spec start = { .n_pages = WIRE_MAX_START_PAGES, .n_asked = PREFIX, .tag = "" };
	struct wire_reply reply;

	start.serial = prefix_serials[start.n_pages - 1];
	it_require(call(peer,
			(struct wire_request){
				.kind = WIRE_START,
				.start = { .n = 1, .specs = &start, .n_pages = start.n_pages, .pages = prefix_pages } },
			&reply) == PAGED_OK,
		   "%s", reply.text);
	children[0] = reply.ids.seq[0];
	expect_ok(peer, (struct wire_request){ .kind = WIRE_ERASE, .erase = { 1, children } });
	expect_ok(peer, pin);
	pin.pin.seconds = 0;
	expect_ok(peer, pin);
	it_require(
		call(peer,
		     (struct wire_request){
			     .kind = WIRE_HOLD,
			     .hold = { .n = PAGED_MAX_HOLD_PAGES, .pages = prefix_pages, .serials = prefix_serials } },
		     &reply) == PAGED_OK,
		"%s", reply.text);
	children[0] = reply.ids.seq[0];
	expect_ok(peer, (struct wire_request){ .kind = WIRE_ERASE, .erase = { 1, children } });
}

static void
give_and_adopt(struct wire_peer *peer, struct wire_peer *other)
{
	struct paged_seq_item items[N_CHILDREN];
	struct wire_request adopt = { .kind = WIRE_ADOPT, .adopt = { .n_max = N_CHILDREN } };
	struct wire_reply reply;

	make_children(peer);
	for (uint32_t i = 0; i < N_CHILDREN; i++)
		items[i] = (struct paged_seq_item){ .seq = children[i], .n_tokens = LENGTH };
	it_require(call(peer,
			(struct wire_request){ .kind = WIRE_GIVE,
					       .give = { N_CHILDREN, items, { .timeout_ms = 600000 } } },
			&reply) == PAGED_OK,
		   "%s", reply.text);
	memcpy(adopt.adopt.ticket, reply.ticket.bytes, sizeof(adopt.adopt.ticket));
	it_require(call(other, adopt, &reply) == PAGED_OK && reply.adopted.n == N_CHILDREN, "%s", reply.text);
}

/* What a message can name at most, if the work is not done in steps; PREFIX and LENGTH are more. */
IT_TEST(no_sharing_request_does_more_than_a_message_names)
{
	struct wire_peer peer, other;
	struct wire_reply reply;

	it_daemon_start(&daemon_, configuration, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	make_prefix(&peer);
	start_pin_hold(&peer);
	it_require(most_visited(&peer, "publish") <= WIRE_MAX_PUBLISH_PAGES);
	it_require(most_visited(&peer, "start") == WIRE_MAX_START_PAGES);
	it_require(most_visited(&peer, "pin") <= 2 * CORE_MAX_PIN_PAGES);
	it_require(most_visited(&peer, "hold") <= 2 * PAGED_MAX_HOLD_PAGES);
	it_require(call(&peer, (struct wire_request){ .kind = WIRE_EVICT, .evict = { .n_pages = PREFIX } }, &reply) ==
			   PAGED_OK,
		   "%s", reply.text);
	expect_steps(&peer, "evict");
	give_and_adopt(&peer, &other);
	/* Within a tenant only owners change; tests/core/unit_core_adopt.c has adopts between tenants. */
	it_require(most_visited(&peer, "adopt") <= N_CHILDREN);
	wire_peer_bye(&peer);
	wire_peer_bye(&other);
	it_daemon_stop(&daemon_);
}

/* Requests of the session are served after its long one, in their order; those of others meanwhile. */
IT_TEST(requests_of_the_session_wait)
{
	struct wire_request create = wire_peer_create_request(0, 1, 1);
	struct wire_peer peer, joined, other;
	struct wire_reply reply;
	paged_seq_id ids[2];

	it_daemon_start(&daemon_, configuration, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&joined, WIRE_ROLE_JOIN, peer.welcome.welcome.join_token);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	make_children(&peer);
	wire_peer_send(&peer,
		       &(struct wire_request){ .id = 1001, .kind = WIRE_ERASE, .erase = { N_CHILDREN, children } });
	wire_peer_send(&peer, &(struct wire_request){ .id = 1004, .kind = WIRE_PING });
	create.id = 1002;
	wire_peer_send(&peer, &create);
	wire_peer_send(&peer, &(struct wire_request){ .id = 1003, .kind = WIRE_ERASE, .erase = { 1, &parent } });
	expect_ok(&other, (struct wire_request){ .kind = WIRE_PING });
	expect_ok(&other, wire_peer_create_request(0, 1, 100));
	/* What only reads does not wait, and takes no other request's reply. */
	wire_peer_receive(&peer, &reply);
	it_require(reply.id == 1004 && reply.status == PAGED_OK, "reply to %" PRIu64 ": %s", reply.id, reply.text);
	for (uint64_t id = 1001; id <= 1003; id++) {
		wire_peer_receive(&peer, &reply);
		it_require(reply.id == id && reply.status == PAGED_OK, "reply to %" PRIu64 ": %s", reply.id,
			   reply.text);
		if (reply.kind == WIRE_REPLY_IDS)
			ids[0] = reply.ids.seq[0];
	}
	/* Another member of the session finds what those requests left. */
	expect_ok(&joined, (struct wire_request){ .kind = WIRE_ERASE, .erase = { 1, ids } });
	it_require(wire_peer_pool_entry().n_referenced == 100);
	wire_peer_bye(&joined);
	wire_peer_bye(&peer);
	wire_peer_bye(&other);
	it_require(wire_peer_wait_free(N_PAGES));
	it_daemon_stop(&daemon_);
}

static struct wire_request
erase_request(void)
{
	return (struct wire_request){ .kind = WIRE_ERASE, .erase = { N_CHILDREN, children } };
}

static void
make_nothing(struct wire_peer *peer)
{
	(void)peer;
}

/* Most of the pool. */
static struct wire_request
create_request(void)
{
	return wire_peer_create_request(0, 2, LENGTH);
}

/* What a request is, and what it needs before. */
static const struct {
	void (*prepare)(struct wire_peer *peer);
	struct wire_request (*make)(void);
	const char *kind;
} requests[] = {
	{ make_children, erase_request, "erase" },
	{ make_parent, fork_request, "fork" },
	{ make_nothing, create_request, "create" },
};
#define N_REQUESTS (sizeof(requests) / sizeof(requests[0]))

/* The daemon is stopped until the request and the kick have arrived. */
static void
expect_kicked(size_t which)
{
	struct wire_request request;
	struct wire_peer peer, other;
	struct wire_reply reply;

	it_daemon_start(&daemon_, configuration, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	requests[which].prepare(&peer);
	request = requests[which].make();
	kill(daemon_.pid, SIGSTOP);
	for (request.id = 1001; request.id <= 1002; request.id++)
		wire_peer_send(&peer, &request);
	wire_peer_send(&other, &(struct wire_request){
				       .id = 7, .kind = WIRE_KICK, .kick.session = peer.welcome.welcome.session });
	kill(daemon_.pid, SIGCONT);
	wire_peer_receive(&other, &reply);
	it_require(reply.id == 7 && reply.status == PAGED_OK, "%s", reply.text);
	for (int i = 0; i < 2; i++) {
		wire_peer_receive(&peer, &reply);
		it_require(reply.status == PAGED_ERR_GONE, "%d %s", reply.status, reply.text);
	}
	expect_ok(&other, (struct wire_request){ .kind = WIRE_CHECK });
	wire_peer_close(&peer);
	it_require(call(&other, (struct wire_request){ .kind = WIRE_CHECK }, &reply) == PAGED_OK);
	it_require(reply.check_result.holds == 1, "%s", reply.check_result.text);
	/* What was promised to the request can be had again. */
	expect_ok(&other, wire_peer_create_request(0, 1, LENGTH));
	wire_peer_bye(&other);
	it_daemon_stop(&daemon_);
}

IT_TEST(kicked_in_the_middle)
{
	for (size_t i = 0; i < N_REQUESTS; i++)
		expect_kicked(i);
}

static void
begin_request(int from, int to, void *argument)
{
	size_t which = *(const size_t *)argument;
	struct wire_request request;
	struct wire_reply reply;
	struct wire_peer peer;
	char byte;

	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	requests[which].prepare(&peer);
	request = requests[which].make();
	request.id = 1001;
	wire_peer_send(&peer, &request);
	wire_peer_send(&peer, &(struct wire_request){ .id = 1002, .kind = WIRE_PING });
	/* The request has begun. */
	wire_peer_receive(&peer, &reply);
	it_send(to, "b", 1);
	it_receive(from, &byte, 1);
}

static void
expect_killed(size_t which)
{
	struct wire_reply reply;
	struct it_worker worker;
	struct wire_peer peer;
	char byte;

	it_daemon_start(&daemon_, configuration, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	for (int i = 0; i < 5; i++) {
		it_fork(&worker, begin_request, &which);
		it_receive(worker.from, &byte, 1);
		it_kill(&worker);
		it_require(wire_peer_wait_free(N_PAGES));
		it_require(call(&peer, (struct wire_request){ .kind = WIRE_CHECK }, &reply) == PAGED_OK);
		it_require(reply.check_result.holds == 1, "%s", reply.check_result.text);
	}
	expect_steps(&peer, requests[which].kind);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon_);
}

IT_TEST(killed_in_the_middle)
{
	for (size_t i = 0; i < N_REQUESTS; i++)
		expect_killed(i);
}

IT_MAIN
