/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that fail: late replies, a full pool, stale ids, a daemon that ends; and the state afterwards. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

static bool
is_readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) > 0;
}

static bool
has_one_sequence(void *argument)
{
	return worker_pool_entry(argument, "test").n_sequences == 1;
}

IT_TEST(create_after_timeout_is_undone)
{
	struct it_daemon daemon;
	struct worker_fixture worker, observer;
	paged_seq_id seq, late[3] = { 0 };
	uint64_t began;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_observe(&observer);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 4);

	kill(daemon.pid, SIGSTOP);
	worker_set_timeout(&worker, 100);
	began = it_now_ms();
	worker_expect(&worker, seqs_create(worker.client, worker.pool, 3, late), PAGED_ERR_TIMEOUT);
	it_require(it_now_ms() - began >= 90);
	it_require(late[0] == 0, "nothing is written unless the call succeeds");
	worker_expect(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 16 }), PAGED_ERR_TIMEOUT);
	kill(daemon.pid, SIGCONT);

	/* The next calls get their own replies, and the sequences of the late create are erased. */
	worker_set_timeout(&worker, IT_LIMIT_MS);
	worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 20 }));
	it_require(it_wait(has_one_sequence, &observer), "%u sequences",
		   worker_pool_entry(&observer, "test").n_sequences);
	it_require(worker_pool_entry(&observer, "test").n_referenced == 5);
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	seq = worker_create_seq(&worker, 4);
	worker_check_pool(&observer);
	worker_close(&worker);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* Without the variable, the harness's limit applies. */
IT_TEST(the_environment_limits_calls)
{
	struct it_daemon daemon;
	struct worker_fixture worker;
	uint64_t began;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	kill(daemon.pid, SIGSTOP);
	setenv("PAGED_TIMEOUT_MS", "100", 1);
	began = it_now_ms();
	it_require(paged_client_open(NULL, NULL, &worker.client) == PAGED_ERR_TIMEOUT);
	it_require(it_now_ms() - began >= 90 && it_now_ms() - began < IT_LIMIT_MS / 2);
	paged_client_close(worker.client);
	kill(daemon.pid, SIGCONT);
	it_daemon_stop(&daemon);
}

struct undoing {
	struct worker_fixture *worker, *observer;
};

static bool
late_create_is_undone(void *argument)
{
	struct undoing *undoing = argument;

	if (is_readable(paged_client_fd(undoing->worker->client)))
		worker_ok(undoing->worker, paged_client_dispatch(undoing->worker->client));
	return has_one_sequence(undoing->observer);
}

/* Without another call: the descriptor becomes readable, and dispatch erases the sequence. */
IT_TEST(dispatch_undoes_a_late_create)
{
	struct it_daemon daemon;
	struct worker_fixture worker, observer;
	paged_seq_id seq, late;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_observe(&observer);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 4);
	kill(daemon.pid, SIGSTOP);
	worker_set_timeout(&worker, 50);
	worker_expect(&worker, seqs_create(worker.client, worker.pool, 1, &late), PAGED_ERR_TIMEOUT);
	kill(daemon.pid, SIGCONT);
	worker_set_timeout(&worker, IT_LIMIT_MS);
	it_require(it_wait(late_create_is_undone, &(struct undoing){ &worker, &observer }));
	worker_ok(&worker, paged_seq_read(worker.pool, seq, NULL, NULL, 0));
	worker_close(&worker);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

IT_TEST(full_pool_is_reported_and_keeps_state)
{
	struct paged_seq_info before = { .struct_size = sizeof(before) }, after = before;
	struct paged_batch_row rows[2];
	struct it_daemon daemon;
	paged_seq_id seq[2], many[WORKER_SLOTS];
	uint32_t page[32];
	struct worker_fixture worker;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 8);
	worker_ok(&worker, seqs_create(worker.client, worker.pool, 2, seq));
	worker_ok(&worker, seqs_reserve(worker.client, 2, seq, (uint32_t[]){ 128, 100 }));
	worker_ok(&worker, paged_seq_read(worker.pool, seq[1], &before, page, 32));
	/* Of 64 pages, 32 + 25 are in use and 7 free; 28 more tokens take exactly these 7. */
	seq[0] = worker_create_seq(&worker, 28);
	worker_expect(&worker, seqs_reserve(worker.client, 2, seq, (uint32_t[]){ 28, 128 }), PAGED_ERR_FULL);
	it_require(strcmp(paged_client_error(worker.client), "pool test: 7 pages requested, 0 free (0 quarantined)") ==
			   0,
		   "%s", paged_client_error(worker.client));
	worker_ok(&worker, paged_seq_read(worker.pool, seq[1], &after, NULL, 0));
	it_require(before.capacity == after.capacity && before.version == after.version);
	it_require(worker_pool_entry(&worker, "test").n_referenced == WORKER_PAGES &&
		   worker_pool_entry(&worker, "test").n_sequences == 3);
	worker_expect(&worker, seqs_create(worker.client, worker.pool, WORKER_SLOTS, many), PAGED_ERR_FULL);
	it_require(worker_pool_entry(&worker, "test").n_sequences == 3);

	/* plan reports how many pages each row is missing; a plan of the other rows succeeds. */
	rows[0] = (struct paged_batch_row){ .seq = seq[0], .q_len = 1, .kv_len = 28 };
	rows[1] = (struct paged_batch_row){ .seq = seq[1], .q_len = 1, .kv_len = 105 };
	worker_expect(&worker, paged_batch_plan(worker.batch, 2, rows), PAGED_ERR_FULL);
	it_require(paged_batch_pages_missing(worker.batch, 0) == 0 && paged_batch_pages_missing(worker.batch, 1) == 2,
		   "%u, %u", paged_batch_pages_missing(worker.batch, 0), paged_batch_pages_missing(worker.batch, 1));
	worker_ok(&worker, paged_batch_plan(worker.batch, 1, rows));
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(stale_ids_are_refused)
{
	struct it_daemon daemon;
	paged_seq_id before_restart, now;
	uint32_t tokens = 8;
	struct worker_fixture worker;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	before_restart = worker_create_seq(&worker, 8);
	worker_ok(&worker, worker_plan(&worker, before_restart, 0, 8, 0));
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &before_restart));
	worker_expect(&worker, paged_batch_validate(worker.batch), PAGED_ERR_STALE);
	now = worker_create_seq(&worker, 8);
	it_require(PAGED_SEQ_SLOT(now) == PAGED_SEQ_SLOT(before_restart) && now != before_restart,
		   "the slot is used again");
	worker_expect(&worker, seqs_reserve(worker.client, 1, &before_restart, &tokens), PAGED_ERR_STALE);
	worker_expect(&worker, seqs_truncate(worker.client, 1, &before_restart, &tokens), PAGED_ERR_STALE);
	worker_expect(&worker, paged_seq_erase(worker.client, 1, &before_restart), PAGED_ERR_STALE);
	worker_expect(&worker, paged_seq_read(worker.pool, before_restart, NULL, NULL, 0), PAGED_ERR_STALE);
	worker_expect(&worker, worker_plan(&worker, before_restart, 0, 1, 0), PAGED_ERR_STALE);
	worker_expect(&worker, worker_plan(&worker, PAGED_SEQ(UINT32_MAX, 0, 0xffffff), 0, 1, 0), PAGED_ERR_STALE);
	worker_ok(&worker, worker_plan(&worker, now, 0, 8, 0));
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(client_fd_becomes_readable)
{
	struct it_daemon daemon;
	struct worker_fixture kicked, stopped, admin;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&kicked, NULL, 0);
	worker_open(&stopped, NULL, 0);
	worker_ok(&kicked, paged_client_dispatch(kicked.client));
	it_require(!is_readable(paged_client_fd(kicked.client)), "nothing was said");
	worker_observe(&admin);
	worker_ok(&admin, paged_admin_kick(admin.client, paged_client_session(kicked.client), 0));
	it_require(it_readable(paged_client_fd(kicked.client)));
	worker_expect(&kicked, paged_client_dispatch(kicked.client), PAGED_ERR_GONE);
	worker_ok(&stopped, paged_client_dispatch(stopped.client));
	worker_close(&kicked);
	worker_close(&admin);

	kill(daemon.pid, SIGTERM);
	/* Bytes of ZeroMQ's own may make it readable before that. */
	while (paged_client_dispatch(stopped.client) != PAGED_ERR_STOPPING)
		it_require(it_readable(paged_client_fd(stopped.client)));
	worker_close(&stopped);
	it_daemon_stop(&daemon);
}

/* A block mask of one row. */
static enum paged_status
block_mask_build(struct worker_fixture *worker, paged_seq_id seq, uint32_t physical, struct paged_block_mask **mask_p)
{
	const struct paged_batch_row row = { .seq = seq, .q_len = 1, .kv_len = 8 };
	const struct paged_block_mask_params params = {
		.struct_size = sizeof(params), .rows = &row, .n_rows = 1, .physical = physical
	};
	struct paged_mod *mod;
	enum paged_status status;

	worker_ok(worker, paged_mod_parse(worker->pool, PAGED_MOD_MASK, "causal", 0, NULL, &mod));
	status = paged_block_mask_create(worker->pool, &params, mod, 0, NULL, mask_p);
	paged_mod_destroy(mod);
	return status;
}

IT_TEST(calls_fail_with_gone_after_restart)
{
	struct paged_block_mask *physical_mask, *logical_mask, *no_mask;
	struct paged_batch_row row = { .kv_len = 8 };
	uint32_t tokens = 16;
	struct it_daemon daemon;
	struct worker_fixture before_restart, after_restart;
	paged_seq_id seq, queued;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&before_restart, NULL, 8);
	seq = worker_create_seq(&before_restart, 8);
	worker_write(&before_restart, seq, 0, 8, 1);
	worker_ok(&before_restart, block_mask_build(&before_restart, seq, 1, &physical_mask));
	worker_ok(&before_restart, paged_block_mask_validate(physical_mask));

	/* Requests that the killed daemon never replied to. */
	kill(daemon.pid, SIGSTOP);
	worker_set_timeout(&before_restart, 50);
	worker_expect(&before_restart, seqs_create(before_restart.client, before_restart.pool, 1, &queued),
		      PAGED_ERR_TIMEOUT);
	worker_expect(&before_restart, seqs_reserve(before_restart.client, 1, &seq, &tokens), PAGED_ERR_TIMEOUT);
	it_daemon_kill(&daemon);
	it_daemon_restart(&daemon, NULL, NULL);

	worker_set_timeout(&before_restart, IT_LIMIT_MS);
	worker_expect(&before_restart, seqs_create(before_restart.client, before_restart.pool, 1, &queued),
		      PAGED_ERR_GONE);
	worker_expect(&before_restart, seqs_reserve(before_restart.client, 1, &seq, &tokens), PAGED_ERR_GONE);
	worker_expect(&before_restart, paged_seq_erase(before_restart.client, 1, &seq), PAGED_ERR_GONE);
	worker_expect(&before_restart, paged_client_dispatch(before_restart.client), PAGED_ERR_GONE);
	worker_expect(&before_restart, worker_plan(&before_restart, seq, 7, 8, 0), PAGED_ERR_GONE);

	/* Physical block masks are void after a restart; logical ones are not. */
	row.seq = seq;
	worker_expect(&before_restart, paged_block_mask_validate(physical_mask), PAGED_ERR_GONE);
	worker_expect(&before_restart, block_mask_build(&before_restart, seq, 1, &no_mask), PAGED_ERR_GONE);
	worker_ok(&before_restart, paged_block_mask_to_logical(physical_mask, &logical_mask));
	worker_expect(&before_restart, paged_block_mask_to_physical(logical_mask, 1, &row, &no_mask), PAGED_ERR_GONE);
	worker_ok(&before_restart, block_mask_build(&before_restart, 0, 0, &logical_mask));

	worker_open(&after_restart, NULL, 0);
	it_require(worker_pool_entry(&after_restart, "test").n_sequences == 0, "nothing of the old life arrived");
	seq = worker_create_seq(&after_restart, 8);
	worker_close(&before_restart);
	worker_ok(&after_restart, paged_client_dispatch(after_restart.client));
	worker_check_pool(&after_restart);
	worker_close(&after_restart);
	it_daemon_stop(&daemon);
}

/* A call that waits when the daemon is killed returns GONE, not TIMEOUT. */
static void
kill_daemon_later(int from, int to, void *argument)
{
	const struct it_daemon *daemon = argument;

	(void)from, (void)to;
	usleep(100000);
	kill(daemon->pid, SIGKILL);
}

IT_TEST(waiting_call_fails_when_daemon_is_killed)
{
	struct it_daemon daemon;
	struct it_worker child;
	paged_seq_id seq;
	struct worker_fixture worker;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	kill(daemon.pid, SIGSTOP);
	it_fork(&child, kill_daemon_later, &daemon);
	worker_expect(&worker, seqs_create(worker.client, worker.pool, 1, &seq), PAGED_ERR_GONE);
	it_join(&child);
	it_daemon_kill(&daemon);
	worker_close(&worker);
}

static void
truncate_on_request(int from, int to, void *argument)
{
	struct worker_fixture worker;
	paged_seq_id seq;
	uint32_t tokens = 0;

	(void)argument;
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 64);
	it_send(to, &seq, sizeof(seq));
	it_receive(from, &tokens, sizeof(tokens));
	worker_expect(&worker, seqs_truncate(worker.client, 1, &seq, &tokens), PAGED_ERR_GONE);
	worker_close(&worker);
}

/* The seqlock's version stays odd for ever; a reader's plan detects that the writer has ended. */
IT_TEST(plan_detects_a_daemon_killed_in_an_update)
{
	/* The first update of a row is its create, the second the truncate. */
	const char *environment[] = { "PAGED_FAULT=page-table-update:2", NULL };
	enum paged_status status = PAGED_OK;
	struct it_daemon daemon;
	struct it_worker child;
	uint32_t tokens = 8;
	paged_seq_id seq;
	uint64_t busy_ms = 0, took_ms;
	struct worker_fixture worker;

	it_daemon_start(&daemon, worker_pool_config, "tests/daemon/pagedd-faults", environment);
	worker_open(&worker, NULL, 0);
	it_fork(&child, truncate_on_request, NULL);
	it_receive(child.from, &seq, sizeof(seq));
	worker_ok(&worker, worker_plan(&worker, seq, 63, 64, PAGED_ROW_NO_APPEND));
	it_send(child.to, &tokens, sizeof(tokens));
	/* AGAIN until the kernel has closed the killed daemon's socket. */
	while (status == PAGED_OK || status == PAGED_ERR_AGAIN) {
		status = worker_plan(&worker, seq, 63, 64, PAGED_ROW_NO_APPEND);
		if (status != PAGED_OK && busy_ms == 0)
			busy_ms = it_now_ms();
		it_require(busy_ms == 0 || it_now_ms() - busy_ms < IT_LIMIT_MS, "still %s", paged_status_name(status));
	}
	took_ms = it_now_ms() - busy_ms;
	it_require(status == PAGED_ERR_GONE, "%s: %s", paged_status_name(status), paged_client_error(worker.client));
	it_note("plan knew after %llu ms", (unsigned long long)took_ms);
	worker_expect(&worker, paged_seq_read(worker.pool, seq, NULL, NULL, 0), PAGED_ERR_GONE);
	it_join(&child);
	it_daemon_kill(&daemon);
	worker_close(&worker);
}

IT_MAIN
