/* SPDX-License-Identifier: Apache-2.0 */
/* Drained sessions: they get no new sequences, finish those they have or give them away, and leave. */
#include "config.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/support/wire_peer.h"
#include "tests/system/prompt_fixture.h"

#define NOBODY_UID 65534u
#define SEED 20261201u
#define LENGTH 30u

static struct it_daemon daemon_;
static struct worker_fixture worker, admin;

static void
setup(void)
{
	it_daemon_start(&daemon_, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_observe(&admin);
}

static void
teardown(void)
{
	worker_close(&worker);
	prompt_wait_unused(&admin);
	worker_check_pool(&admin);
	worker_close(&admin);
	it_daemon_stop(&daemon_);
}

static void
drain(const struct worker_fixture *drained)
{
	worker_ok(&admin, paged_admin_drain(admin.client, paged_client_session(drained->client)));
}

/* The call was refused, or dispatch() reports the drain, with what to do. */
static void
expect_drained(const struct worker_fixture *drained, enum paged_status status)
{
	char text[128];

	snprintf(text, sizeof(text),
		 "session %u is drained and gets no new sequences: finish or give away those it has, then close",
		 paged_client_session(drained->client));
	it_require(status == PAGED_ERR_STOPPING && strcmp(paged_client_error(drained->client), text) == 0, "%s: %s",
		   paged_status_name(status), paged_client_error(drained->client));
}

/* Waits until the notice has come; another call may have read it already. */
static void
wait_drained(const struct worker_fixture *drained)
{
	enum paged_status status;

	while ((status = paged_client_dispatch(drained->client)) == PAGED_OK)
		it_require(it_readable(paged_client_fd(drained->client)));
	expect_drained(drained, status);
}

static uint32_t
is_draining(uint32_t session)
{
	struct paged_session_entry *list;
	uint32_t draining = UINT32_MAX;
	size_t n;

	worker_ok(&admin, paged_admin_sessions(admin.client, sizeof(*list), &list, &n));
	for (size_t i = 0; i < n; i++)
		if (list[i].session == session)
			draining = list[i].draining;
	paged_free(list);
	return draining;
}

/* Every request that would create a sequence is refused, all others go on. */
IT_TEST(drained_session_gets_no_new_sequences)
{
	const struct prompt prompt = prompt_make(1, 24);
	struct paged_prefix prefix = prompt_prefix(&prompt, prompt.n);
	struct paged_start start = { .prefix = &prefix };
	struct worker_fixture other;
	paged_seq_id seq, given, returned, new;
	struct paged_ticket ticket, own;
	uint32_t length = 4, n_tokens = 40, page;
	uint64_t serial;
	size_t n;

	setup();
	worker_open(&other, NULL, 0);
	seq = prompt_compute(&worker, &prompt);
	given = worker_create_seq(&other, 4);
	worker_ok(&other, paged_seq_give(other.pool, 1, &given, &length, NULL, &ticket));
	worker_ok(&worker, paged_client_dispatch(worker.client));
	drain(&worker);
	wait_drained(&worker);
	worker_ok(&other, paged_client_dispatch(other.client));
	it_require(is_draining(paged_client_session(worker.client)) == 1);
	it_require(is_draining(paged_client_session(other.client)) == 0);

	expect_drained(&worker, seqs_create(worker.client, worker.pool, 1, &new));
	expect_drained(&worker, paged_seq_start(worker.pool, 1, &start, &new, NULL));
	expect_drained(&worker, paged_batch_fork(worker.batch, 1, &seq, &length, &new));
	expect_drained(&worker, paged_seq_adopt(worker.pool, &ticket, 1, &new, NULL, &n));
	worker_ok(&other, paged_ticket_cancel(other.client, &ticket));
	worker_ok(&worker, paged_prefix_pages(worker.pool, &prefix, 1, &page, &serial, &n));
	expect_drained(&worker, paged_pages_hold(worker.pool, n, &page, &serial, &new));

	worker_ok(&worker, paged_client_ping(worker.client));
	worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, &n_tokens));
	worker_write(&worker, seq, 24, 40, SEED);
	worker_ok(&worker, seqs_truncate(worker.client, 1, &seq, (uint32_t[]){ 32 }));
	worker_ok(&worker, paged_seq_give(worker.pool, 1, &seq, (uint32_t[]){ 32 }, NULL, &own));
	worker_ok(&worker, paged_ticket_cancel(worker.client, &own));
	worker_ok(&worker, paged_seq_give(worker.pool, 1, &seq, (uint32_t[]){ 32 }, NULL, &own));
	worker_ok(&other, paged_seq_adopt(other.pool, &own, 1, &returned, NULL, &n));
	it_require(returned == seq);
	prompt_verify(&other, seq, &prompt, 24);
	worker_ok(&other, paged_seq_erase(other.client, 1, &seq));
	worker_create_seq(&other, 4);
	worker_close(&other);
	teardown();
}

/* A worker that decodes until it learns of the drain, then finishes its sequence and gives it away. */
static void
decoder(int from, int to, void *argument)
{
	struct paged_ticket ticket;
	struct worker_fixture own;
	uint32_t length = 1, session;
	paged_seq_id seq;

	(void)from, (void)argument;
	worker_open(&own, NULL, WORKER_PAGE_SIZE);
	seq = worker_create_seq(&own, 4);
	session = paged_client_session(own.client);
	worker_write(&own, seq, 0, 1, SEED);
	it_send(to, &session, sizeof(session));
	/* A step writes one token anew, so that the length does not depend on when the drain comes. */
	while (paged_client_dispatch(own.client) == PAGED_OK)
		worker_write(&own, seq, 0, 1, SEED);
	expect_drained(&own, paged_client_dispatch(own.client));
	for (; length < LENGTH; length++)
		worker_write(&own, seq, length, length + 1, SEED);
	worker_ok(&own, paged_seq_give(own.pool, 1, &seq, &length, NULL, &ticket));
	it_send(to, &ticket, sizeof(ticket));
	worker_close(&own);
}

IT_TEST(session_that_works_finishes_and_hands_over)
{
	float expected[WORKER_LAYERS * WORKER_OUT], seen[WORKER_LAYERS * WORKER_OUT];
	struct paged_ticket ticket;
	struct it_worker child;
	paged_seq_id seq, own;
	uint32_t session, length;
	size_t n;

	setup();
	it_fork(&child, decoder, NULL);
	it_receive(child.from, &session, sizeof(session));
	worker_ok(&admin, paged_admin_drain(admin.client, session));
	it_receive(child.from, &ticket, sizeof(ticket));
	worker_ok(&worker, paged_seq_adopt(worker.pool, &ticket, 1, &seq, &length, &n));
	it_require(n == 1 && length == LENGTH);
	it_join(&child);
	own = worker_create_seq(&worker, LENGTH);
	for (uint32_t i = 0; i < LENGTH; i++)
		worker_write(&worker, own, i, i + 1, SEED);
	worker_read(&worker, own, LENGTH, expected);
	worker_read(&worker, seq, LENGTH, seen);
	it_require(memcmp(expected, seen, sizeof(seen)) == 0, "the adopted sequence has other bits");
	teardown();
}

IT_TEST(drains_may_be_repeated)
{
	uint32_t session;

	setup();
	session = paged_client_session(worker.client);
	worker_expect(&admin, paged_admin_drain(admin.client, session + 1), PAGED_ERR_NOENT);
	worker_expect(&admin, paged_admin_drain(admin.client, 0), PAGED_ERR_NOENT);
	drain(&worker);
	wait_drained(&worker);
	drain(&worker);
	expect_drained(&worker, paged_client_dispatch(worker.client));
	/* The notice came once: there is nothing more to read. */
	it_require(poll(&(struct pollfd){ .fd = paged_client_fd(worker.client), .events = POLLIN }, 1, 0) == 0);
	/* An ended session is drained, too; its member learns of the end. */
	worker_ok(&admin, paged_admin_kick(admin.client, session, 0));
	drain(&worker);
	worker_expect(&worker, paged_client_ping(worker.client), PAGED_ERR_GONE);
	worker_expect(&worker, paged_client_dispatch(worker.client), PAGED_ERR_GONE);
	teardown();
}

/* Members learn of the drain: those that have joined, and one that joins later, which still may. */
IT_TEST(all_members_are_told)
{
	struct paged_client_params params = worker_params("rank");
	struct worker_fixture early, late;
	paged_seq_id seq;

	setup();
	params.join_token = paged_client_join_token(worker.client);
	worker_open(&early, &params, 0);
	drain(&worker);
	wait_drained(&worker);
	wait_drained(&early);
	worker_open(&late, &params, 0);
	wait_drained(&late);
	expect_drained(&late, seqs_create(late.client, late.pool, 1, &seq));
	worker_close(&late);
	worker_close(&early);
	teardown();
}

static void
drain_as_nobody(int from, int to, void *argument)
{
	const uint32_t *session = argument;
	struct worker_fixture own;

	(void)from, (void)to;
	it_require(setgid(NOBODY_UID) == 0 && setuid(NOBODY_UID) == 0, "%m");
	worker_open(&own, NULL, 0);
	worker_expect(&own, paged_admin_drain(own.client, *session), PAGED_ERR_PERM);
	worker_expect(&own, paged_admin_drain(own.client, paged_client_session(own.client)), PAGED_ERR_PERM);
	worker_ok(&own, paged_client_dispatch(own.client));
	worker_close(&own);
}

IT_TEST(only_administrators_drain)
{
	struct it_worker child;
	uint32_t session;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	it_daemon_start(&daemon_, "allow-user = 65534\n" PROMPT_POOL(""), NULL, NULL);
	it_require(chmod(daemon_.dir, 0711) == 0, "%m");
	worker_open(&worker, NULL, 0);
	worker_observe(&admin);
	session = paged_client_session(worker.client);
	it_fork(&child, drain_as_nobody, &session);
	it_join(&child);
	worker_create_seq(&worker, 4);
	it_require(is_draining(session) == 0);
	teardown();
}

IT_TEST(the_notice_on_the_wire)
{
	struct wire_control_reply notice;
	struct wire_peer peer;

	setup();
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	worker_ok(&admin, paged_admin_drain(admin.client, peer.welcome.welcome.session));
	it_require(wire_peer_receive_control(peer.control, &notice, NULL));
	it_require(notice.kind == WIRE_NOTICE && notice.notice.kind == WIRE_NOTICE_DRAINED);
	it_require(strstr(notice.notice.text, "is drained and gets no new sequences") != NULL, "%s",
		   notice.notice.text);
	wire_peer_bye(&peer);
	teardown();
}

IT_TEST(pagedctl_drains)
{
	const char *output;
	char session[16], text[96];
	int exit_code;

	setup();
	worker_create_seq(&worker, 4);
	snprintf(session, sizeof(session), "%u", paged_client_session(worker.client));
	output = it_pagedctl(&exit_code, "sessions", NULL);
	it_require(exit_code == 0 && strstr(output, "active") != NULL, "%s", output);
	output = it_pagedctl(&exit_code, "drain", session, NULL);
	snprintf(text, sizeof(text), "session %s is drained: 1 sequence left\n", session);
	it_require(exit_code == 0 && strcmp(output, text) == 0, "%s", output);
	output = it_pagedctl(&exit_code, "sessions", NULL);
	it_require(exit_code == 0 && strstr(output, "draining") != NULL, "%s", output);
	output = it_pagedctl(&exit_code, "--json", "drain", session, NULL);
	it_require(exit_code == 0 && strstr(output, "\"sequences\": 1") != NULL, "%s", output);
	wait_drained(&worker);
	output = it_pagedctl(&exit_code, "kick", session, NULL);
	it_require(exit_code == 0, "%s", output);
	output = it_pagedctl(&exit_code, "drain", session, NULL);
	snprintf(text, sizeof(text), "session %s had ended already\n", session);
	it_require(exit_code == 0 && strcmp(output, text) == 0, "%s", output);
	output = it_pagedctl(&exit_code, "drain", "77", NULL);
	it_require(exit_code == 1 && strstr(output, "no session 77") != NULL, "%s", output);
	output = it_pagedctl(&exit_code, "drain", "x", NULL);
	it_require(exit_code == 2 && strstr(output, "x is not a session") != NULL, "%s", output);
	teardown();
}

/* An embedded client drains its own session. */
IT_TEST(embedded_session)
{
	struct paged_pool_params pool = { .struct_size = sizeof(pool),
					  .name = "test",
					  .n_layers = 1,
					  .n_kv_heads = 1,
					  .k_dim = 16,
					  .dtype = PAGED_F32,
					  .n_pages = 8 };
	struct worker_fixture own = { 0 };
	struct paged_quota_entry *quotas;
	paged_seq_id seq, other;
	size_t n;

	worker_ok(&own, paged_client_open_embedded(&pool, 1, NULL, &own.client));
	worker_ok(&own, paged_pool_open(own.client, "test", &own.pool));
	seq = worker_create_seq(&own, 16);
	worker_ok(&own, paged_admin_quotas(own.client, sizeof(*quotas), &quotas, &n));
	it_require(n == 0);
	paged_free(quotas);
	worker_expect(&own, paged_admin_drain(own.client, 9), PAGED_ERR_NOENT);
	worker_ok(&own, paged_client_dispatch(own.client));
	worker_ok(&own, paged_admin_drain(own.client, paged_client_session(own.client)));
	expect_drained(&own, paged_client_dispatch(own.client));
	expect_drained(&own, seqs_create(own.client, own.pool, 1, &other));
	worker_ok(&own, seqs_reserve(own.client, 1, &seq, (uint32_t[]){ 32 }));
	worker_ok(&own, paged_seq_erase(own.client, 1, &seq));
	worker_close(&own);
}

IT_MAIN
