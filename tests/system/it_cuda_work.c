/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of a real pagedd at work on a pool in a GPU's memory, over the fake CUDA driver. */
#include "config.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "tests/system/batch_fixture.h"
#include "tests/system/cuda_daemon.h"
#include "tests/support/sequences.h"
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

static void
open_and_write(struct scene *scene, uint32_t n_rows)
{
	struct scene_params params = served;

	it_require(fake_cuda_load(), "%s", dlerror());
	params.n_rows = n_rows;
	scene_open(scene, &params);
	for (uint32_t r = 0; r < n_rows; r++)
		scene_write(scene, r, 0, params.rows[r].kv_len);
}

static void
plan(struct scene *scene)
{
	struct paged_batch_row rows[SCENE_MAX_ROWS];

	scene_rows(scene, rows);
	scene_ok(scene, paged_batch_plan(scene->batch, scene->params.n_rows, rows));
}

/* Two sessions: one writes, the other reads in place. */

static void
writer(int from, int to, void *argument)
{
	struct scene scene;
	uint32_t less = 4;
	char word;

	(void)argument;
	open_and_write(&scene, 2);
	scene_ok(&scene, paged_batch_validate(scene.batch));
	it_say(to, scene.seq, sizeof(scene.seq));
	it_hear(from, &word, 1);
	scene_ok(&scene, seqs_truncate(scene.client, 1, &scene.seq[1], &less));
	it_say(to, "t", 1);
	it_hear(from, &word, 1);
	scene_close(&scene);
}

static void
reader(int from, int to, void *argument)
{
	struct scene scene;
	char word;

	(void)argument;
	open_and_write(&scene, 0);
	scene.params = served;
	scene.total_q = 4;
	it_hear(from, scene.seq, sizeof(scene.seq));
	scene.out = scene_tensor(&scene, PAGED_F32, 4, WORKER_HEADS, WORKER_DIM);
	scene.lse = scene_put(&scene, NULL, 4 * WORKER_HEADS * sizeof(float));
	scene.max_score = scene_put(&scene, NULL, 4 * WORKER_HEADS * sizeof(float));
	plan(&scene);
	scene_ok(&scene, scene_attend(&scene, NULL));
	scene_ok(&scene, paged_batch_validate(scene.batch));
	scene_check(&scene);
	it_say(to, "r", 1);
	it_hear(from, &word, 1);
	scene_expect(&scene, paged_batch_validate(scene.batch), PAGED_ERR_STALE);
	scene_close(&scene);
}

static void foreign_read(enum export_setting export)
{
	struct it_worker first, second;
	paged_seq_id seq[SCENE_MAX_ROWS];
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&first, writer, NULL);
	it_fork(&second, reader, NULL);
	it_hear(first.from, seq, sizeof(seq));
	it_say(second.to, seq, sizeof(seq));
	it_hear(second.from, &word, 1);
	it_say(first.to, "g", 1);
	it_hear(first.from, &word, 1);
	it_say(second.to, "t", 1);
	it_join(&second);
	it_say(first.to, "e", 1);
	it_join(&first);
	it_daemon_stop(&daemon);
}

IT_TEST(another_session_reads_in_place_through_vmm)
{
	foreign_read(EXPORT_SETTING_VMM);
}

IT_TEST(another_session_reads_in_place_through_legacy)
{
	foreign_read(EXPORT_SETTING_LEGACY);
}

/* Attention again and again, so that kernels run whenever somebody is killed; until a word comes or a call fails. */
static enum paged_status
work_on(struct scene *scene, int from)
{
	struct pollfd heard = { .fd = from, .events = POLLIN };
	struct paged_tensor q = scene_queries(scene);
	enum paged_status status;

	do {
		status = paged_attention(scene->batch, SCENE_LAYER, &q, &scene->out, NULL);
		/* The fake driver's streams move when they are asked. */
		scene->gpu.driver.stream_query(scene->stream);
	} while (status == PAGED_OK && poll(&heard, 1, 0) == 0);
	return status;
}

/* Killed with work in its stream: the pages come back, and serve the next. */

static void
victim(int from, int to, void *argument)
{
	struct scene scene;

	(void)argument;
	open_and_write(&scene, 2);
	plan(&scene);
	it_say(to, "w", 1);
	scene_ok(&scene, work_on(&scene, from));
}

static void
successor(int from, int to, void *argument)
{
	struct scene scene;

	(void)from, (void)to, (void)argument;
	open_and_write(&scene, 2);
	plan(&scene);
	scene_ok(&scene, scene_attend(&scene, NULL));
	scene_ok(&scene, paged_batch_validate(scene.batch));
	scene_check(&scene);
	scene_close(&scene);
}

IT_TEST(a_worker_is_killed_at_work)
{
	struct paged_client_params params = worker_params("observer");
	struct it_worker child;
	struct it_daemon daemon;
	struct worker_fixture worker;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	params.observer = 1;
	for (unsigned int i = 0; i < 2; i++) {
		it_fork(&child, victim, NULL);
		it_hear(child.from, &word, 1);
		it_kill(&child);
	}
	worker_attach(&worker, &params);
	worker_wait_free(&worker, "test", 5000);
	paged_client_close(worker.client);
	it_fork(&child, successor, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

/* The daemon dies: plans are refused, work in the stream ends in good order. */
static void
orphan(int from, int to, void *argument)
{
	struct scene scene;
	char word;

	(void)argument;
	open_and_write(&scene, 2);
	plan(&scene);
	it_say(to, "w", 1);
	scene_ok(&scene, work_on(&scene, from));
	it_hear(from, &word, 1);
	scene_expect(&scene, paged_client_ping(scene.client), PAGED_ERR_GONE);
	scene_ok(&scene, scene_attend(&scene, NULL));
	scene_check(&scene);
	scene_expect(&scene, paged_batch_validate(scene.batch), PAGED_ERR_GONE);
	scene_expect(&scene, paged_batch_plan(scene.batch, 0, NULL), PAGED_ERR_GONE);
	scene_close(&scene);
}

/* CUDA does not say what becomes of such memory: what is asked is that the worker is told, and ends. */
static void
orphan_of_legacy(int from, int to, void *argument)
{
	struct scene scene;
	char word;

	(void)argument;
	open_and_write(&scene, 2);
	plan(&scene);
	it_say(to, "w", 1);
	if (work_on(&scene, from) != PAGED_OK)
		it_note("%s", paged_client_error(scene.client));
	it_hear(from, &word, 1);
	scene_expect(&scene, paged_client_ping(scene.client), PAGED_ERR_GONE);
	paged_client_close(scene.client);
}

static void
daemon_dies(enum export_setting export, void (*run)(int from, int to, void *argument))
{
	struct it_worker child;
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&child, run, NULL);
	it_hear(child.from, &word, 1);
	it_daemon_kill(&daemon);
	it_say(child.to, "k", 1);
	it_join(&child);
}

IT_TEST(the_daemon_is_killed_at_work)
{
	daemon_dies(EXPORT_SETTING_VMM, orphan);
}

IT_TEST(the_daemon_of_legacy_memory_is_killed_at_work)
{
	daemon_dies(EXPORT_SETTING_LEGACY, orphan_of_legacy);
}

IT_MAIN
