/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks order the work of batches across processes.  Runs over the fake CUDA
 * driver, whose streams run only when a call waits for them.
 */
#include "config.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/mark.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda_daemon.h"
#include "tests/support/cuda_graph.h"
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

/** What a writer tells its reader. */
struct news {
	paged_seq_id seq[BATCH_FIXTURE_MAX_ROWS];
	struct paged_mark mark;
};

static void
open_as(struct batch_fixture *fixture, uint32_t n_rows)
{
	struct batch_fixture_params params = test_pool_params;

	it_require(fake_cuda_load(), "%s", dlerror());
	params.n_rows = n_rows;
	batch_fixture_open(fixture, &params);
}

/* Another process's sequences, and room for what attention gives. */
static void
open_reader(struct batch_fixture *fixture, int from, struct news *news)
{
	uint32_t total_q = 4;

	open_as(fixture, 0);
	fixture->params = test_pool_params;
	fixture->total_q = total_q;
	it_receive(from, news, sizeof(*news));
	memcpy(fixture->seq, news->seq, sizeof(fixture->seq));
	fixture->out = batch_fixture_tensor(fixture, PAGED_F32, total_q, WORKER_HEADS, WORKER_DIM);
	fixture->lse = batch_fixture_put(fixture, NULL, total_q * WORKER_HEADS * sizeof(float));
	fixture->max_score = batch_fixture_put(fixture, NULL, total_q * WORKER_HEADS * sizeof(float));
}

static void
attend(struct batch_fixture *fixture)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];

	batch_fixture_rows(fixture, rows);
	batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, fixture->params.n_rows, rows));
	batch_fixture_ok(fixture, batch_fixture_attend(fixture, NULL));
}

static void
log_calls(const struct it_daemon *daemon)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/calls", daemon->dir);
	setenv("PAGED_FAKE_CUDA_LOG", path, 1);
}

/* What is not waited for is not there; what is waited for is */

static void
writer(int from, int to, void *argument)
{
	struct news news;
	struct batch_fixture fixture;
	char word;

	(void)argument;
	open_as(&fixture, 2);
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, test_pool_params.rows[r].kv_len);
	memcpy(news.seq, fixture.seq, sizeof(news.seq));
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &news.mark));
	it_send(to, &news, sizeof(news));
	it_receive(from, &word, 1);
	batch_fixture_close(&fixture);
}

/* Of keys that nobody wrote: NaN through legacy, and zeros through vmm, whose scores are zeros. */
static bool
is_of_empty_pages(float lse)
{
	return isnan(lse) || fabsf(lse - logf((float)test_pool_params.rows[0].kv_len)) < 1e-5f;
}

static void
reader(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	struct news news;
	float lse;

	(void)to, (void)argument;
	open_reader(&fixture, from, &news);
	if (fake_cuda_wanted()) {
		attend(&fixture);
		batch_fixture_get(&fixture, &lse, fixture.lse, sizeof(lse));
		it_require(is_of_empty_pages(lse), "the writer's stream has not moved, and its appends are seen: %g",
			   lse);
	}
	batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &news.mark));
	attend(&fixture);
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

static void write_and_read(enum export_setting export)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct news news;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&first, writer, NULL);
	it_fork(&second, reader, NULL);
	it_receive(first.from, &news, sizeof(news));
	it_send(second.to, &news, sizeof(news));
	it_join(&second);
	it_send(first.to, "e", 1);
	it_join(&first);
	it_daemon_stop(&daemon);
}

IT_TEST(a_reader_comes_after_a_mark_through_vmm)
{
	write_and_read(EXPORT_SETTING_VMM);
}

IT_TEST(a_reader_comes_after_a_mark_through_legacy)
{
	write_and_read(EXPORT_SETTING_LEGACY);
}

/* Or the writer waits. */
static void
finisher(int from, int to, void *argument)
{
	struct news news = { .mark = { { 0 } } };
	struct batch_fixture fixture;
	char word;

	(void)argument;
	open_as(&fixture, 2);
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, test_pool_params.rows[r].kv_len);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	memcpy(news.seq, fixture.seq, sizeof(news.seq));
	it_send(to, &news, sizeof(news));
	it_receive(from, &word, 1);
	batch_fixture_close(&fixture);
}

static void
late_reader(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	struct news news;

	(void)to, (void)argument;
	open_reader(&fixture, from, &news);
	attend(&fixture);
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

IT_TEST(a_writer_may_wait_instead)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct news news;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_fork(&first, finisher, NULL);
	it_fork(&second, late_reader, NULL);
	it_receive(first.from, &news, sizeof(news));
	it_send(second.to, &news, sizeof(news));
	it_join(&second);
	it_send(first.to, "e", 1);
	it_join(&first);
	it_daemon_stop(&daemon);
}

/* One event for any number of marks, on both sides */

#define N_MARKS 19u

static void
often(int from, int to, void *argument)
{
	struct news news;
	struct batch_fixture fixture;
	char word;

	(void)argument;
	open_as(&fixture, 1);
	memcpy(news.seq, fixture.seq, sizeof(news.seq));
	for (uint32_t at = 0; at < N_MARKS; at++) {
		batch_fixture_write(&fixture, 0, at, at + 1);
		batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &news.mark));
		it_send(to, &news, sizeof(news));
		it_receive(from, &word, 1);
	}
	it_require(fake_cuda_n_calls("cuIpcGetEventHandle") == 1 && fake_cuda_n_calls("cuEventRecord") >= N_MARKS);
	batch_fixture_close(&fixture);
}

static void
follower(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	struct news news;

	(void)argument;
	open_reader(&fixture, from, &news);
	fixture.params.n_rows = 1;
	fixture.total_q = 1;
	for (uint32_t at = 0; at < N_MARKS; at++) {
		if (at > 0)
			it_receive(from, &news, sizeof(news));
		fixture.params.rows[0].kv_len = at + 1;
		batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &news.mark));
		attend(&fixture);
		batch_fixture_check(&fixture);
		it_send(to, "n", 1);
	}
	it_require(fake_cuda_n_calls("cuIpcOpenEventHandle") == 1);
	batch_fixture_close(&fixture);
}

IT_TEST(many_marks_are_one_event)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct news news;
	char word;

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	log_calls(&daemon);
	it_fork(&first, often, NULL);
	it_fork(&second, follower, NULL);
	for (uint32_t i = 0; i < N_MARKS; i++) {
		it_receive(first.from, &news, sizeof(news));
		it_send(second.to, &news, sizeof(news));
		it_receive(second.from, &word, 1);
		it_send(first.to, &word, 1);
	}
	it_join(&second);
	it_join(&first);
	it_daemon_stop(&daemon);
}

/* Batches of one process, and of one that is destroyed */

static void
alone(int from, int to, void *argument)
{
	const struct paged_batch_params params = { .struct_size = sizeof(params) };
	struct paged_batch *other;
	struct paged_mark mark;
	struct batch_fixture fixture;
	cuda_stream stream;

	(void)from, (void)to, (void)argument;
	open_as(&fixture, 2);
	batch_fixture_ok(&fixture, paged_batch_create(fixture.pool, &params, &other));
	it_require(fixture.gpu.driver.stream_create(&stream, CUDA_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	batch_fixture_ok(&fixture, paged_batch_stream(other, stream));
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, test_pool_params.rows[r].kv_len);
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &mark));
	batch_fixture_ok(&fixture, paged_batch_wait(other, &mark));
	batch_fixture_ok(&fixture, paged_batch_finish(other));
	/* Waiting for the one stream has moved the other, so this finds nothing left to do. */
	it_require(fixture.gpu.driver.stream_query(fixture.stream) == CUDA_SUCCESS);
	batch_fixture_ok(&fixture, paged_batch_mark(other, &mark));
	paged_batch_destroy(other);
	batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &mark));
	batch_fixture_ok(&fixture, paged_batch_create(fixture.pool, &params, &other));
	batch_fixture_ok(&fixture, paged_batch_mark(other, &mark));
	it_require(fake_cuda_n_calls("cuIpcGetEventHandle") == 2, "the third batch has the second's event");
	it_require(fake_cuda_n_calls("cuIpcOpenEventHandle") == 0);
	it_require(fixture.gpu.driver.stream_destroy(stream) == CUDA_SUCCESS);
	batch_fixture_close(&fixture);
}

IT_TEST(in_one_process)
{
	struct it_worker child;
	struct it_daemon daemon;

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	log_calls(&daemon);
	it_fork(&child, alone, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

/* Killed between mark and wait */

static void
bereaved(int from, int to, void *argument)
{
	bool waits_before = *(bool *)argument;
	unsigned int n_fds;
	struct batch_fixture fixture;
	struct news news;
	char word;

	open_reader(&fixture, from, &news);
	n_fds = it_count_fds(getpid());
	if (waits_before)
		batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &news.mark));
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	it_send(to, "r", 1);
	it_receive(from, &word, 1);
	batch_fixture_expect(&fixture, paged_batch_wait(fixture.batch, &news.mark), PAGED_ERR_GONE);
	it_require(strstr(paged_client_error(fixture.client), "pool test: process ") != NULL &&
			   strstr(paged_client_error(fixture.client), " has ended") != NULL,
		   "%s", paged_client_error(fixture.client));
	/* Nothing of the dead is left, and the stream goes on. */
	it_require(it_count_fds(getpid()) == n_fds, "%u descriptors, %u before", it_count_fds(getpid()), n_fds);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	batch_fixture_close(&fixture);
}

static void
kill_the_writer(bool waits_before)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct news news;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_fork(&first, writer, NULL);
	it_fork(&second, bereaved, &waits_before);
	it_receive(first.from, &news, sizeof(news));
	it_send(second.to, &news, sizeof(news));
	it_receive(second.from, &word, 1);
	it_kill(&first);
	it_send(second.to, "k", 1);
	it_join(&second);
	it_daemon_stop(&daemon);
}

IT_TEST(a_writer_dies_before_anybody_waits)
{
	kill_the_writer(false);
}

IT_TEST(a_writer_dies_after_its_event_was_opened)
{
	kill_the_writer(true);
}

/* What is refused in between leaves the capture as it was. */

static struct cuda_graphs graphs;

static void
capture_begin(const struct batch_fixture *fixture)
{
	it_require(cuda_graphs_find(&graphs, &fixture->gpu.driver));
	it_require(graphs.begin(fixture->stream, CUDA_CAPTURE_GLOBAL) == CUDA_SUCCESS);
}

static void
capture_end(const struct batch_fixture *fixture)
{
	cuda_graph graph;

	it_require(graphs.end(fixture->stream, &graph) == CUDA_SUCCESS);
	it_require(graphs.destroy(graph) == CUDA_SUCCESS);
}

/* Bytes of a peer */

static void
refuse(struct batch_fixture *fixture, const struct mark *mark, enum paged_status wanted, const char *words)
{
	struct paged_mark bytes = { { 0 } };

	memcpy(&bytes, mark, sizeof(*mark));
	batch_fixture_expect(fixture, paged_batch_wait(fixture->batch, &bytes), wanted);
	it_require(strstr(paged_client_error(fixture->client), words) != NULL, "%s",
		   paged_client_error(fixture->client));
}

#define REFUSE(field, wanted, words)                       \
	do {                                               \
		struct mark wrong = good;                  \
                                                           \
		wrong.field;                               \
		refuse(&fixture, &wrong, (wanted), words); \
	} while (0)

static void
critic(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	struct news news;
	struct mark good;

	(void)to, (void)argument;
	open_reader(&fixture, from, &news);
	memcpy(&good, &news.mark, sizeof(good));
	REFUSE(magic = 0, PAGED_ERR_INVALID, "these bytes are no mark");
	REFUSE(version = 0, PAGED_ERR_INVALID, "these bytes are no mark");
	REFUSE(version++, PAGED_ERR_VERSION, "a mark of version 2, this library knows 1");
	REFUSE(boot_id[0] ^= 1, PAGED_ERR_GONE, "an earlier life");
	REFUSE(pool++, PAGED_ERR_INVALID, "pool test is number 0 of its daemon, the mark is of number 1");
	REFUSE(kind = MARK_REACHED, PAGED_ERR_INVALID, "not of a GPU's memory");
	REFUSE(kind = 7, PAGED_ERR_INVALID, "not of a GPU's memory");
	REFUSE(device.bytes[3] ^= 1, PAGED_ERR_INVALID, "of another GPU than GPU-");
	REFUSE(process.pid = 0, PAGED_ERR_GONE, "process 0 has ended");
	REFUSE(process.pid = -1, PAGED_ERR_GONE, "process -1 has ended");
	REFUSE(process.started++, PAGED_ERR_GONE, "has ended, or is in another PID namespace");
	REFUSE(handle.bytes[0] ^= 1, PAGED_ERR_BACKEND, "pool test: cuIpcOpenEventHandle: CUDA_ERROR_INVALID_VALUE");
	setenv("PAGED_FAKE_CUDA_FAIL", "cuIpcOpenEventHandle=400", 1);
	REFUSE(event = good.event, PAGED_ERR_BACKEND, "cuIpcOpenEventHandle: CUDA_ERROR_INVALID_HANDLE");
	setenv("PAGED_FAKE_CUDA_FAIL", "cuStreamWaitEvent=999", 1);
	REFUSE(event = good.event, PAGED_ERR_BACKEND, "cuStreamWaitEvent: CUDA_ERROR_UNKNOWN");
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	capture_begin(&fixture);
	REFUSE(event = good.event, PAGED_ERR_UNSUPPORTED, "a graph waits for no marks");
	capture_end(&fixture);
	batch_fixture_expect(&fixture, paged_batch_wait(fixture.batch, NULL), PAGED_ERR_INVALID);
	batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &news.mark));
	attend(&fixture);
	batch_fixture_check(&fixture);
	/* One's own, with a number that was never given. */
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &news.mark));
	memcpy(&good, &news.mark, sizeof(good));
	REFUSE(event++, PAGED_ERR_INVALID, "this process made no such mark");
	batch_fixture_close(&fixture);
}

IT_TEST(what_is_no_mark_is_refused)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct news news;

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_fork(&first, writer, NULL);
	it_fork(&second, critic, NULL);
	it_receive(first.from, &news, sizeof(news));
	it_send(second.to, &news, sizeof(news));
	it_join(&second);
	it_send(first.to, "e", 1);
	it_join(&first);
	it_daemon_stop(&daemon);
}

/* Marks that cannot be made */

static void
refused_mark(struct batch_fixture *fixture, enum paged_status wanted, const char *words)
{
	struct paged_mark mark;

	batch_fixture_expect(fixture, paged_batch_mark(fixture->batch, &mark), wanted);
	it_require(strstr(paged_client_error(fixture->client), words) != NULL, "%s",
		   paged_client_error(fixture->client));
}

static void
unable(int from, int to, void *argument)
{
	static const char *const calls[] = { "cuEventCreate", "cuIpcGetEventHandle", "cuEventRecord" };
	struct paged_mark mark;
	struct batch_fixture fixture;
	char fail[64];

	(void)from, (void)to, (void)argument;
	open_as(&fixture, 1);
	batch_fixture_expect(&fixture, paged_batch_mark(fixture.batch, NULL), PAGED_ERR_INVALID);
	capture_begin(&fixture);
	refused_mark(&fixture, PAGED_ERR_UNSUPPORTED,
		     "pool test: the stream is being captured, and a graph has no marks");
	batch_fixture_expect(&fixture, paged_batch_finish(fixture.batch), PAGED_ERR_UNSUPPORTED);
	capture_end(&fixture);
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(fail, sizeof(fail), "%s=999", calls[i]);
		setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
		refused_mark(&fixture, PAGED_ERR_BACKEND, calls[i]);
	}
	setenv("PAGED_FAKE_CUDA_FAIL", "cuStreamSynchronize=719", 1);
	batch_fixture_expect(&fixture, paged_batch_finish(fixture.batch), PAGED_ERR_BACKEND);
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &mark));
	batch_fixture_close(&fixture);
}

static void
eventless(int from, int to, void *argument)
{
	struct batch_fixture fixture;

	(void)from, (void)to, (void)argument;
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "125=0", 1);
	open_as(&fixture, 1);
	refused_mark(&fixture, PAGED_ERR_UNSUPPORTED, "shares no events between processes; use paged_batch_finish()");
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	batch_fixture_close(&fixture);
}

IT_TEST(marks_that_cannot_be_made_are_refused)
{
	struct it_worker child;
	struct it_daemon daemon;

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_fork(&child, unable, NULL);
	it_join(&child);
	it_fork(&child, eventless, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

/* The owner is gone: whoever waits is told, whoever finishes can. */
static void
orphan(int from, int to, void *argument)
{
	struct paged_mark mark;
	struct batch_fixture fixture;
	char word;

	(void)argument;
	open_as(&fixture, 1);
	batch_fixture_write(&fixture, 0, 0, 19);
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &mark));
	it_send(to, "m", 1);
	it_receive(from, &word, 1);
	batch_fixture_expect(&fixture, paged_client_ping(fixture.client), PAGED_ERR_GONE);
	batch_fixture_expect(&fixture, paged_batch_wait(fixture.batch, &mark), PAGED_ERR_GONE);
	batch_fixture_expect(&fixture, paged_batch_mark(fixture.batch, &mark), PAGED_ERR_GONE);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	batch_fixture_close(&fixture);
}

IT_TEST(the_daemon_is_gone)
{
	struct it_worker child;
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_VMM, "", "");
	it_fork(&child, orphan, NULL);
	it_receive(child.from, &word, 1);
	it_daemon_kill(&daemon);
	it_send(child.to, "k", 1);
	it_join(&child);
}

IT_MAIN
