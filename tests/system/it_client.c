/* SPDX-License-Identifier: Apache-2.0 */
/* The client library and pagedctl against a real daemon. */
#include "config.h"

#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/pagedclient.h"
#include "tests/support/harness.h"
#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

static const char configuration[] = "pool small {\n"
				    "    layers = 2   kv-heads = 2   head-dim = 8   dtype = f32\n"
				    "    page-size = 4   pages = 512   sequences = 400   max-length = 1200\n"
				    "}\n"
				    "pool other {\n"
				    "    layers = 1   kv-heads = 1   head-dim = 8   dtype = f16\n"
				    "    page-size = 16   pages = 64   sequences = 8   max-length = 256\n"
				    "}\n";

static struct it_daemon daemon_;
static struct paged_client *client;
static struct paged_pool *pool;

#define client_ok(call)                                                                                            \
	do {                                                                                                       \
		enum paged_status status_ = (call);                                                                \
		it_require(status_ == PAGED_OK, "%s: %s", paged_status_name(status_), paged_client_error(client)); \
	} while (0)

#define client_expect(call, wanted)                                                                                \
	do {                                                                                                       \
		enum paged_status status_ = (call);                                                                \
		it_require(status_ == (wanted), "%s: %s", paged_status_name(status_), paged_client_error(client)); \
	} while (0)

static void
client_attach(const struct paged_client_params *params)
{
	client_ok(paged_client_open(NULL, params, &client));
	client_ok(paged_pool_open(client, "small", &pool));
}

static void
daemon_and_client_start(const struct paged_client_params *params)
{
	it_daemon_start(&daemon_, configuration, NULL, NULL);
	client_attach(params);
}

static void
daemon_and_client_stop(void)
{
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

IT_TEST(open_without_daemon_fails)
{
	client_expect(paged_client_open("/nonexistent", NULL, &client), PAGED_ERR_NO_DAEMON);
	it_require(strcmp(paged_client_error(client), "no daemon at /nonexistent: is pagedd running?") == 0, "%s",
		   paged_client_error(client));
	it_require(paged_client_fd(client) == -1 && paged_client_session(client) == 0);
	paged_client_close(client);
}

IT_TEST(sequence_calls)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_pool_info geometry = { .struct_size = sizeof(geometry) };
	struct paged_pool *other;
	uint32_t tokens[300], pages[2];
	paged_seq_id ids[300], elsewhere;

	daemon_and_client_start(NULL);
	it_require(paged_client_session(client) != 0 && strlen(paged_client_join_token(client)) == 32);
	client_expect(paged_pool_open(client, "large", &other), PAGED_ERR_NOENT);
	it_require(strstr(paged_client_error(client), "small") != NULL, "%s", paged_client_error(client));
	client_ok(paged_pool_open(client, "other", &other));
	client_ok(paged_pool_get_info(pool, &geometry));
	it_require(geometry.n_pages == 512 && geometry.max_length == 1200 && geometry.n_slots == 400);
	client_ok(seqs_create(client, pool, 300, ids));
	for (unsigned int i = 0; i < 300; i++)
		tokens[i] = 5;
	client_expect(seqs_reserve(client, 300, ids, tokens), PAGED_ERR_FULL);
	client_ok(seqs_reserve(client, 200, ids, tokens));
	client_ok(paged_seq_read(pool, ids[199], &info, pages, 2));
	it_require(info.capacity == 8 && info.n_pages == 2 && info.owner == paged_client_session(client));
	client_ok(seqs_create(client, other, 1, &elsewhere));
	client_ok(paged_seq_reserve(
		client, 2,
		(struct paged_seq_item[]){ { .seq = ids[0], .n_tokens = 9 }, { .seq = elsewhere, .n_tokens = 17 } }));
	tokens[0] = 4;
	client_ok(seqs_truncate(client, 1, ids, tokens));
	client_ok(paged_seq_erase(client, 300, ids));
	client_expect(paged_seq_read(pool, ids[0], NULL, NULL, 0), PAGED_ERR_STALE);
	client_expect(paged_seq_erase(client, 1, ids), PAGED_ERR_STALE);
	client_ok(paged_client_dispatch(client));
	daemon_and_client_stop();
}

IT_TEST(lists_span_several_replies)
{
	static paged_seq_id ids[399];
	struct paged_seq_entry *list, entry;
	uint32_t tokens = 1200, *pages, row[300];
	struct paged_check_result here = { .struct_size = sizeof(here) }, there = { .struct_size = sizeof(there) };
	size_t n;

	daemon_and_client_start(NULL);
	client_ok(seqs_create(client, pool, 399, ids));
	client_ok(paged_admin_sequences(client, "small", sizeof(*list), &list, &n));
	it_require(n == 399);
	for (size_t i = 0; i < n; i++)
		it_require(list[i].seq == ids[i] && list[i].pid == (uint32_t)getpid());
	paged_free(list);
	client_ok(seqs_reserve(client, 1, &ids[7], &tokens));
	client_ok(paged_admin_table(client, ids[7], sizeof(entry), &entry, &pages, &n));
	client_ok(paged_seq_read(pool, ids[7], NULL, row, 300));
	it_require(n == 300 && memcmp(pages, row, sizeof(row)) == 0);
	paged_free(pages);
	client_ok(paged_admin_check(client, "small", &there));
	client_ok(paged_pool_check(pool, &here));
	it_require(here.holds && there.holds && here.n_free == 212 && there.n_free == 212);
	client_expect(paged_admin_check(client, "large", &there), PAGED_ERR_NOENT);
	daemon_and_client_stop();
}

/*
 * Decoding 1,000 tokens of one row makes about one request per reserve_ahead tokens, and one more if the daemon is too
 * slow for a reserve ahead to be there when it is needed.
 */
IT_TEST(reserve_ahead_bounds_requests)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .reserve_ahead = 64 };
	struct paged_batch_row row = { .q_len = 1 };
	struct paged_daemon_info before = { .struct_size = sizeof(before) }, after = { .struct_size = sizeof(after) };
	struct paged_batch *batch;

	daemon_and_client_start(NULL);
	client_ok(paged_batch_create(pool, &params, &batch));
	client_ok(seqs_create(client, pool, 1, &row.seq));
	client_ok(paged_admin_status(client, &before));
	for (row.kv_len = 1; row.kv_len <= 1000; row.kv_len++) {
		client_ok(paged_batch_plan(batch, 1, &row));
		/* Stands for the time of a model's step. */
		usleep(100);
	}
	client_ok(paged_admin_status(client, &after));
	it_require(after.n_requests - before.n_requests <= 2 + 2 * (1000 / 64), "%llu requests",
		   (unsigned long long)(after.n_requests - before.n_requests));
	daemon_and_client_stop();
}

/* reserve_ahead larger than the pool still leaves an eighth of the pool to other sessions. */
IT_TEST(reserve_ahead_leaves_free_pages)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .reserve_ahead = 1200 };
	struct paged_batch_row rows[4] = { { 0 } };
	paged_seq_id ids[4], other;
	struct paged_client *reader_out;
	struct paged_batch *batch;
	uint32_t tokens = 64 * 4;

	daemon_and_client_start(NULL);
	client_ok(paged_batch_create(pool, &params, &batch));
	client_ok(seqs_create(client, pool, 4, ids));
	for (uint32_t i = 0; i < 4; i++)
		rows[i] = (struct paged_batch_row){ .seq = ids[i], .q_len = 1, .kv_len = 1 };
	for (int i = 0; i < 100; i++) {
		client_ok(paged_batch_plan(batch, 4, rows));
		usleep(1000);
	}
	reader_out = client;
	client_attach(NULL);
	client_ok(seqs_create(client, pool, 1, &other));
	client_ok(seqs_reserve(client, 1, &other, &tokens));
	paged_client_close(client);
	client = reader_out;
	daemon_and_client_stop();
}

static void
hold_pages(int from, int to, void *argument)
{
	uint32_t tokens = 1200;
	paged_seq_id id;

	(void)from, (void)argument;
	client_attach(NULL);
	client_ok(seqs_create(client, pool, 1, &id));
	client_ok(seqs_reserve(client, 1, &id, &tokens));
	it_send(to, &id, sizeof(id));
	pause();
}

/* A process that holds 300 of 512 pages is killed while this one waits for free pages. */
IT_TEST(wait_free_returns_after_pages_are_freed)
{
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };
	struct it_worker holder;
	paged_seq_id id;

	it_daemon_start(&daemon_, configuration, NULL, NULL);
	it_fork(&holder, hold_pages, NULL);
	it_receive(holder.from, &id, sizeof(id));
	client_attach(NULL);
	client_ok(paged_pool_get_counts(pool, &counts));
	it_require(counts.n_pages == 512 && counts.n_free == 212 && counts.n_referenced == 300 &&
		   counts.n_quarantined == 0);
	client_ok(paged_pool_wait_free(pool, 212, 0));
	client_expect(paged_pool_wait_free(pool, 213, 20), PAGED_ERR_TIMEOUT);
	it_require(strstr(paged_client_error(client),
			  "pool small: 212 pages are free or cached after 20 ms, 213 are waited for") != NULL);
	client_expect(paged_pool_wait_free(pool, 513, 20), PAGED_ERR_LIMIT);
	it_require(kill(holder.pid, SIGKILL) == 0);
	client_ok(paged_pool_wait_free(pool, 512, IT_LIMIT_MS));
	it_kill(&holder);
	it_daemon_kill(&daemon_);
	client_expect(paged_pool_wait_free(pool, 512, IT_LIMIT_MS), PAGED_ERR_GONE);
	client_expect(paged_pool_get_counts(pool, &counts), PAGED_ERR_GONE);
	paged_client_close(client);
}

static void
member_run(int from, int to, void *argument)
{
	struct paged_client_params params = { .struct_size = sizeof(params) };
	char token[64];
	paged_seq_id id;
	uint32_t tokens = 8;

	(void)argument;
	it_receive(from, token, sizeof(token));
	params.join_token = token;
	client_attach(&params);
	it_require(paged_client_join_token(client)[0] == '\0');
	client_ok(seqs_create(client, pool, 1, &id));
	client_ok(seqs_reserve(client, 1, &id, &tokens));
	it_send(to, &id, sizeof(id));
	it_receive(from, &id, sizeof(id));
	paged_client_close(client);
}

IT_TEST(joined_member_shares_the_session)
{
	struct paged_client_params wrong = { .struct_size = sizeof(wrong), .join_token = "xyz" };
	struct paged_client *reader_out;
	struct it_worker member;
	paged_seq_id id;
	uint32_t tokens = 12;
	char token[64] = "";

	it_daemon_start(&daemon_, configuration, NULL, NULL);
	it_fork(&member, member_run, NULL);
	client_attach(NULL);
	snprintf(token, sizeof(token), "%s", paged_client_join_token(client));
	it_send(member.to, token, sizeof(token));
	it_receive(member.from, &id, sizeof(id));
	/* The sequence belongs to the session, so each member may change it. */
	client_ok(seqs_reserve(client, 1, &id, &tokens));
	it_send(member.to, &id, sizeof(id));
	it_join(&member);
	reader_out = client;
	client_expect(paged_client_open(NULL, &wrong, &client), PAGED_ERR_INVALID);
	paged_client_close(client);
	wrong.join_token = "00000000000000000000000000000000";
	it_require(paged_client_open(NULL, &wrong, &client) != PAGED_OK);
	paged_client_close(client);
	client = reader_out;
	daemon_and_client_stop();
}

/* Only the session that owns a sequence may change it; every session may read it. */
IT_TEST(other_sessions_may_only_read)
{
	static float k[2 * 8], v[2 * 8], q[2 * 8], owner_out[2 * 8], reader_out[2 * 8];
	struct paged_tensor kt = { .data = k, .dtype = PAGED_F32, .n_heads = 2, .dim = 8 };
	struct paged_tensor vt = { .data = v, .dtype = PAGED_F32, .n_heads = 2, .dim = 8 };
	struct paged_tensor qt = { .data = q, .dtype = PAGED_F32, .n_heads = 2, .dim = 8 };
	struct paged_tensor out = { .data = owner_out, .dtype = PAGED_F32, .n_heads = 2, .dim = 8 };
	struct paged_batch_row row = { .q_len = 1, .kv_len = 1 };
	struct paged_client *owner;
	struct paged_batch *batch;
	uint32_t tokens = 4;

	for (unsigned int i = 0; i < 2 * 8; i++)
		k[i] = v[i] = q[i] = (float)i;
	daemon_and_client_start(NULL);
	owner = client;
	client_ok(seqs_create(client, pool, 1, &row.seq));
	client_ok(seqs_reserve(client, 1, &row.seq, &tokens));
	client_ok(paged_batch_create(pool, NULL, &batch));
	client_ok(paged_batch_plan(batch, 1, &row));
	client_ok(paged_append(batch, 1, &kt, &vt, NULL));
	client_ok(paged_attention(batch, 1, &qt, &out, NULL));

	client_attach(NULL);
	it_require(paged_client_session(client) != paged_client_session(owner));
	tokens = 8;
	client_expect(seqs_reserve(client, 1, &row.seq, &tokens), PAGED_ERR_PERM);
	client_expect(paged_seq_erase(client, 1, &row.seq), PAGED_ERR_PERM);
	client_ok(paged_batch_create(pool, NULL, &batch));
	client_ok(paged_batch_plan(batch, 1, &row));
	client_expect(paged_append(batch, 1, &kt, &vt, NULL), PAGED_ERR_PERM);
	out.data = reader_out;
	client_ok(paged_attention(batch, 1, &qt, &out, NULL));
	it_require(memcmp(reader_out, owner_out, sizeof(reader_out)) == 0 && reader_out[7] == 7);
	row.flags = PAGED_ROW_NO_APPEND;
	client_ok(paged_batch_plan(batch, 1, &row));
	client_ok(paged_append(batch, 1, &kt, &vt, NULL));
	client_ok(seqs_reserve(owner, 1, &row.seq, &tokens));
	client_ok(paged_batch_validate(batch));
	client_ok(paged_seq_erase(owner, 1, &row.seq));
	client_expect(paged_batch_validate(batch), PAGED_ERR_STALE);
	paged_client_close(owner);
	daemon_and_client_stop();
}

IT_TEST(fork_keeps_the_parents_client)
{
	uint32_t tokens = 4;
	paged_seq_id id;
	int status;
	pid_t child;

	daemon_and_client_start(NULL);
	client_ok(seqs_create(client, pool, 1, &id));
	child = fork();
	if (child == 0) {
		bool right = seqs_reserve(client, 1, &id, &tokens) == PAGED_ERR_FORK;

		paged_client_close(client);
		_exit(right ? 0 : 1);
	}
	it_require(waitpid(child, &status, 0) == child && status == 0, "status %x", (unsigned int)status);
	client_ok(seqs_reserve(client, 1, &id, &tokens));
	client_ok(paged_client_ping(client));
	daemon_and_client_stop();
}

struct plan_loop {
	struct paged_batch *batch;
	struct paged_batch_row row;
	_Atomic unsigned int n_plans;
};

/* The kernel ends a thread of this kind at its first system call but read, write and exit. */
static void *
plan_loop_run(void *argument)
{
	struct plan_loop *plan_loop = argument;

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
		return NULL;
	for (; plan_loop->row.kv_len <= 1000; plan_loop->row.kv_len++)
		if (paged_batch_plan(plan_loop->batch, 1, &plan_loop->row) == PAGED_OK)
			plan_loop->n_plans++;
	syscall(SYS_exit, 0);
	return NULL;
}

IT_TEST(plan_makes_no_system_call)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .reserve_ahead = 16 };
	struct plan_loop plan_loop = { .row = { .q_len = 1, .kv_len = 1 } };
	uint32_t tokens = 1100;
	pthread_t thread;

	daemon_and_client_start(NULL);
	client_ok(paged_batch_create(pool, &params, &plan_loop.batch));
	client_ok(seqs_create(client, pool, 1, &plan_loop.row.seq));
	client_ok(seqs_reserve(client, 1, &plan_loop.row.seq, &tokens));
	/* After this plan, the control socket is not polled again for a second. */
	client_ok(paged_batch_plan(plan_loop.batch, 1, &plan_loop.row));
	it_require(pthread_create(&thread, NULL, plan_loop_run, &plan_loop) == 0);
	pthread_join(thread, NULL);
	it_require(plan_loop.n_plans == 1000, "%u plans", plan_loop.n_plans);
	daemon_and_client_stop();
}

static bool
is_readable(void *argument)
{
	struct pollfd polled = { .fd = *(int *)argument, .events = POLLIN };

	return poll(&polled, 1, 0) == 1;
}

IT_TEST(calls_fail_after_daemon_is_killed)
{
	struct paged_batch_row row = { .q_len = 1, .kv_len = 1 };
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_batch *batch;
	uint32_t tokens = 8;
	paged_seq_id id;
	int fd;

	daemon_and_client_start(NULL);
	client_ok(paged_batch_create(pool, NULL, &batch));
	client_ok(seqs_create(client, pool, 1, &row.seq));
	client_ok(seqs_reserve(client, 1, &row.seq, &tokens));
	client_ok(paged_batch_plan(batch, 1, &row));
	client_ok(paged_pool_get_info(pool, &info));
	fd = paged_client_fd(client);
	it_daemon_kill(&daemon_);
	it_require(it_wait(is_readable, &fd));
	client_expect(seqs_create(client, pool, 1, &id), PAGED_ERR_GONE);
	client_expect(paged_client_dispatch(client), PAGED_ERR_GONE);
	client_expect(paged_batch_plan(batch, 1, &row), PAGED_ERR_GONE);
	client_expect(paged_batch_validate(batch), PAGED_ERR_INVALID);
	/* The mapping stays readable. */
	it_require(*(volatile uint8_t *)info.base == 0);
	/* A restarted daemon does not know the old session. */
	it_daemon_restart(&daemon_, NULL, NULL);
	client_expect(seqs_create(client, pool, 1, &id), PAGED_ERR_GONE);
	paged_client_close(client);
	client_attach(NULL);
	client_expect(paged_seq_read(pool, row.seq, NULL, NULL, 0), PAGED_ERR_STALE);
	daemon_and_client_stop();
}

/* paged_batch_plan() polls the control socket once a second and so detects that the daemon has ended. */
IT_TEST(plan_detects_a_dead_daemon)
{
	struct paged_batch *batch;
	uint64_t started;
	enum paged_status status;

	daemon_and_client_start(NULL);
	client_ok(paged_batch_create(pool, NULL, &batch));
	client_ok(paged_batch_plan(batch, 0, NULL));
	it_daemon_kill(&daemon_);
	started = it_now_ms();
	while ((status = paged_batch_plan(batch, 0, NULL)) == PAGED_OK && it_now_ms() - started < IT_LIMIT_MS)
		usleep(1000);
	it_require(status == PAGED_ERR_GONE, "%s", paged_status_name(status));
	paged_client_close(client);
}

static bool
has_no_sequences(void *argument)
{
	struct paged_seq_entry *list;
	size_t n;

	(void)argument;
	client_ok(paged_admin_sequences(client, "small", sizeof(*list), &list, &n));
	paged_free(list);
	return n == 0;
}

/* The daemon is stopped: the call times out, and the sequences of its late reply are erased. */
IT_TEST(create_after_timeout_is_undone)
{
	struct worker_fixture impatient;
	paged_seq_id ids[3];

	daemon_and_client_start(NULL);
	impatient = (struct worker_fixture){ .client = client };
	kill(daemon_.pid, SIGSTOP);
	worker_set_timeout(&impatient, 200);
	client_expect(seqs_create(client, pool, 3, ids), PAGED_ERR_TIMEOUT);
	client_expect(paged_pool_open(client, "other", &pool), PAGED_ERR_TIMEOUT);
	kill(daemon_.pid, SIGCONT);
	worker_set_timeout(&impatient, IT_LIMIT_MS);
	it_require(it_wait(has_no_sequences, NULL));
	client_ok(paged_pool_open(client, "other", &pool));
	daemon_and_client_stop();
}

IT_TEST(calls_of_a_kicked_session_fail)
{
	struct paged_client *operator_;
	struct paged_client_params params = { .struct_size = sizeof(params), .observer = 1 };
	uint32_t session;
	paged_seq_id id;

	daemon_and_client_start(NULL);
	session = paged_client_session(client);
	client_ok(seqs_create(client, pool, 1, &id));
	client_ok(paged_client_open(NULL, &params, &operator_));
	it_require(paged_client_session(operator_) == 0);
	client_ok(paged_admin_kick(operator_, session, 0));
	client_expect(seqs_create(client, pool, 1, &id), PAGED_ERR_GONE);
	paged_client_close(operator_);
	daemon_and_client_stop();
}

static int
pagedctl_run(const char **output_p, const char *const *arguments)
{
	const char *argv[10] = { "pagedctl/pagedctl" };
	int code;

	for (unsigned int i = 0; i < 6 && arguments[i] != NULL; i++)
		argv[1 + i] = arguments[i];
	*output_p = it_command(&code, argv);
	return code;
}

#define ctl(output, ...) pagedctl_run(output, (const char *const[]){ __VA_ARGS__, NULL })

/* The first sequences of both pools have the same slot and generation. */
IT_TEST(one_request_over_two_pools)
{
	struct paged_seq_params params[2] = { { .tag = "chat 7", .n_tokens = 8 },
					      { .tag = "draft 7", .n_tokens = 16 } };
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_pool *other;
	paged_seq_id ids[2];
	const char *output;

	daemon_and_client_start(NULL);
	client_ok(paged_pool_open(client, "other", &other));
	params[0].pool = pool;
	params[1].pool = other;
	client_ok(paged_seq_create(client, 2, params, ids));
	it_require(ids[0] == PAGED_SEQ(1, 0, 0) && ids[1] == PAGED_SEQ(1, 1, 0));
	client_ok(paged_seq_read(other, ids[1], &info, NULL, 0));
	it_require(info.capacity == 16);
	client_expect(paged_seq_read(pool, ids[1], NULL, NULL, 0), PAGED_ERR_INVALID);
	it_require(strcmp(paged_client_error(client), "sequence 0.1 is of pool other, not of pool small") == 0, "%s",
		   paged_client_error(client));
	it_require(ctl(&output, "sequences") == 0 && strstr(output, "  TAG\n") != NULL &&
			   strstr(output, "  chat 7\n") != NULL && strstr(output, "  draft 7\n") != NULL,
		   "%s", output);
	it_require(ctl(&output, "table", "0.1", "--pool", "other", "--json") == 0 &&
			   strstr(output, "\"tag\": \"draft 7\"") != NULL,
		   "%s", output);

	/* One pool has too few free pages: nothing is created in the other either. */
	params[0].n_tokens = 1200;
	params[1].n_tokens = 256;
	for (int i = 0; i < 3; i++)
		client_ok(paged_seq_create(client, 1, &params[1], &ids[0]));
	params[1].n_tokens = 241;
	client_expect(paged_seq_create(client, 2, params, ids), PAGED_ERR_FULL);
	it_require(ctl(&output, "check") == 0 &&
			   strstr(output,
				  "pool small: 512 pages = 510 free + 2 referenced + 0 cached + 0 quarantined") != NULL,
		   "%s", output);

	client_ok(paged_seq_erase(client, 2, (paged_seq_id[]){ PAGED_SEQ(1, 0, 0), PAGED_SEQ(1, 1, 0) }));
	client_expect(paged_seq_erase(client, 1, (paged_seq_id[]){ PAGED_SEQ(1, 9, 0) }), PAGED_ERR_NOENT);
	client_expect(paged_seq_erase(client, 1, (paged_seq_id[]){ 0 }), PAGED_ERR_INVALID);
	daemon_and_client_stop();
}

/* Opens a client before the daemon listens, and says when it begins to. */
static void
open_early(int from, int to, void *argument)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .wait_ms = IT_LIMIT_MS };

	(void)from;
	(void)argument;
	client_expect(paged_client_open(NULL, NULL, &client), PAGED_ERR_NO_DAEMON);
	paged_client_close(client);
	params.wait_ms = 50;
	client_expect(paged_client_open(NULL, &params, &client), PAGED_ERR_NO_DAEMON);
	paged_client_close(client);
	params.wait_ms = IT_LIMIT_MS;
	it_send(to, "w", 1);
	client_ok(paged_client_open(NULL, &params, &client));
	client_ok(paged_client_ping(client));
	paged_client_close(client);
}

IT_TEST(open_waits_for_a_daemon_that_starts)
{
	struct it_worker worker;
	char word;

	daemon_and_client_start(NULL);
	paged_client_close(client);
	it_daemon_kill(&daemon_);
	it_fork(&worker, open_early, NULL);
	it_receive(worker.from, &word, 1);
	it_daemon_restart(&daemon_, NULL, NULL);
	it_join(&worker);
	it_daemon_stop(&daemon_);
}

IT_TEST(a_wait_does_not_hide_other_errors)
{
	struct paged_client_params params = { .struct_size = sizeof(params),
					      .wait_ms = IT_LIMIT_MS,
					      .join_token = "0123456789abcdef0123456789abcdef" };

	it_daemon_start(&daemon_, configuration, NULL, NULL);
	client_expect(paged_client_open(NULL, &params, &client), PAGED_ERR_GONE);
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

IT_TEST(pagedctl_commands)
{
	uint32_t tokens = 8;
	const char *output;
	paged_seq_id id;
	char text[64];

	daemon_and_client_start(NULL);
	client_ok(seqs_create(client, pool, 1, &id));
	client_ok(seqs_reserve(client, 1, &id, &tokens));
	it_require(ctl(&output, "status") == 0 && strstr(output, ", 1 session, boot ") != NULL, "%s", output);
	it_require(strstr(output, "\nsmall  host") != NULL, "%s", output);
	it_require(ctl(&output, "sequences", "--pool", "small") == 0, "%s", output);
	snprintf(text, sizeof(text), "%d         8      2  -        -      -\n", (int)getpid());
	it_require(strstr(output, "POOL   SEQUENCE  SESSION  NAME") == output && strstr(output, text) != NULL, "%s",
		   output);
	/* A list has the same columns with and without rows. */
	it_require(strstr(output, "CAPACITY  PAGES  TRIMMED  STATE  TAG\n") != NULL, "%s", output);
	it_require(ctl(&output, "sequences", "--pool", "other") == 0 &&
			   strstr(output, "CAPACITY  PAGES  TRIMMED  STATE  TAG\n") != NULL,
		   "%s", output);
	it_require(ctl(&output, "sequences") == 0 && strstr(output, "POOL   SEQUENCE") == output, "%s", output);
	it_require(ctl(&output, "sessions", "--json") == 0 && strstr(output, "\"role\": \"first\"") != NULL, "%s",
		   output);
	it_require(ctl(&output, "pools") == 0 && strstr(output, "f16") != NULL, "%s", output);
	it_require(ctl(&output, "check") == 0, "%s", output);
	it_require(strcmp(output,
			  "pool small: 512 pages = 510 free + 2 referenced + 0 cached + 0 quarantined: holds\n"
			  "pool other: 64 pages = 64 free + 0 referenced + 0 cached + 0 quarantined: holds\n") == 0,
		   "%s", output);
	snprintf(text, sizeof(text), "%u.%u", PAGED_SEQ_SLOT(id), PAGED_SEQ_GENERATION(id));
	it_require(ctl(&output, "table", text) == 2, "%s", output);
	it_require(ctl(&output, "table", text, "--pool", "small") == 0 && strstr(output, "2 pages") != NULL, "%s",
		   output);
	it_require(ctl(&output, "table", "9.9", "--pool", "small") == 1);
	it_require(ctl(&output, "table", "9") == 2 && ctl(&output, "nonsense") == 2);
	it_require(ctl(&output, "kick", "77") == 1);
	snprintf(text, sizeof(text), "%u", paged_client_session(client));
	it_require(ctl(&output, "kick", text) == 0, "%s", output);
	it_require(ctl(&output, "sessions") == 0 && strstr(output, "ended") != NULL, "%s", output);
	daemon_and_client_stop();
	it_require(ctl(&output, "status") == 3);
}

IT_MAIN
