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

static const struct scene_params served = {
	.backend = "cuda",
	.served = "test",
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
	paged_seq_id seq[SCENE_MAX_ROWS];
	struct paged_mark mark;
};

static void
open_as(struct scene *scene, uint32_t n_rows)
{
	struct scene_params params = served;

	it_require(fake_cuda_load(), "%s", dlerror());
	params.n_rows = n_rows;
	scene_open(scene, &params);
}

/* Another process's sequences, and room for what attention gives. */
static void
open_reader(struct scene *scene, int from, struct news *news)
{
	uint32_t total_q = 4;

	open_as(scene, 0);
	scene->params = served;
	scene->total_q = total_q;
	it_hear(from, news, sizeof(*news));
	memcpy(scene->seq, news->seq, sizeof(scene->seq));
	scene->out = scene_tensor(scene, PAGED_F32, total_q, WORKER_HEADS, WORKER_DIM);
	scene->lse = scene_put(scene, NULL, total_q * WORKER_HEADS * sizeof(float));
	scene->max_score = scene_put(scene, NULL, total_q * WORKER_HEADS * sizeof(float));
}

static void
attend(struct scene *scene)
{
	struct paged_batch_row rows[SCENE_MAX_ROWS];

	scene_rows(scene, rows);
	scene_ok(scene, paged_batch_plan(scene->batch, scene->params.n_rows, rows));
	scene_ok(scene, scene_attend(scene, NULL));
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
	struct scene scene;
	char word;

	(void)argument;
	open_as(&scene, 2);
	for (uint32_t r = 0; r < 2; r++)
		scene_write(&scene, r, 0, served.rows[r].kv_len);
	memcpy(news.seq, scene.seq, sizeof(news.seq));
	scene_ok(&scene, paged_batch_mark(scene.batch, &news.mark));
	it_say(to, &news, sizeof(news));
	it_hear(from, &word, 1);
	scene_close(&scene);
}

/* Of keys that nobody wrote: NaN through legacy, and zeros through vmm, whose scores are zeros. */
static bool
is_of_empty_pages(float lse)
{
	return isnan(lse) || fabsf(lse - logf((float)served.rows[0].kv_len)) < 1e-5f;
}

static void
reader(int from, int to, void *argument)
{
	struct scene scene;
	struct news news;
	float lse;

	(void)to, (void)argument;
	open_reader(&scene, from, &news);
	if (fake_cuda_wanted()) {
		attend(&scene);
		scene_get(&scene, &lse, scene.lse, sizeof(lse));
		it_require(is_of_empty_pages(lse), "the writer's stream has not moved, and its appends are seen: %g",
			   lse);
	}
	scene_ok(&scene, paged_batch_wait(scene.batch, &news.mark));
	attend(&scene);
	scene_check(&scene);
	scene_close(&scene);
}

static void write_and_read(enum export_setting export)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct news news;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&first, writer, NULL);
	it_fork(&second, reader, NULL);
	it_hear(first.from, &news, sizeof(news));
	it_say(second.to, &news, sizeof(news));
	it_join(&second);
	it_say(first.to, "e", 1);
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
	struct scene scene;
	char word;

	(void)argument;
	open_as(&scene, 2);
	for (uint32_t r = 0; r < 2; r++)
		scene_write(&scene, r, 0, served.rows[r].kv_len);
	scene_ok(&scene, paged_batch_finish(scene.batch));
	memcpy(news.seq, scene.seq, sizeof(news.seq));
	it_say(to, &news, sizeof(news));
	it_hear(from, &word, 1);
	scene_close(&scene);
}

static void
late_reader(int from, int to, void *argument)
{
	struct scene scene;
	struct news news;

	(void)to, (void)argument;
	open_reader(&scene, from, &news);
	attend(&scene);
	scene_check(&scene);
	scene_close(&scene);
}

IT_TEST(a_writer_may_wait_instead)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct news news;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_fork(&first, finisher, NULL);
	it_fork(&second, late_reader, NULL);
	it_hear(first.from, &news, sizeof(news));
	it_say(second.to, &news, sizeof(news));
	it_join(&second);
	it_say(first.to, "e", 1);
	it_join(&first);
	it_daemon_stop(&daemon);
}

/* One event for any number of marks, on both sides */

#define N_MARKS 19u

static void
often(int from, int to, void *argument)
{
	struct news news;
	struct scene scene;
	char word;

	(void)argument;
	open_as(&scene, 1);
	memcpy(news.seq, scene.seq, sizeof(news.seq));
	for (uint32_t at = 0; at < N_MARKS; at++) {
		scene_write(&scene, 0, at, at + 1);
		scene_ok(&scene, paged_batch_mark(scene.batch, &news.mark));
		it_say(to, &news, sizeof(news));
		it_hear(from, &word, 1);
	}
	it_require(fake_cuda_n_calls("cuIpcGetEventHandle") == 1 && fake_cuda_n_calls("cuEventRecord") >= N_MARKS);
	scene_close(&scene);
}

static void
follower(int from, int to, void *argument)
{
	struct scene scene;
	struct news news;

	(void)argument;
	open_reader(&scene, from, &news);
	scene.params.n_rows = 1;
	scene.total_q = 1;
	for (uint32_t at = 0; at < N_MARKS; at++) {
		if (at > 0)
			it_hear(from, &news, sizeof(news));
		scene.params.rows[0].kv_len = at + 1;
		scene_ok(&scene, paged_batch_wait(scene.batch, &news.mark));
		attend(&scene);
		scene_check(&scene);
		it_say(to, "n", 1);
	}
	it_require(fake_cuda_n_calls("cuIpcOpenEventHandle") == 1);
	scene_close(&scene);
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
		it_hear(first.from, &news, sizeof(news));
		it_say(second.to, &news, sizeof(news));
		it_hear(second.from, &word, 1);
		it_say(first.to, &word, 1);
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
	struct scene scene;
	cuda_stream stream;

	(void)from, (void)to, (void)argument;
	open_as(&scene, 2);
	scene_ok(&scene, paged_batch_create(scene.pool, &params, &other));
	it_require(scene.gpu.driver.stream_create(&stream, CUDA_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	scene_ok(&scene, paged_batch_stream(other, stream));
	for (uint32_t r = 0; r < 2; r++)
		scene_write(&scene, r, 0, served.rows[r].kv_len);
	scene_ok(&scene, paged_batch_mark(scene.batch, &mark));
	scene_ok(&scene, paged_batch_wait(other, &mark));
	scene_ok(&scene, paged_batch_finish(other));
	/* Waiting for the one stream has moved the other, so this finds nothing left to do. */
	it_require(scene.gpu.driver.stream_query(scene.stream) == CUDA_SUCCESS);
	scene_ok(&scene, paged_batch_mark(other, &mark));
	paged_batch_destroy(other);
	scene_ok(&scene, paged_batch_wait(scene.batch, &mark));
	scene_ok(&scene, paged_batch_create(scene.pool, &params, &other));
	scene_ok(&scene, paged_batch_mark(other, &mark));
	it_require(fake_cuda_n_calls("cuIpcGetEventHandle") == 2, "the third batch has the second's event");
	it_require(fake_cuda_n_calls("cuIpcOpenEventHandle") == 0);
	it_require(scene.gpu.driver.stream_destroy(stream) == CUDA_SUCCESS);
	scene_close(&scene);
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
	struct scene scene;
	struct news news;
	char word;

	open_reader(&scene, from, &news);
	n_fds = it_count_fds(getpid());
	if (waits_before)
		scene_ok(&scene, paged_batch_wait(scene.batch, &news.mark));
	scene_ok(&scene, paged_batch_finish(scene.batch));
	it_say(to, "r", 1);
	it_hear(from, &word, 1);
	scene_expect(&scene, paged_batch_wait(scene.batch, &news.mark), PAGED_ERR_GONE);
	it_require(strstr(paged_client_error(scene.client), "pool test: process ") != NULL &&
			   strstr(paged_client_error(scene.client), " has ended") != NULL,
		   "%s", paged_client_error(scene.client));
	/* Nothing of the dead is left, and the stream goes on. */
	it_require(it_count_fds(getpid()) == n_fds, "%u descriptors, %u before", it_count_fds(getpid()), n_fds);
	scene_ok(&scene, paged_batch_finish(scene.batch));
	scene_close(&scene);
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
	it_hear(first.from, &news, sizeof(news));
	it_say(second.to, &news, sizeof(news));
	it_hear(second.from, &word, 1);
	it_kill(&first);
	it_say(second.to, "k", 1);
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
capture_begin(const struct scene *scene)
{
	it_require(cuda_graphs_find(&graphs, &scene->gpu.driver));
	it_require(graphs.begin(scene->stream, CUDA_CAPTURE_GLOBAL) == CUDA_SUCCESS);
}

static void
capture_end(const struct scene *scene)
{
	cuda_graph graph;

	it_require(graphs.end(scene->stream, &graph) == CUDA_SUCCESS);
	it_require(graphs.destroy(graph) == CUDA_SUCCESS);
}

/* Bytes of a peer */

static void
refuse(struct scene *scene, const struct mark *mark, enum paged_status wanted, const char *words)
{
	struct paged_mark bytes = { { 0 } };

	memcpy(&bytes, mark, sizeof(*mark));
	scene_expect(scene, paged_batch_wait(scene->batch, &bytes), wanted);
	it_require(strstr(paged_client_error(scene->client), words) != NULL, "%s", paged_client_error(scene->client));
}

#define REFUSE(field, wanted, words)                     \
	do {                                             \
		struct mark wrong = good;                \
                                                         \
		wrong.field;                             \
		refuse(&scene, &wrong, (wanted), words); \
	} while (0)

static void
critic(int from, int to, void *argument)
{
	struct scene scene;
	struct news news;
	struct mark good;

	(void)to, (void)argument;
	open_reader(&scene, from, &news);
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
	capture_begin(&scene);
	REFUSE(event = good.event, PAGED_ERR_UNSUPPORTED, "a graph waits for no marks");
	capture_end(&scene);
	scene_expect(&scene, paged_batch_wait(scene.batch, NULL), PAGED_ERR_INVALID);
	scene_ok(&scene, paged_batch_wait(scene.batch, &news.mark));
	attend(&scene);
	scene_check(&scene);
	/* One's own, with a number that was never given. */
	scene_ok(&scene, paged_batch_mark(scene.batch, &news.mark));
	memcpy(&good, &news.mark, sizeof(good));
	REFUSE(event++, PAGED_ERR_INVALID, "this process made no such mark");
	scene_close(&scene);
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
	it_hear(first.from, &news, sizeof(news));
	it_say(second.to, &news, sizeof(news));
	it_join(&second);
	it_say(first.to, "e", 1);
	it_join(&first);
	it_daemon_stop(&daemon);
}

/* Marks that cannot be made */

static void
refused_mark(struct scene *scene, enum paged_status wanted, const char *words)
{
	struct paged_mark mark;

	scene_expect(scene, paged_batch_mark(scene->batch, &mark), wanted);
	it_require(strstr(paged_client_error(scene->client), words) != NULL, "%s", paged_client_error(scene->client));
}

static void
unable(int from, int to, void *argument)
{
	static const char *const calls[] = { "cuEventCreate", "cuIpcGetEventHandle", "cuEventRecord" };
	struct paged_mark mark;
	struct scene scene;
	char fail[64];

	(void)from, (void)to, (void)argument;
	open_as(&scene, 1);
	scene_expect(&scene, paged_batch_mark(scene.batch, NULL), PAGED_ERR_INVALID);
	capture_begin(&scene);
	refused_mark(&scene, PAGED_ERR_UNSUPPORTED,
		     "pool test: the stream is being captured, and a graph has no marks");
	scene_expect(&scene, paged_batch_finish(scene.batch), PAGED_ERR_UNSUPPORTED);
	capture_end(&scene);
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(fail, sizeof(fail), "%s=999", calls[i]);
		setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
		refused_mark(&scene, PAGED_ERR_BACKEND, calls[i]);
	}
	setenv("PAGED_FAKE_CUDA_FAIL", "cuStreamSynchronize=719", 1);
	scene_expect(&scene, paged_batch_finish(scene.batch), PAGED_ERR_BACKEND);
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	scene_ok(&scene, paged_batch_mark(scene.batch, &mark));
	scene_close(&scene);
}

static void
eventless(int from, int to, void *argument)
{
	struct scene scene;

	(void)from, (void)to, (void)argument;
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "125=0", 1);
	open_as(&scene, 1);
	refused_mark(&scene, PAGED_ERR_UNSUPPORTED, "shares no events between processes; use paged_batch_finish()");
	scene_ok(&scene, paged_batch_finish(scene.batch));
	scene_close(&scene);
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
	struct scene scene;
	char word;

	(void)argument;
	open_as(&scene, 1);
	scene_write(&scene, 0, 0, 19);
	scene_ok(&scene, paged_batch_mark(scene.batch, &mark));
	it_say(to, "m", 1);
	it_hear(from, &word, 1);
	scene_expect(&scene, paged_client_ping(scene.client), PAGED_ERR_GONE);
	scene_expect(&scene, paged_batch_wait(scene.batch, &mark), PAGED_ERR_GONE);
	scene_expect(&scene, paged_batch_mark(scene.batch, &mark), PAGED_ERR_GONE);
	scene_ok(&scene, paged_batch_finish(scene.batch));
	scene_close(&scene);
}

IT_TEST(the_daemon_is_gone)
{
	struct it_worker child;
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_VMM, "", "");
	it_fork(&child, orphan, NULL);
	it_hear(child.from, &word, 1);
	it_daemon_kill(&daemon);
	it_say(child.to, "k", 1);
	it_join(&child);
}

IT_MAIN
