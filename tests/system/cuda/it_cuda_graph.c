/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured graphs: workers of a real pagedd that capture a decoding step once
 * and replay it, each replay held to the host's kernels.  Over the fake
 * CUDA driver, or a GPU.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/nvrtc.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/decode_fixture.h"
#include "tests/support/sequences.h"
#include "tests/fake-cuda/load.h"

#define N_REPLAYS 1000u

/* Run the function in a worker of a new daemon. */
static void
run_with_daemon(void (*run)(int from, int to, void *argument))
{
	struct it_daemon daemon;
	struct it_worker worker;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", DECODE_POOL);
	it_fork(&worker, run, NULL);
	it_join(&worker);
	it_daemon_stop(&daemon);
}

static void
engine_open(struct decode_engine *engine, struct decode_batch *decode)
{
	it_require(fake_cuda_load(), "%s", dlerror());
	decode_open(engine);
	decode_batch_open(engine, decode, 1);
}

static void
engine_close(struct decode_engine *engine, struct decode_batch *decode)
{
	decode_batch_close(decode);
	decode_close(engine);
}

static int
capturing(const struct decode_batch *decode)
{
	int status = -1;

	decode_cuda(decode->engine->gpu.driver.stream_capturing(decode->stream, &status));
	return status;
}

static void
expect_refused(struct paged_client *client, enum paged_status status, enum paged_status wanted, const char *sentence)
{
	it_require(status == wanted && strstr(paged_client_error(client), sentence) != NULL, "%s: %s",
		   paged_status_name(status), paged_client_error(client));
}

/* Sequences grow, end and are replaced, and rows become empty, without a new capture. */
static void
replay_many_steps(int from, int to, void *argument)
{
	struct decode_engine engine;
	struct decode_batch decode;

	(void)from, (void)to, (void)argument;
	engine_open(&engine, &decode);
	decode_capture(&decode, CUDA_CAPTURE_GLOBAL);
	for (unsigned int i = 0; i < N_REPLAYS; i++)
		if (i % 50 == 49)
			decode_eager(&decode);
		else
			decode_replay(&decode);
	engine_close(&engine, &decode);
}

IT_TEST(graph_replays_a_thousand_steps)
{
	run_with_daemon(replay_many_steps);
}

/* The same with programmatic dependent launches, which a graph keeps. */
static void
replay_overlapping_launches(int from, int to, void *argument)
{
	struct decode_engine engine;
	struct decode_batch decode;

	(void)from, (void)to, (void)argument;
	engine_open(&engine, &decode);
	decode_capture(&decode, CUDA_CAPTURE_GLOBAL);
	for (unsigned int i = 0; i < 60; i++)
		if (i % 10 == 9)
			decode_eager(&decode);
		else
			decode_replay(&decode);
	engine_close(&engine, &decode);
}

IT_OPT_IN_TEST(PAGED_PDL, graph_replays_overlapping_launches)
{
	run_with_daemon(replay_overlapping_launches);
}

/* Two batches with a graph and a stream each, replayed alternately. */
static void
replay_two_batches(int from, int to, void *argument)
{
	struct paged_batch_row rows[2][DECODE_ROWS];
	struct decode_batch decode[2];
	struct decode_engine engine;

	(void)from, (void)to, (void)argument;
	engine_open(&engine, &decode[0]);
	decode_batch_open(&engine, &decode[1], 2);
	/* The second batch is captured while the first has work in flight. */
	decode_capture(&decode[0], CUDA_CAPTURE_GLOBAL);
	decode_next(&decode[0]);
	decode_rows(&decode[0], rows[0]);
	decode_ok(engine.client, decode_tables(&decode[0], DECODE_ROWS, rows[0]));
	decode_launch(&decode[0]);
	decode_capture(&decode[1], CUDA_CAPTURE_THREAD_LOCAL);
	decode_check(&decode[0]);
	for (unsigned int i = 0; i < 20; i++) {
		for (unsigned int k = 0; k < 2; k++) {
			decode_next(&decode[k]);
			decode_rows(&decode[k], rows[k]);
			decode_ok(engine.client, decode_tables(&decode[k], DECODE_ROWS, rows[k]));
			decode_launch(&decode[k]);
		}
		decode_check(&decode[i % 2]);
		decode_check(&decode[1 - i % 2]);
	}
	decode_batch_close(&decode[1]);
	decode_replay(&decode[0]);
	engine_close(&engine, &decode[0]);
}

IT_TEST(two_batches_replay_their_graphs)
{
	run_with_daemon(replay_two_batches);
}

/* The graph is captured on one stream and replayed on another, which the batch is moved to. */
static void
replay_on_another_stream(int from, int to, void *argument)
{
	struct decode_engine engine;
	struct decode_batch decode;
	cuda_stream captured;

	(void)from, (void)to, (void)argument;
	engine_open(&engine, &decode);
	decode_capture(&decode, CUDA_CAPTURE_RELAXED);
	captured = decode.stream;
	decode_cuda(engine.gpu.driver.stream_create(&decode.stream, CUDA_STREAM_NON_BLOCKING));
	decode_ok(engine.client, paged_batch_stream(decode.batch, decode.stream));
	decode_cuda(engine.gpu.driver.stream_destroy(captured));
	for (unsigned int i = 0; i < 10; i++)
		decode_replay(&decode);
	/* The graph may outlive its batch if it is not launched. */
	engine_close(&engine, &decode);
}

IT_TEST(graph_replays_on_another_stream)
{
	run_with_daemon(replay_on_another_stream);
}

/* Calls that cannot be captured are refused with an error message, and the capture stays valid. */
static void
call_while_capturing(int from, int to, void *argument)
{
	const struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 2 };
	struct paged_batch_row rows[DECODE_ROWS];
	struct decode_batch decode, other;
	struct decode_engine engine;
	struct paged_tensor k;
	struct paged_batch *batch;
	cuda_graph graph;

	(void)from, (void)to, (void)argument;
	engine_open(&engine, &decode);
	decode_batch_open(&engine, &other, 3);
	decode_eager(&decode);
	decode_next(&decode);
	decode_rows(&decode, rows);
	k = (struct paged_tensor){ .data = (void *)(uintptr_t)decode.device_input,
				   .dtype = PAGED_F32,
				   .n_heads = DECODE_KV_HEADS,
				   .dim = DECODE_DIM };
	decode_cuda(engine.graphs.begin(decode.stream, CUDA_CAPTURE_GLOBAL));
	expect_refused(engine.client, paged_batch_validate(decode.batch), PAGED_ERR_UNSUPPORTED,
		       "the stream is being captured: what is wrong is known after a replay");
	expect_refused(engine.client, paged_append(decode.batch, 0, &k, &k, NULL), PAGED_ERR_INVALID,
		       "the plan was made before: capture paged_batch_plan_device() too");
	expect_refused(
		engine.client, paged_batch_plan(decode.batch, 0, rows), PAGED_ERR_UNSUPPORTED,
		"a graph has no part for lengths and page tables from the host: capture paged_batch_plan_device()");
	expect_refused(engine.client, decode_tables(&decode, DECODE_ROWS, rows), PAGED_ERR_UNSUPPORTED,
		       "a graph has no part for page tables from the host: bring them over before each replay");
	/* During the capture, allocations and another batch's calls and waits work. */
	decode_ok(engine.client, paged_batch_create(engine.pool, &params, &batch));
	paged_batch_destroy(batch);
	decode_eager(&other);
	decode_ok(engine.client, paged_batch_plan(other.batch, 0, rows));
	it_require(capturing(&decode) == CUDA_CAPTURE_ACTIVE);
	decode_bounds(rows);
	decode_enqueue(&decode, rows);
	decode_cuda(engine.graphs.end(decode.stream, &graph));
	decode_cuda(engine.graphs.instantiate(&decode.exec, graph, 0));
	/* The captured plan has not been executed. */
	expect_refused(engine.client, paged_append(decode.batch, 0, &k, &k, NULL), PAGED_ERR_INVALID,
		       "the plan is a captured graph's: outside of it plan again");
	decode_cuda(engine.graphs.destroy(graph));
	decode_rows(&decode, rows);
	decode_ok(engine.client, decode_tables(&decode, DECODE_ROWS, rows));
	expect_refused(engine.client, paged_append(decode.batch, 0, &k, &k, NULL), PAGED_ERR_INVALID,
		       "the plan has tables alone");
	decode_launch(&decode);
	decode_check(&decode);
	decode_replay(&decode);
	decode_batch_close(&other);
	engine_close(&engine, &decode);
}

IT_TEST(refused_calls_keep_the_capture_valid)
{
	run_with_daemon(call_while_capturing);
}

/* The legacy default stream synchronises with blocking streams, so a launch on it would invalidate their captures. */
static void
merge_during_capture(int from, int to, void *argument)
{
	const struct paged_tensor tensor = { .dtype = PAGED_F32, .n_heads = 1, .dim = DECODE_DIM };
	struct paged_merge_params merge = {
		.struct_size = sizeof(merge), .n_tokens = 1, .part = { tensor, tensor }, .out = tensor
	};
	struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 2 };
	struct paged_batch_row rows[DECODE_ROWS];
	struct decode_batch decode;
	struct decode_engine engine;
	struct paged_batch *batch;
	cuda_stream blocking;
	cuda_graph graph;
	float *memory;

	(void)from, (void)to, (void)argument;
	engine_open(&engine, &decode);
	decode_rows(&decode, rows);
	decode_ok(engine.client, paged_batch_create(engine.pool, &params, &batch));
	memory = (float *)(uintptr_t)decode.device_output;
	merge.part[0].data = merge.out.data = memory;
	merge.part[1].data = memory + DECODE_DIM;
	merge.part_lse[0] = merge.part_lse[1] = memory + 2 * DECODE_DIM;
	decode_cuda(engine.gpu.driver.stream_create(&blocking, 0));
	decode_cuda(engine.graphs.begin(blocking, CUDA_CAPTURE_RELAXED));
	expect_refused(engine.client, paged_merge(batch, &merge), PAGED_ERR_BACKEND, "cuStreamIsCapturing");
	expect_refused(engine.client, paged_batch_plan(batch, 0, rows), PAGED_ERR_BACKEND, "cuStreamIsCapturing");
	decode_cuda(engine.graphs.end(blocking, &graph));
	decode_cuda(engine.graphs.destroy(graph));
	decode_ok(engine.client, paged_merge(batch, &merge));
	decode_ok(engine.client, paged_batch_plan(batch, 0, rows));
	decode_ok(engine.client, paged_batch_validate(batch));
	paged_batch_destroy(batch);
	decode_cuda(engine.gpu.driver.stream_destroy(blocking));
	engine_close(&engine, &decode);
}

IT_TEST(merge_keeps_other_captures_valid)
{
	run_with_daemon(merge_during_capture);
}

/* Mods are bound and prepared before the capture; values bound between replays apply to the next replay. */
static struct paged_mod_set *
mods_make(struct paged_client *client, struct paged_pool *pool, struct paged_batch *batch)
{
	const struct paged_array names[] = { { .name = "window", .dtype = PAGED_I32 },
					     { .name = "slope", .dtype = PAGED_F32 } };
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct paged_mod_set *mods;
	struct paged_mod *mod;

	decode_ok(client, paged_mod_parse(pool, PAGED_MOD_MASK, "q_idx - kv_idx < window", 2, names, &mod));
	params.mask = mod;
	decode_ok(client, paged_mod_parse(pool, PAGED_MOD_SCORE, "score + slope * (kv_idx - q_idx)", 2, names, &mod));
	params.score = mod;
	decode_ok(client, paged_mod_set_create(batch, &params, &mods));
	return mods;
}

static void
mods_bind(struct decode_batch *decode, int32_t window, float slope)
{
	const struct paged_array arrays[] = { { .name = "window", .dtype = PAGED_I32, .data = &window },
					      { .name = "slope", .dtype = PAGED_F32, .data = &slope } };

	decode_ok(decode->engine->client, paged_mod_set_bind(decode->mod_set, 2, arrays, NULL));
	decode_ok(decode->engine->host_client, paged_mod_set_bind(decode->host_mod_set, 2, arrays, NULL));
}

static void
capture_with_mods(int from, int to, void *argument)
{
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	const struct paged_array name = { .name = "window", .dtype = PAGED_I32 };
	struct decode_engine engine;
	struct decode_batch decode;
	struct paged_mod_set *mods;
	struct paged_mod *mod;
	cuda_graph graph;

	(void)from, (void)to, (void)argument;
	it_require(fake_cuda_load_nvrtc(), "%s", dlerror());
	engine_open(&engine, &decode);
	decode.mod_set = mods_make(engine.client, engine.pool, decode.batch);
	decode.host_mod_set = mods_make(engine.host_client, engine.host_pool, decode.host_batch);
	mods_bind(&decode, 5, 0.25f);
	decode_ok(engine.client, paged_mod_set_prepare(decode.mod_set, PAGED_F32, -1));
	decode_capture(&decode, CUDA_CAPTURE_GLOBAL);
	for (int i = 0; i < 20; i++) {
		decode_replay(&decode);
		mods_bind(&decode, 2 + i % 7, (float)(i % 5) * 0.125f);
	}
	/* During a capture, creating mods is refused and destroying others is allowed. */
	decode_ok(engine.client, paged_mod_parse(engine.pool, PAGED_MOD_MASK, "kv_idx < window", 1, &name, &mod));
	params.mask = mod;
	decode_ok(engine.client, paged_mod_set_create(decode.batch, &params, &mods));
	decode_ok(engine.client, paged_batch_finish(decode.batch));
	decode_cuda(engine.graphs.begin(decode.stream, CUDA_CAPTURE_GLOBAL));
	paged_mod_set_destroy(mods);
	it_require(capturing(&decode) == CUDA_CAPTURE_ACTIVE);
	expect_refused(engine.client, paged_mod_set_create(decode.batch, &params, &mods), PAGED_ERR_UNSUPPORTED,
		       "the stream is being captured: mods are made before");
	it_require(capturing(&decode) == CUDA_CAPTURE_ACTIVE);
	decode_cuda(engine.graphs.end(decode.stream, &graph));
	decode_cuda(engine.graphs.destroy(graph));
	decode_replay(&decode);
	engine_close(&engine, &decode);
}

IT_TEST(graph_reads_bound_mods)
{
	struct paged_error error;
	struct cuda_nvrtc nvrtc;

	setenv("PAGED_CACHE_DIR", "", 1);
	if (!fake_cuda_wanted() && cuda_nvrtc_open(&nvrtc, 0, &error) != PAGED_OK)
		it_skip("%s", error.text);
	run_with_daemon(capture_with_mods);
}

/* paged_batch_validate() reports the errors of the last replay; the next replay clears them. */
static void
replay_invalid_lengths(int from, int to, void *argument)
{
	struct paged_batch_row rows[DECODE_ROWS];
	struct decode_engine engine;
	struct decode_batch decode;
	uint32_t r = 0;

	(void)from, (void)to, (void)argument;
	engine_open(&engine, &decode);
	decode_capture(&decode, CUDA_CAPTURE_GLOBAL);
	do
		decode_replay(&decode);
	while (decode.row[DECODE_ROWS - 1].seq == 0);
	/* kv_len exceeds the row's pages. */
	decode_next(&decode);
	decode_rows(&decode, rows);
	while (decode.row[r].q_len == 0)
		r++;
	decode.lengths->kv_len[r] = DECODE_MAX_LENGTH;
	rows[r].seq = 0;
	rows[r].kv_len = 0;
	decode_ok(engine.client, decode_tables(&decode, DECODE_ROWS, rows));
	decode_launch(&decode);
	expect_refused(engine.client, paged_batch_validate(decode.batch), PAGED_ERR_CAPACITY, "tokens past the 0");
	expect_refused(engine.client, paged_batch_validate(decode.batch), PAGED_ERR_CAPACITY, "tokens past the 0");
	/* With valid lengths the same step succeeds, and so do others. */
	decode_rows(&decode, rows);
	decode.lengths->kv_len[r] = (int32_t)decode.row[r].len;
	decode_ok(engine.client, decode_tables(&decode, DECODE_ROWS, rows));
	decode_ok(engine.client, paged_batch_validate(decode.batch));
	decode_launch(&decode);
	decode_check(&decode);
	/*
	 * The new plan has fewer rows, but the lengths still name more: the kernels
	 * access no page of the removed rows.
	 */
	decode_ok(engine.client, decode_tables(&decode, r, rows));
	decode_launch(&decode);
	expect_refused(engine.client, paged_batch_validate(decode.batch), PAGED_ERR_CAPACITY, "tokens past the 0");
	for (unsigned int i = 0; i < 5; i++)
		decode_replay(&decode);
	engine_close(&engine, &decode);
}

IT_TEST(validate_reports_errors_of_a_replay)
{
	run_with_daemon(replay_invalid_lengths);
}

/* A captured append never writes to another session's sequence. */
static void
append_to_other_session(int from, int to, void *argument)
{
	struct paged_batch_row rows[DECODE_ROWS] = { { .q_len = 1, .kv_len = 4 } };
	struct decode_engine engine;
	struct decode_batch decode;
	struct paged_client *owner;
	struct paged_ticket ticket;
	struct paged_pool *pool;
	uint32_t length = 4;

	(void)from, (void)to, (void)argument;
	engine_open(&engine, &decode);
	decode_ok(owner, paged_client_open(NULL, NULL, &owner));
	decode_ok(owner, paged_pool_open(owner, "decode", &pool));
	decode_ok(owner, seqs_create(owner, pool, 1, &rows[0].seq));
	decode_ok(owner, seqs_reserve(owner, 1, &rows[0].seq, &length));
	decode_ok(engine.client, decode_tables(&decode, 1, rows));
	decode_capture(&decode, CUDA_CAPTURE_GLOBAL);
	expect_refused(engine.client, decode_tables(&decode, 1, rows), PAGED_ERR_PERM,
		       "row 0: a captured append may not write to sequence");
	rows[0].flags = PAGED_ROW_NO_APPEND;
	decode_ok(engine.client, decode_tables(&decode, 1, rows));
	decode_replay(&decode);
	/* Nor to one of this session that was given away. */
	decode_ok(engine.client, seqs_create(engine.client, engine.pool, 1, &rows[0].seq));
	decode_ok(engine.client, seqs_reserve(engine.client, 1, &rows[0].seq, &length));
	decode_ok(engine.client, paged_seq_give(engine.pool, 1, &rows[0].seq, &length, NULL, &ticket));
	rows[0].flags = 0;
	expect_refused(engine.client, decode_tables(&decode, 1, rows), PAGED_ERR_PERM, ", which was given away");
	decode_ok(engine.client, paged_ticket_cancel(engine.client, &ticket));
	decode_ok(engine.client, paged_seq_erase(engine.client, 1, &rows[0].seq));
	paged_client_close(owner);
	engine_close(&engine, &decode);
}

IT_TEST(captured_append_is_limited_to_own_sequences)
{
	run_with_daemon(append_to_other_session);
}

IT_MAIN
