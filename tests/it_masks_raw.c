/* SPDX-License-Identifier: Apache-2.0 */
/* Builds that no library would ask for, and what is left of members that ask and go. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/raw.h"
#include "tests/toy.h"

/* Every element is evaluated and next to none is seen: minutes of work over so many query rows. */
static const char endless[] = "(q_idx * kv_idx * 7919 + q_idx) % 1000003 == 1000002 && (q_idx ^ kv_idx) % 9 == 4";
static const uint32_t endless_q = 1u << 28, tokens = TOY_MAX_LENGTH;

static void
toy_start(struct it_daemon *daemon, const char *settings)
{
	char configuration[1024];

	snprintf(configuration, sizeof(configuration), "%s%s", settings, toy_configuration);
	it_daemon_start(daemon, configuration, NULL, NULL);
}

/* Of one sequence, all of its tokens. */
static struct wire_request
order_of(const paged_seq_id *seq, const uint32_t *q_len, const char *text)
{
	return (struct wire_request){ .kind = WIRE_BUILD_MASK,
				      .build_mask = { .n = 1,
						      .seq = seq,
						      .q_len = q_len,
						      .kv_len = &tokens,
						      .q_block = 1u << 12,
						      .kv_block = TOY_PAGE_SIZE,
						      .text = text } };
}

/* One that fits no reply. */
static struct wire_reply
ticket_get(struct raw *raw, const paged_seq_id *seq)
{
	static const uint32_t q_len = 30000;
	static const int64_t q_base = 0;
	struct wire_request request = order_of(seq, &q_len, "kv_idx <= q_idx");
	struct wire_reply reply;

	request.build_mask.q_block = 1;
	request.build_mask.q_base = &q_base;
	it_require(raw_call(raw, &request, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.kind == WIRE_REPLY_MASK && reply.mask.ticket != 0 && reply.mask.image == NULL);
	return reply;
}

static void
fetch(struct raw *raw, uint64_t ticket, struct wire_control_reply *reply, int *fds)
{
	const struct wire_control_request request = { .kind = WIRE_FETCH_MASK, .fetch_mask.ticket = ticket };

	raw_tell_request(raw->control, &request);
	it_require(raw_hear(raw->control, reply, fds));
}

static void
expect_no_ticket(struct raw *raw, uint64_t ticket)
{
	struct wire_control_reply reply;

	fetch(raw, ticket, &reply, NULL);
	it_require(reply.kind == WIRE_REFUSAL && reply.refusal.status == PAGED_ERR_NOENT, "ticket %ju: kind %d",
		   (uintmax_t)ticket, reply.kind);
}

IT_TEST(nobody_changes_what_was_granted)
{
	struct wire_control_reply grant;
	int fds[WIRE_N_POOL_FDS];
	struct wire_reply reply;
	struct it_daemon daemon;
	paged_seq_id seq;
	struct raw raw;
	char byte = 0;

	toy_start(&daemon, "");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	reply = ticket_get(&raw, &seq);
	fetch(&raw, reply.mask.ticket, &grant, fds);
	it_require(grant.kind == WIRE_MASK_GRANT && grant.mask_grant.size == reply.mask.size);
	it_require(lseek(fds[0], 0, SEEK_END) == (off_t)reply.mask.size);
	it_require(pwrite(fds[0], &byte, 1, 0) < 0 && errno == EPERM, "%m");
	it_require(ftruncate(fds[0], 0) < 0 && errno == EPERM, "%m");
	it_require(ftruncate(fds[0], 1 << 24) < 0 && errno == EPERM, "%m");
	it_require(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED && errno == EPERM);
	it_require(fcntl(fds[0], F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 && errno == EPERM, "%m");
	close(fds[0]);
	raw_bye(&raw);
	it_daemon_stop(&daemon);
}

/* A ticket is for its member, once, and the last two are kept. */
IT_TEST(wild_tickets)
{
	struct wire_control_reply grant;
	struct it_daemon daemon;
	struct raw raw, other;
	uint64_t ticket[3];
	paged_seq_id seq;

	toy_start(&daemon, "");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	raw_attach(&other, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	expect_no_ticket(&raw, 0);
	expect_no_ticket(&raw, 1);
	expect_no_ticket(&raw, UINT64_MAX);
	for (int i = 0; i < 3; i++)
		ticket[i] = ticket_get(&raw, &seq).mask.ticket;
	expect_no_ticket(&raw, ticket[0]);
	expect_no_ticket(&other, ticket[2]);
	fetch(&raw, ticket[2], &grant, NULL);
	it_require(grant.kind == WIRE_MASK_GRANT);
	expect_no_ticket(&raw, ticket[2]);
	fetch(&raw, ticket[1], &grant, NULL);
	it_require(grant.kind == WIRE_MASK_GRANT);
	raw_bye(&other);
	raw_bye(&raw);
	it_daemon_stop(&daemon);
}

/* Nobody keeps others from theirs by not coming for his. */
IT_TEST(the_oldest_ticket_makes_way)
{
	struct wire_control_reply grant;
	struct it_daemon daemon;
	uint64_t ticket[5];
	paged_seq_id seq;
	struct raw raw[5];

	toy_start(&daemon, "mask-size = 5MiB\n");
	for (int i = 0; i < 5; i++)
		raw_attach(&raw[i], WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw[0], tokens);
	for (int i = 0; i < 5; i++) {
		struct wire_reply reply = ticket_get(&raw[i], &seq);

		it_require(5 * reply.mask.size > 4 * (5u << 20), "%ju bytes", (uintmax_t)reply.mask.size);
		ticket[i] = reply.mask.ticket;
	}
	expect_no_ticket(&raw[0], ticket[0]);
	for (int i = 4; i > 1; i--) {
		fetch(&raw[i], ticket[i], &grant, NULL);
		it_require(grant.kind == WIRE_MASK_GRANT, "ticket %d", i);
	}
	for (int i = 5; i-- > 0;)
		raw_bye(&raw[i]);
	it_daemon_stop(&daemon);
}

struct facts {
	pid_t pid;
	unsigned int n_fds;
};

static bool
fds_are_back(void *argument)
{
	const struct facts *facts = argument;

	return it_count_fds(facts->pid) <= facts->n_fds;
}

static void
build_and_hang(int from, int to, void *argument)
{
	struct wire_reply reply;
	struct wire_request request;
	paged_seq_id seq;
	struct raw raw;
	char done = 0;

	(void)from, (void)argument;
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	ticket_get(&raw, &seq);
	request = order_of(&seq, &endless_q, endless);
	it_require(!raw_ask(&raw, &request, &reply, 0));
	it_require(!raw_ask(&raw, &request, &reply, 20));
	it_say(to, &done, 1);
	for (;;)
		pause();
}

/* Killed with a mask that waits to be fetched, one that is being built and one that waits to be. */
IT_TEST(killed_while_it_builds)
{
	struct it_daemon daemon;
	struct it_worker worker;
	unsigned long kib = 0;
	struct facts facts;
	struct toy toy;
	char done;

	toy_start(&daemon, "mask-time = 60s\n");
	toy_open(&toy, NULL, 0);
	facts = (struct facts){ daemon.pid, it_count_fds(daemon.pid) };
	for (int i = 0; i < 12; i++) {
		it_fork(&worker, build_and_hang, NULL);
		it_hear(worker.from, &done, 1);
		it_kill(&worker);
		it_require(it_wait(fds_are_back, &facts, 5000), "%u descriptors, %u before", it_count_fds(daemon.pid),
			   facts.n_fds);
		if (i == 3)
			kib = it_private_kib(daemon.pid);
	}
	if (!it_sanitized())
		it_require(it_private_kib(daemon.pid) < kib + 2048, "%lu KiB, %lu before", it_private_kib(daemon.pid),
			   kib);
	toy_check(&toy);
	toy_close(&toy);
	it_daemon_stop(&daemon);
}

/* The sessions share one thread and a bounded queue; a session has few places in it. */
IT_TEST(too_many_builds)
{
	static const uint32_t one = 1;
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	struct raw raw, other;
	paged_seq_id seq;

	toy_start(&daemon, "mask-time = 60s\n");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	raw_attach(&other, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	request = order_of(&seq, &endless_q, endless);
	for (int i = 0; i < 4; i++)
		it_require(!raw_ask(&raw, &request, &reply, 0));
	it_require(raw_call(&raw, &request, &reply) == PAGED_ERR_AGAIN, "%s", reply.text);
	it_require(strstr(reply.text, "4 builds of session 1 wait, the most are 4") != NULL, "%s", reply.text);
	request = (struct wire_request){ .kind = WIRE_PING };
	it_require(raw_call(&raw, &request, &reply) == PAGED_OK);
	/* Another session's waits behind the one that runs, until it goes with its member. */
	request = order_of(&seq, &one, "causal");
	it_require(!raw_ask(&other, &request, &reply, 50));
	raw_drop(&raw);
	raw_hear_late(&other, &reply);
	it_require(reply.id == other.last_id, "%s", reply.text);
	raw_bye(&other);
	it_daemon_stop(&daemon);
}

/* Whoever asks for much at once waits for itself: another's build is not the last. */
IT_TEST(sessions_take_turns)
{
	static const uint32_t one = 1;
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	struct raw raw, other;
	uint64_t begun_ms, took_ms;
	paged_seq_id seq;

	toy_start(&daemon, "mask-time = 1500ms\n");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	raw_attach(&other, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	request = order_of(&seq, &endless_q, endless);
	for (int i = 0; i < 4; i++)
		it_require(!raw_ask(&raw, &request, &reply, 0));
	request = order_of(&seq, &one, "causal");
	begun_ms = it_now_ms();
	it_require(raw_call(&other, &request, &reply) == PAGED_OK, "%s", reply.text);
	took_ms = it_now_ms() - begun_ms;
	/* Behind the one that ran and, at most, the next: not six seconds. */
	it_require(took_ms < 5000, "%ju ms", (uintmax_t)took_ms);
	raw_drop(&raw);
	raw_bye(&other);
	it_daemon_stop(&daemon);
}

/* Nothing that runs or waits keeps a daemon from its end. */
IT_TEST(the_daemon_stops_in_the_middle)
{
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	paged_seq_id seq;
	struct raw raw;

	toy_start(&daemon, "mask-time = 60s\nstop-timeout = 300ms\n");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	request = order_of(&seq, &endless_q, endless);
	for (int i = 0; i < 3; i++)
		it_require(!raw_ask(&raw, &request, &reply, 10));
	it_daemon_stop(&daemon);
	raw_drop(&raw);
}

/* A single block, whose every element counts: mask-time ends it, and so does the daemon's end. */
IT_TEST(a_block_without_end)
{
	static const char all_seen[] = "((q_idx ^ kv_idx) & 3) + (~(q_idx ^ kv_idx) & 3) == 3";
	static const uint32_t q_len = 1u << 28;
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	paged_seq_id seq;
	struct raw raw;

	toy_start(&daemon, "mask-time = 200ms\n");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	request = order_of(&seq, &q_len, all_seen);
	request.build_mask.q_block = q_len;
	request.build_mask.kv_block = tokens;
	it_require(raw_ask(&raw, &request, &reply, 5000), "no answer");
	it_require(reply.status == PAGED_ERR_LIMIT && strstr(reply.text, "mask-time") != NULL, "%s", reply.text);
	it_require(!raw_ask(&raw, &request, &reply, 20));
	raw_bye(&raw);
	it_daemon_stop(&daemon);
}

IT_TEST(a_stopping_daemon_builds_nothing_new)
{
	static const uint32_t one = 1;
	struct wire_control_reply notice;
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	paged_seq_id seq;
	struct raw raw;

	toy_start(&daemon, "");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	it_require(kill(daemon.pid, SIGTERM) == 0);
	it_require(raw_hear(raw.control, &notice, NULL) && notice.kind == WIRE_NOTICE);
	request = order_of(&seq, &one, "causal");
	it_require(raw_call(&raw, &request, &reply) == PAGED_ERR_STOPPING, "%s", reply.text);
	raw_bye(&raw);
	it_daemon_stop(&daemon);
}

static void
expect(struct raw *raw, struct wire_request *request, enum paged_status status, const char *part)
{
	struct wire_reply reply;

	it_require(raw_call(raw, request, &reply) == status, "%s: status %d: %s", part, reply.status, reply.text);
	it_require(strstr(reply.text, part) != NULL, "no %s in: %s", part, reply.text);
}

IT_TEST(orders_that_cannot_be)
{
	static const uint32_t one = 1, all = UINT32_MAX;
	static const int64_t far = INT64_MAX;
	struct wire_mask_name twice[2] = { { .name = "x", .dtype = PAGED_I32 }, { .name = "x", .dtype = PAGED_I32 } };
	struct wire_mask_name odd = { .name = "x", .dtype = 77 };
	struct wire_request request;
	struct wire_reply reply;
	struct it_daemon daemon;
	paged_seq_id seq, none = 0;
	struct raw raw;

	toy_start(&daemon, "");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	seq = raw_reserve(&raw, tokens);
	request = order_of(&seq, &one, "causal");
	request.build_mask.pool = 9;
	expect(&raw, &request, PAGED_ERR_NOENT, "no pool number 9");
	request = order_of(&seq, &one, "kv_idx <= ");
	expect(&raw, &request, PAGED_ERR_INVALID, "expected");
	request = order_of(&seq, &one, "score > 0.0");
	expect(&raw, &request, PAGED_ERR_INVALID, "score");
	request = order_of(&seq, &one, "");
	expect(&raw, &request, PAGED_ERR_INVALID, "");
	request = order_of(&none, &one, "causal");
	expect(&raw, &request, PAGED_ERR_INVALID, "row 0");
	request = order_of(&seq, &one, "causal");
	request.build_mask.q_block = 0;
	expect(&raw, &request, PAGED_ERR_INVALID, "none may be 0");
	request = order_of(&seq, &one, "causal");
	request.build_mask.kv_block = all;
	expect(&raw, &request, PAGED_ERR_INVALID, "divides");
	request = order_of(&seq, &all, "causal");
	request.build_mask.kv_len = &all;
	expect(&raw, &request, PAGED_ERR_LIMIT, "elements");
	request = order_of(&seq, &one, "causal");
	request.build_mask.kv_len = &all;
	expect(&raw, &request, PAGED_ERR_LIMIT, "32 bits");
	request = order_of(&seq, &one, "causal");
	request.build_mask.q_base = &far;
	expect(&raw, &request, PAGED_ERR_LIMIT, "32 bits");
	/* Nobody builds it without this limit. */
	it_require(raw_call(&raw, &request, &reply) == PAGED_ERR_LIMIT);
	it_require(strstr(reply.text, "paged_block_mask_create()") == NULL, "%s", reply.text);
	request = order_of(&seq, &one, "causal");
	request.build_mask.n_heads = all;
	expect(&raw, &request, PAGED_ERR_LIMIT, "paged_block_mask_create()");
	request = order_of(&seq, &one, "x < kv_idx");
	request.build_mask.names = twice;
	request.build_mask.n_names = 2;
	expect(&raw, &request, PAGED_ERR_INVALID, "x");
	request.build_mask.names = &odd;
	request.build_mask.n_names = 1;
	expect(&raw, &request, PAGED_ERR_INVALID, "x");
	raw_bye(&raw);
	it_daemon_stop(&daemon);
}

static struct wire_request
part_of(const char *name, uint64_t offset, uint32_t size)
{
	static const uint8_t data[64];
	struct wire_request request = {
		.kind = WIRE_PUT_ARRAY,
		.put_array = { .dtype = PAGED_U8,
			       .n_dims = 1,
			       .extents = { 64 },
			       .offset = offset,
			       .size = size,
			       .data = data },
	};

	strcpy(request.put_array.name, name);
	return request;
}

IT_TEST(arrays_that_cannot_be)
{
	struct wire_request request;
	struct it_daemon daemon;
	struct raw raw, rank;

	toy_start(&daemon, "");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	raw_attach(&rank, WIRE_ROLE_JOIN, raw.welcome.welcome.join_token);
	request = part_of("doc", 8, 8);
	expect(&raw, &request, PAGED_ERR_AGAIN, "none that was begun");
	request = part_of("doc", 0, 32);
	expect(&raw, &request, PAGED_OK, "");
	request = part_of("doc", 40, 8);
	expect(&raw, &request, PAGED_ERR_INVALID, "the next is at 32");
	request = part_of("doc", UINT64_MAX, 8);
	expect(&raw, &request, PAGED_ERR_INVALID, "doc");
	request = part_of("doc", 32, 32);
	expect(&rank, &request, PAGED_ERR_AGAIN, "none that was begun");
	expect(&raw, &request, PAGED_OK, "");
	request = part_of("7", 0, 8);
	expect(&raw, &request, PAGED_ERR_INVALID, "a name is");
	request = part_of("doc", 0, 8);
	request.put_array.dtype = UINT32_MAX;
	expect(&raw, &request, PAGED_ERR_INVALID, "no dtype");
	request = part_of("huge", 0, 8);
	request.put_array.n_dims = 4;
	memset(request.put_array.extents, 0xff, sizeof(request.put_array.extents));
	expect(&raw, &request, PAGED_ERR_LIMIT, "2^64");
	request.put_array.extents[1] = request.put_array.extents[2] = request.put_array.extents[3] = 1;
	expect(&raw, &request, PAGED_ERR_LIMIT, "4294967295 bytes");
	request = (struct wire_request){ .kind = WIRE_DROP_ARRAY, .drop_array.name = "none" };
	expect(&raw, &request, PAGED_ERR_NOENT, "no array none");
	raw_bye(&rank);
	raw_bye(&raw);
	it_daemon_stop(&daemon);
}

/* A kicked session's build is answered, and it may ask for no other. */
IT_TEST(the_session_ends_meanwhile)
{
	struct wire_request request, kick = { .kind = WIRE_KICK };
	struct it_daemon daemon;
	struct wire_reply reply;
	struct raw raw, admin;
	paged_seq_id seq;

	toy_start(&daemon, "mask-time = 60s\n");
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	raw_attach(&admin, WIRE_ROLE_OBSERVER, NULL);
	seq = raw_reserve(&raw, tokens);
	request = part_of("doc", 0, 64);
	expect(&raw, &request, PAGED_OK, "");
	request = order_of(&seq, &endless_q, endless);
	it_require(!raw_ask(&raw, &request, &reply, 50));
	kick.kick.session = raw.welcome.welcome.session;
	expect(&admin, &kick, PAGED_OK, "");
	raw_hear_late(&raw, &reply);
	it_require(reply.id == raw.last_id && reply.status == PAGED_ERR_GONE, "%d: %s", reply.status, reply.text);
	request = part_of("doc", 0, 64);
	expect(&raw, &request, PAGED_ERR_GONE, "has ended");
	expect(&admin, &request, PAGED_ERR_PERM, "observer");
	request = order_of(&seq, &endless_q, endless);
	expect(&admin, &request, PAGED_ERR_PERM, "observer");
	raw_bye(&admin);
	raw_drop(&raw);
	it_daemon_stop(&daemon);
}
