/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of a real pagedd at work on a pool in a GPU's memory, over the fake CUDA driver. */
#include "config.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/support/sequences.h"
#include "tests/fake-cuda/load.h"
#include "tests/support/worker_fixture.h"

static const struct batch_fixture_params test_pool_params = {
	.backend = "cuda",
	.daemon_pool = "test",
	.pool = PAGED_F32,
	.q = PAGED_F32,
	.q_heads = WORKER_HEADS,
	.kv_heads = WORKER_KV_HEADS,
	.k_dim = WORKER_DIM,
	.v_dim = WORKER_DIM,
	.page_size = WORKER_PAGE_SIZE,
	.n_rows = 2,
	.rows = { { .kv_len = 19, .q_len = 1 }, { .kv_len = 6, .q_len = 3 } },
};

static void
open_and_write(struct batch_fixture *fixture, uint32_t n_rows)
{
	struct batch_fixture_params params = test_pool_params;

	it_require(fake_cuda_load(), "%s", dlerror());
	params.n_rows = n_rows;
	batch_fixture_open(fixture, &params);
	for (uint32_t r = 0; r < n_rows; r++)
		batch_fixture_write(fixture, r, 0, params.rows[r].kv_len);
}

static void
plan(struct batch_fixture *fixture)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];

	batch_fixture_rows(fixture, rows);
	batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, fixture->params.n_rows, rows));
}

/* One session writes, another reads in place. */

static void
writer(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	uint32_t less = 4;
	char word;

	(void)argument;
	open_and_write(&fixture, 2);
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	it_send(to, fixture.seq, sizeof(fixture.seq));
	it_receive(from, &word, 1);
	batch_fixture_ok(&fixture, seqs_truncate(fixture.client, 1, &fixture.seq[1], &less));
	it_send(to, "t", 1);
	it_receive(from, &word, 1);
	batch_fixture_close(&fixture);
}

static void
reader(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	char word;

	(void)argument;
	open_and_write(&fixture, 0);
	fixture.params = test_pool_params;
	fixture.total_q = 4;
	it_receive(from, fixture.seq, sizeof(fixture.seq));
	fixture.out = batch_fixture_tensor(&fixture, PAGED_F32, 4, WORKER_HEADS, WORKER_DIM);
	fixture.lse = batch_fixture_put(&fixture, NULL, 4 * WORKER_HEADS * sizeof(float));
	fixture.max_score = batch_fixture_put(&fixture, NULL, 4 * WORKER_HEADS * sizeof(float));
	plan(&fixture);
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	it_send(to, "r", 1);
	it_receive(from, &word, 1);
	batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch), PAGED_ERR_STALE);
	batch_fixture_close(&fixture);
}

static void read_other_session(enum export_setting export)
{
	struct it_worker first, second;
	paged_seq_id seq[BATCH_FIXTURE_MAX_ROWS];
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&first, writer, NULL);
	it_fork(&second, reader, NULL);
	it_receive(first.from, seq, sizeof(seq));
	it_send(second.to, seq, sizeof(seq));
	it_receive(second.from, &word, 1);
	it_send(first.to, "g", 1);
	it_receive(first.from, &word, 1);
	it_send(second.to, "t", 1);
	it_join(&second);
	it_send(first.to, "e", 1);
	it_join(&first);
	it_daemon_stop(&daemon);
}

IT_TEST(vmm_reader_reads_another_session)
{
	read_other_session(EXPORT_SETTING_VMM);
}

IT_TEST(legacy_reader_reads_another_session)
{
	read_other_session(EXPORT_SETTING_LEGACY);
}

/* Run attention until a message arrives or a call fails, so that a kill always meets running kernels. */
static enum paged_status
attend_until_message(struct batch_fixture *fixture, int from)
{
	struct pollfd heard = { .fd = from, .events = POLLIN };
	struct paged_tensor q = batch_fixture_queries(fixture);
	enum paged_status status;

	do {
		status = paged_attention(fixture->batch, BATCH_FIXTURE_LAYER, &q, &fixture->out, NULL);
		/* The fake driver runs a stream only when it is queried. */
		fixture->gpu.driver.stream_query(fixture->stream);
	} while (status == PAGED_OK && poll(&heard, 1, 0) == 0);
	return status;
}

/* A worker is killed with work in its stream: its pages are freed and reused. */

static void
attend_until_killed(int from, int to, void *argument)
{
	struct batch_fixture fixture;

	(void)argument;
	open_and_write(&fixture, 2);
	plan(&fixture);
	it_send(to, "w", 1);
	batch_fixture_ok(&fixture, attend_until_message(&fixture, from));
}

static void
reuse_pages(int from, int to, void *argument)
{
	struct batch_fixture fixture;

	(void)from, (void)to, (void)argument;
	open_and_write(&fixture, 2);
	plan(&fixture);
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

IT_TEST(pages_of_a_worker_killed_in_a_kernel_are_reused)
{
	struct paged_client_params params = worker_params("observer");
	struct it_worker child;
	struct it_daemon daemon;
	struct worker_fixture worker;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	params.observer = 1;
	for (unsigned int i = 0; i < 2; i++) {
		it_fork(&child, attend_until_killed, NULL);
		it_receive(child.from, &word, 1);
		it_kill(&child);
	}
	worker_attach(&worker, &params);
	worker_wait_free(&worker, "test");
	paged_client_close(worker.client);
	it_fork(&child, reuse_pages, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

/* The daemon is killed: plans are refused, and work in the stream completes. */
static void
worker_of_killed_vmm_daemon(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	char word;

	(void)argument;
	open_and_write(&fixture, 2);
	plan(&fixture);
	it_send(to, "w", 1);
	batch_fixture_ok(&fixture, attend_until_message(&fixture, from));
	it_receive(from, &word, 1);
	batch_fixture_expect(&fixture, paged_client_ping(fixture.client), PAGED_ERR_GONE);
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_check(&fixture);
	batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch), PAGED_ERR_GONE);
	batch_fixture_expect(&fixture, paged_batch_plan(fixture.batch, 0, NULL), PAGED_ERR_GONE);
	batch_fixture_close(&fixture);
}

/* CUDA does not define what happens to legacy memory of an ended process: the worker must get an error and exit. */
static void
worker_of_killed_legacy_daemon(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	char word;

	(void)argument;
	open_and_write(&fixture, 2);
	plan(&fixture);
	it_send(to, "w", 1);
	if (attend_until_message(&fixture, from) != PAGED_OK)
		it_note("%s", paged_client_error(fixture.client));
	it_receive(from, &word, 1);
	batch_fixture_expect(&fixture, paged_client_ping(fixture.client), PAGED_ERR_GONE);
	paged_client_close(fixture.client);
}

static void
kill_daemon_at_work(enum export_setting export, void (*run)(int from, int to, void *argument))
{
	struct it_worker child;
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&child, run, NULL);
	it_receive(child.from, &word, 1);
	it_daemon_kill(&daemon);
	it_send(child.to, "k", 1);
	it_join(&child);
}

IT_TEST(work_ends_after_vmm_daemon_is_killed)
{
	kill_daemon_at_work(EXPORT_SETTING_VMM, worker_of_killed_vmm_daemon);
}

IT_TEST(work_ends_after_legacy_daemon_is_killed)
{
	kill_daemon_at_work(EXPORT_SETTING_LEGACY, worker_of_killed_legacy_daemon);
}

IT_MAIN
