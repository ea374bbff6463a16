/* SPDX-License-Identifier: Apache-2.0 */
/* Mask requests that the library never sends, and cleanup after members that leave during a build. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/wire_peer.h"
#include "tests/support/worker_fixture.h"

/* Every element is evaluated and almost none is visible: minutes of work over this many query rows. */
static const char slow_mask_mod[] = "(q_idx * kv_idx * 7919 + q_idx) % 1000003 == 1000002 && (q_idx ^ kv_idx) % 9 == 4";
static const uint32_t slow_mask_q_len = 1u << 28, tokens = WORKER_MAX_LENGTH;

/* A slow machine's builds end in time, and those that are slow on purpose last until they are cancelled. */
#define LONG_MASK_TIME "mask-time = 60min\n"

static void
masks_daemon_start(struct it_daemon *daemon, const char *settings)
{
	char configuration[1024];

	snprintf(configuration, sizeof(configuration), "%s%s", settings, worker_pool_config);
	it_daemon_start(daemon, configuration, NULL, NULL);
}

/* A mask of one row over 128 keys. */
static struct wire_request
build_request(const uint32_t *q_len, const char *text)
{
	return (struct wire_request){ .kind = WIRE_BUILD_MASK,
				      .build_mask = { .n_rows = 1,
						      .q_len = q_len,
						      .kv_len = &tokens,
						      .q_block = 1u << 12,
						      .kv_block = WORKER_PAGE_SIZE,
						      .text = text } };
}

/* A part of a mask of 30000 lists, each of one run: every block is partial. */
static struct wire_reply
get_part(struct wire_peer *peer, uint64_t first_list, uint32_t first_block)
{
	static const uint32_t q_len = 30000;
	struct wire_request request = build_request(&q_len, "kv_idx % 2 == 0");
	struct wire_reply reply;

	request.build_mask.q_block = 1;
	request.build_mask.first_list = first_list;
	request.build_mask.first_block = first_block;
	it_require(wire_peer_call(peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.kind == WIRE_REPLY_MASK && !reply.mask.list_continues && reply.mask.arrays == 0);
	return reply;
}

static void
expect_lists(struct wire_peer *peer, uint64_t first_list, uint32_t first_block, uint32_t n)
{
	struct wire_reply reply = get_part(peer, first_list, first_block);

	it_require(reply.mask.n == n, "%u numbers, not %u", reply.mask.n, n);
	for (uint32_t i = first_block != 0 ? 3 : 0; i < n; i += 3)
		it_require(reply.mask.values[i] == 1 && reply.mask.values[i + 1] == 0 &&
				   reply.mask.values[i + 2] == 2 * tokens / WORKER_PAGE_SIZE,
			   "%u, %u, %u", reply.mask.values[i], reply.mask.values[i + 1], reply.mask.values[i + 2]);
}

/* The daemon keeps no state between parts: any member may request any part, in any order. */
IT_TEST(parts_may_be_requested_in_any_order)
{
	enum { FULL = MASK_PART_MAX / 3 * 3 };
	struct it_daemon daemon;
	struct wire_peer peer, other;
	struct wire_reply reply;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	expect_lists(&peer, 20000, 0, FULL);
	expect_lists(&peer, 0, 0, FULL);
	expect_lists(&other, 7, 0, FULL);
	expect_lists(&peer, 29999, 0, 3);
	expect_lists(&other, 30000, 0, 0);
	expect_lists(&peer, UINT64_MAX, UINT32_MAX, 0);
	/* From the middle of a list, from its end, and from past its end. */
	reply = get_part(&peer, 29998, 5);
	it_require(reply.mask.n == 6 && reply.mask.values[2] == 2 * (tokens / WORKER_PAGE_SIZE - 5));
	reply = get_part(&peer, 29999, tokens / WORKER_PAGE_SIZE);
	it_require(reply.mask.n == 1 && reply.mask.values[0] == 0);
	reply = get_part(&peer, 29999, UINT32_MAX);
	it_require(reply.mask.n == 1 && reply.mask.values[0] == 0);
	wire_peer_bye(&other);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon);
}

struct build_facts {
	pid_t pid;
	unsigned int n_fds;
};

static bool
fds_are_at_most(void *argument)
{
	const struct build_facts *build_facts = argument;

	return it_count_fds(build_facts->pid) <= build_facts->n_fds;
}

static void
start_slow_build(int from, int to, void *argument)
{
	struct wire_reply reply;
	struct wire_request request;
	struct wire_peer peer;
	char done = 0;

	(void)from, (void)argument;
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	get_part(&peer, 0, 0);
	request = build_request(&slow_mask_q_len, slow_mask_mod);
	it_require(!wire_peer_try_call(&peer, &request, &reply, 0));
	it_require(!wire_peer_try_call(&peer, &request, &reply, 20));
	it_send(to, &done, 1);
	for (;;)
		pause();
}

/* The member is killed with one build running and one queued. */
IT_TEST(kill_during_a_build_cancels_it)
{
	struct it_daemon daemon;
	struct it_worker child;
	unsigned long kib = 0;
	struct build_facts build_facts;
	struct worker_fixture worker;
	char done;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	build_facts = (struct build_facts){ daemon.pid, it_count_fds(daemon.pid) };
	for (int i = 0; i < 12; i++) {
		it_fork(&child, start_slow_build, NULL);
		it_receive(child.from, &done, 1);
		it_kill(&child);
		it_require(it_wait(fds_are_at_most, &build_facts), "%u descriptors, %u before",
			   it_count_fds(daemon.pid), build_facts.n_fds);
		if (i == 3)
			kib = it_private_kib(daemon.pid);
	}
	if (!it_sanitized())
		it_require(it_private_kib(daemon.pid) < kib + 2048, "%lu KiB, %lu before", it_private_kib(daemon.pid),
			   kib);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* Sessions share one thread and a bounded queue; each session may queue few builds. */
IT_TEST(queued_builds_are_limited)
{
	static const uint32_t one = 1;
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	struct wire_peer peer, other;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	request = build_request(&slow_mask_q_len, slow_mask_mod);
	for (int i = 0; i < 4; i++)
		it_require(!wire_peer_try_call(&peer, &request, &reply, 0));
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_AGAIN, "%s", reply.text);
	it_require(strstr(reply.text, "session 1 has 4 builds waiting, at most 4 may") != NULL, "%s", reply.text);
	/* The daemon replies to others, and to the session itself. */
	for (int i = 0; i < 20; i++) {
		request = (struct wire_request){ .kind = WIRE_PING };
		it_require(wire_peer_call(i % 2 == 0 ? &peer : &other, &request, &reply) == PAGED_OK);
	}
	/* Another session's build is queued until its member ends. */
	request = build_request(&one, "causal");
	it_require(!wire_peer_try_call(&other, &request, &reply, 50));
	wire_peer_close(&peer);
	wire_peer_receive(&other, &reply);
	it_require(reply.id == other.last_id, "%s", reply.text);
	wire_peer_bye(&other);
	it_daemon_stop(&daemon);
}

/* Queue a build behind one that lasts; the daemon has it when it replies to the ping. */
static void
queue_build(struct wire_peer *peer, const uint32_t *q_len, const char *text)
{
	struct wire_request request = build_request(q_len, text), ping = { .kind = WIRE_PING };
	struct wire_reply reply;

	it_require(!wire_peer_try_call(peer, &request, &reply, 0));
	it_require(wire_peer_call(peer, &ping, &reply) == PAGED_OK);
}

/* A session with many queued builds does not delay another session's build to the end. */
IT_TEST(builds_are_scheduled_by_session)
{
	static const uint32_t one = 1;
	struct wire_peer starter, joined[4], other;
	struct it_daemon daemon;
	struct wire_reply reply;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	wire_peer_attach(&starter, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	for (int i = 0; i < 4; i++) {
		wire_peer_attach(&joined[i], WIRE_ROLE_JOIN, starter.welcome.welcome.join_token);
		queue_build(&joined[i], &slow_mask_q_len, slow_mask_mod);
	}
	queue_build(&other, &one, "causal");
	/* A member that leaves cancels its build. */
	for (int i = 0; i < 2; i++)
		wire_peer_bye(&joined[i]);
	/* It waits for the running build and at most one more, not for the other two. */
	wire_peer_receive(&other, &reply);
	it_require(reply.status == PAGED_OK, "%s", reply.text);
	for (int i = 2; i < 4; i++)
		wire_peer_close(&joined[i]);
	wire_peer_close(&starter);
	wire_peer_bye(&other);
	it_daemon_stop(&daemon);
}

/* Running and queued builds do not delay the daemon's stop. */
IT_TEST(stop_cancels_builds)
{
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	struct wire_peer peer;

	masks_daemon_start(&daemon, LONG_MASK_TIME "stop-timeout = 300ms\n");
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	request = build_request(&slow_mask_q_len, slow_mask_mod);
	for (int i = 0; i < 3; i++)
		it_require(!wire_peer_try_call(&peer, &request, &reply, 10));
	it_daemon_stop(&daemon);
	wire_peer_close(&peer);
}

/* A single block is cancelled by mask-time, and by the daemon's stop. */
IT_TEST(mask_time_ends_a_slow_block)
{
	static const char all_seen[] = "((q_idx ^ kv_idx) & 3) + (~(q_idx ^ kv_idx) & 3) == 3";
	static const uint32_t q_len = 1u << 28;
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	struct wire_peer peer;

	masks_daemon_start(&daemon, "mask-time = 200ms\n");
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	request = build_request(&q_len, all_seen);
	request.build_mask.q_block = q_len;
	request.build_mask.kv_block = tokens;
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_LIMIT &&
			   strstr(reply.text, "mask-time") != NULL,
		   "%s", reply.text);
	it_require(!wire_peer_try_call(&peer, &request, &reply, 20));
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon);
}

IT_TEST(builds_are_refused_while_stopping)
{
	static const uint32_t one = 1;
	struct wire_control_reply notice;
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_reply reply;
	struct wire_peer peer;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	it_require(kill(daemon.pid, SIGTERM) == 0);
	it_require(wire_peer_receive_control(peer.control, &notice, NULL) && notice.kind == WIRE_NOTICE);
	request = build_request(&one, "causal");
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_STOPPING, "%s", reply.text);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon);
}

static void
expect_reply(struct wire_peer *peer, struct wire_request *request, enum paged_status status, const char *part)
{
	struct wire_reply reply;

	it_require(wire_peer_call(peer, request, &reply) == status, "%s: status %d: %s", part, reply.status,
		   reply.text);
	it_require(strstr(reply.text, part) != NULL, "no %s in: %s", part, reply.text);
}

IT_TEST(invalid_mask_requests_are_refused)
{
	static const uint32_t one = 1, all = UINT32_MAX;
	static const int64_t far = INT64_MAX;
	struct mask_request_name twice[2] = { { .name = "x", .dtype = PAGED_I32 },
					      { .name = "x", .dtype = PAGED_I32 } };
	struct mask_request_name odd = { .name = "x", .dtype = 77 };
	struct wire_request request;
	struct wire_reply reply;
	struct it_daemon daemon;
	struct wire_peer peer;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	request = build_request(&one, "causal");
	request.build_mask.n_rows = 0;
	expect_reply(&peer, &request, PAGED_ERR_LIMIT, "BuildMask.q_len has 0 entries; it may have 1 to 2048");
	request = build_request(&one, "kv_idx <= ");
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "expected");
	request = build_request(&one, "score > 0.0");
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "score");
	request = build_request(&one, "");
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "");
	request = build_request(&one, "causal");
	request.build_mask.q_block = 0;
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "none may be 0");
	request = build_request(&one, "causal");
	request.build_mask.kv_block = 0;
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "none may be 0");
	request = build_request(&all, "causal");
	request.build_mask.kv_len = &all;
	expect_reply(&peer, &request, PAGED_ERR_LIMIT, "elements");
	request = build_request(&one, "causal");
	request.build_mask.kv_len = &all;
	expect_reply(&peer, &request, PAGED_ERR_LIMIT, "32 bits");
	request = build_request(&one, "causal");
	request.build_mask.q_base = &far;
	expect_reply(&peer, &request, PAGED_ERR_LIMIT, "32 bits");
	request = build_request(&one, "causal");
	request.build_mask.b = &all;
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "b is 4294967295; it is at most 2^31 - 1");
	request = build_request(&one, "causal");
	request.build_mask.kv_first = &all;
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "kv_first 4294967295 exceeds its kv_len 1");
	request = build_request(&one, "causal");
	request.build_mask.q_base = &far;
	/* Without this limit the build would run. */
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_LIMIT);
	it_require(strstr(reply.text, "a mask that is not remote") == NULL, "%s", reply.text);
	request = build_request(&one, "causal");
	request.build_mask.n_heads = all;
	expect_reply(&peer, &request, PAGED_ERR_LIMIT, "a mask that is not remote");
	request = build_request(&one, "x < kv_idx");
	request.build_mask.names = twice;
	request.build_mask.n_names = 2;
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "x");
	request.build_mask.names = &odd;
	request.build_mask.n_names = 1;
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "x");
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon);
}

static struct wire_request
array_chunk(const char *name, uint64_t offset, uint32_t size)
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

IT_TEST(invalid_uploads_are_refused)
{
	struct wire_request request;
	struct it_daemon daemon;
	struct wire_peer peer, rank;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&rank, WIRE_ROLE_JOIN, peer.welcome.welcome.join_token);
	request = array_chunk("doc", 8, 8);
	expect_reply(&peer, &request, PAGED_ERR_AGAIN, "an upload that was not begun");
	request = array_chunk("doc", 0, 32);
	expect_reply(&peer, &request, PAGED_OK, "");
	request = array_chunk("doc", 40, 8);
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "the next is at 32");
	request = array_chunk("doc", UINT64_MAX, 8);
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "doc");
	request = array_chunk("doc", 32, 32);
	expect_reply(&rank, &request, PAGED_ERR_AGAIN, "an upload that was not begun");
	expect_reply(&peer, &request, PAGED_OK, "");
	request = array_chunk("7", 0, 8);
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "a name is");
	request = array_chunk("doc", 0, 8);
	request.put_array.dtype = UINT32_MAX;
	expect_reply(&peer, &request, PAGED_ERR_INVALID, "no dtype");
	request = array_chunk("huge", 0, 8);
	request.put_array.n_dims = 4;
	memset(request.put_array.extents, 0xff, sizeof(request.put_array.extents));
	expect_reply(&peer, &request, PAGED_ERR_LIMIT, "2^64");
	request.put_array.extents[1] = request.put_array.extents[2] = request.put_array.extents[3] = 1;
	expect_reply(&peer, &request, PAGED_ERR_LIMIT, "4294967295 bytes");
	request = (struct wire_request){ .kind = WIRE_DROP_ARRAY, .drop_array.name = "none" };
	expect_reply(&peer, &request, PAGED_ERR_NOENT, "no array none");
	wire_peer_bye(&rank);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon);
}

/* The build of a kicked session gets a reply, and new builds are refused. */
IT_TEST(kick_cancels_builds)
{
	struct wire_request request, kick = { .kind = WIRE_KICK };
	struct it_daemon daemon;
	struct wire_reply reply;
	struct wire_peer peer, admin;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&admin, WIRE_ROLE_OBSERVER, NULL);
	request = array_chunk("doc", 0, 64);
	expect_reply(&peer, &request, PAGED_OK, "");
	request = build_request(&slow_mask_q_len, slow_mask_mod);
	it_require(!wire_peer_try_call(&peer, &request, &reply, 50));
	kick.kick.session = peer.welcome.welcome.session;
	expect_reply(&admin, &kick, PAGED_OK, "");
	wire_peer_receive(&peer, &reply);
	it_require(reply.id == peer.last_id && reply.status == PAGED_ERR_GONE, "%d: %s", reply.status, reply.text);
	request = array_chunk("doc", 0, 64);
	expect_reply(&peer, &request, PAGED_ERR_GONE, "has ended");
	expect_reply(&admin, &request, PAGED_ERR_PERM, "observer");
	request = build_request(&slow_mask_q_len, slow_mask_mod);
	expect_reply(&admin, &request, PAGED_ERR_PERM, "observer");
	wire_peer_bye(&admin);
	wire_peer_close(&peer);
	it_daemon_stop(&daemon);
}

IT_MAIN
