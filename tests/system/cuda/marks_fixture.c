/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/cuda/marks_fixture.h"

#include <string.h>

#include "tests/fake-cuda/load.h"
#include "tests/support/worker_fixture.h"

const struct batch_fixture_params marks_params = {
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

void
marks_writer_open(struct batch_fixture *fixture, uint32_t n_rows)
{
	struct batch_fixture_params params = marks_params;

	it_require(fake_cuda_load(), "%s", dlerror());
	params.n_rows = n_rows;
	batch_fixture_open(fixture, &params);
}

void
marks_reader_open(struct batch_fixture *fixture, int from, struct marks_message *message)
{
	uint32_t total_q = 4;

	marks_writer_open(fixture, 0);
	fixture->params = marks_params;
	fixture->total_q = total_q;
	it_receive(from, message, sizeof(*message));
	memcpy(fixture->seq, message->seq, sizeof(fixture->seq));
	fixture->out = batch_fixture_tensor(fixture, PAGED_F32, total_q, WORKER_HEADS, WORKER_DIM);
	fixture->lse = batch_fixture_put(fixture, NULL, total_q * WORKER_HEADS * sizeof(float));
	fixture->max_score = batch_fixture_put(fixture, NULL, total_q * WORKER_HEADS * sizeof(float));
}

void
marks_plan_and_attend(struct batch_fixture *fixture)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];

	batch_fixture_rows(fixture, rows);
	batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, fixture->params.n_rows, rows));
	batch_fixture_ok(fixture, batch_fixture_attend(fixture, NULL));
}

void
marks_writer(int from, int to, void *argument)
{
	struct marks_message message;
	struct batch_fixture fixture;
	char word;

	(void)argument;
	marks_writer_open(&fixture, 2);
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, marks_params.rows[r].kv_len);
	memcpy(message.seq, fixture.seq, sizeof(message.seq));
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &message.mark));
	it_send(to, &message, sizeof(message));
	it_receive(from, &word, 1);
	batch_fixture_close(&fixture);
}

void
marks_writer_and_reader_run(void (*reads)(int from, int to, void *argument), void *argument)
{
	struct it_worker first, second;
	struct marks_message message;

	it_fork(&first, marks_writer, NULL);
	it_fork(&second, reads, argument);
	it_receive(first.from, &message, sizeof(message));
	it_send(second.to, &message, sizeof(message));
	it_join(&second);
	it_send(first.to, "e", 1);
	it_join(&first);
}
