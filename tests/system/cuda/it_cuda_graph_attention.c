/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with lengths on the device, eagerly and in captured graphs: which kernels run, and that their results are
 * those of float64.  Over the fake CUDA driver, or a GPU, where the kernels that run are not known.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/load.h"
#include "tests/support/cuda_graph.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/prefill_fixture.h"

#define N_ROWS 4

struct lengths {
	int32_t q_indptr[N_ROWS + 1], kv_len[N_ROWS];
};

/* A batch whose rows are written, and lengths on the device. */
struct device_batch {
	struct batch_fixture fixture;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct lengths *lengths; /* on the device */
	struct paged_tensor q;
	struct cuda_graphs graphs;
	cuda_graph_exec exec;
};

static void
device_batch_open(struct device_batch *batch, const struct batch_fixture_params *params)
{
	batch_fixture_open(&batch->fixture, params);
	for (uint32_t r = 0; r < N_ROWS; r++)
		batch_fixture_write(&batch->fixture, r, 0, params->rows[r].kv_len);
	batch_fixture_rows(&batch->fixture, batch->rows);
	batch->lengths = batch_fixture_put(&batch->fixture, NULL, sizeof(*batch->lengths));
	batch->q = batch_fixture_queries(&batch->fixture);
	it_require(cuda_graphs_find(&batch->graphs, &batch->fixture.gpu.driver));
}

static enum paged_status
device_batch_plan(struct device_batch *batch, bool tables_only)
{
	return paged_batch_plan_device(
		batch->fixture.batch,
		&(struct paged_plan_device_params){ .struct_size = sizeof(struct paged_plan_device_params),
						    .n_rows = N_ROWS,
						    .rows = batch->rows,
						    .q_indptr = batch->lengths->q_indptr,
						    .kv_len = batch->lengths->kv_len,
						    .tables_only = tables_only });
}

static enum paged_status
device_batch_attend(struct device_batch *batch)
{
	return paged_attention(batch->fixture.batch, BATCH_FIXTURE_LAYER, &batch->q, &batch->fixture.out,
			       &(struct paged_attention_params){ .struct_size = sizeof(struct paged_attention_params),
								 .lse = batch->fixture.lse,
								 .max_score = batch->fixture.max_score });
}

/* Write these lengths and their queries to the device; the fixture checks results for them. */
static void
device_batch_lengths(struct device_batch *batch, const uint32_t q_len[N_ROWS])
{
	struct batch_fixture_params *params = &batch->fixture.params;
	struct lengths lengths = { { 0 }, { 0 } };
	uint16_t *queries;
	size_t size;

	for (uint32_t r = 0; r < N_ROWS; r++) {
		params->rows[r].q_len = q_len[r];
		lengths.q_indptr[r + 1] = lengths.q_indptr[r] + (int32_t)q_len[r];
		lengths.kv_len[r] = (int32_t)params->rows[r].kv_len;
	}
	batch_fixture_set(&batch->fixture, batch->lengths, &lengths, sizeof(lengths));
	size = batch->fixture.total_q * (size_t)batch->q.token_stride * sizeof(uint16_t);
	queries = malloc(size);
	it_require(queries != NULL);
	batch_fixture_get(&batch->fixture, queries, batch_fixture_queries(&batch->fixture).data, size);
	batch_fixture_set(&batch->fixture, batch->q.data, queries, size);
	free(queries);
}

static void
device_batch_capture(struct device_batch *batch)
{
	cuda_stream stream = batch->fixture.stream;
	cuda_graph graph;

	it_require(batch->graphs.begin(stream, CUDA_CAPTURE_GLOBAL) == CUDA_SUCCESS);
	batch_fixture_ok(&batch->fixture, device_batch_plan(batch, false));
	batch_fixture_ok(&batch->fixture, device_batch_attend(batch));
	it_require(batch->graphs.end(stream, &graph) == CUDA_SUCCESS);
	it_require(batch->graphs.instantiate(&batch->exec, graph, 0) == CUDA_SUCCESS);
	it_require(batch->graphs.destroy(graph) == CUDA_SUCCESS);
}

static enum paged_status
device_batch_replay(struct device_batch *batch, const uint32_t q_len[N_ROWS])
{
	device_batch_lengths(batch, q_len);
	batch_fixture_ok(&batch->fixture, device_batch_plan(batch, true));
	it_require(batch->graphs.launch(batch->exec, batch->fixture.stream) == CUDA_SUCCESS);
	return paged_batch_validate(batch->fixture.batch);
}

static void
device_batch_close(struct device_batch *batch)
{
	it_require(batch->exec == NULL || batch->graphs.exec_destroy(batch->exec) == CUDA_SUCCESS);
	batch_fixture_close(&batch->fixture);
}

/* The host knows bounds of the lengths. */
IT_TEST(plan_device_runs_what_the_bounds_allow)
{
	static const uint32_t prefill[N_ROWS] = { 37, 1, 30, 16 }, decode[N_ROWS] = { 1, 1, 1, 1 };
	struct batch_fixture_params params = prefill_mixed;
	struct device_batch batch = { .exec = NULL };

	prefill_begin();
	device_batch_open(&batch, &params);
	for (unsigned int i = 0; i < 2; i++) {
		device_batch_lengths(&batch, i == 0 ? prefill : decode);
		batch_fixture_ok(&batch.fixture, device_batch_plan(&batch, false));
		batch_fixture_ok(&batch.fixture, device_batch_attend(&batch));
		batch_fixture_ok(&batch.fixture, paged_batch_validate(batch.fixture.batch));
		batch_fixture_check(&batch.fixture);
		prefill_expect_runs(&(struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64",
				    "attention_prefill_bf16_64");
	}
	for (uint32_t r = 0; r < N_ROWS; r++)
		batch.rows[r].q_len = r + 1;
	batch_fixture_ok(&batch.fixture, device_batch_plan(&batch, false));
	batch_fixture_ok(&batch.fixture, device_batch_attend(&batch));
	batch_fixture_ok(&batch.fixture, paged_batch_validate(batch.fixture.batch));
	batch_fixture_check(&batch.fixture);
	prefill_expect_runs(&(struct prefill_runs){ 1, 0 }, "attention_mma_bf16_64", "attention_prefill_bf16_64");
	device_batch_close(&batch);
	prefill_end();
}

/* A graph that was captured with bounds of prefill replays batches of both kinds of rows, and of one. */
IT_TEST(graph_of_prefill)
{
	static const uint32_t q_lens[][N_ROWS] = {
		{ 37, 1, 33, 16 }, { 1, 1, 1, 1 }, { 37, 0, 30, 0 }, { 2, 60, 0, 17 }
	};
	struct batch_fixture_params params = prefill_mixed;
	struct device_batch batch = { .exec = NULL };

	prefill_begin();
	params.rows[1].q_len = 60;
	device_batch_open(&batch, &params);
	device_batch_capture(&batch);
	for (unsigned int i = 0; i < 4; i++) {
		batch_fixture_ok(&batch.fixture, device_batch_replay(&batch, q_lens[i]));
		batch_fixture_check(&batch.fixture);
		prefill_expect_runs(&(struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64",
				    "attention_prefill_bf16_64");
	}
	device_batch_close(&batch);
	prefill_end();
}

/* A graph with bounds of decode has one kernel.  A row that would need the other one is reported and not computed. */
IT_TEST(graph_of_decode)
{
	static const uint32_t valid[N_ROWS] = { 4, 1, 0, 2 }, invalid[N_ROWS] = { 0, 0, 17, 0 };
	struct batch_fixture_params params = prefill_mixed;
	struct device_batch batch = { .exec = NULL };

	prefill_begin();
	for (uint32_t r = 0; r < N_ROWS; r++)
		params.rows[r].q_len = 5;
	device_batch_open(&batch, &params);
	device_batch_capture(&batch);
	for (unsigned int i = 0; i < 3; i++) {
		bool is_valid = i % 2 == 0;

		batch_fixture_expect(&batch.fixture, device_batch_replay(&batch, is_valid ? valid : invalid),
				     is_valid ? PAGED_OK : PAGED_ERR_RANGE);
		it_require(is_valid || strstr(paged_client_error(batch.fixture.client),
					      "row 2: q_indptr falls, or passes the plan's 20 query rows, or gives the"
					      " row more than the largest bound of q_len") != NULL,
			   "%s", paged_client_error(batch.fixture.client));
		if (is_valid)
			batch_fixture_check(&batch.fixture);
		prefill_expect_runs(&(struct prefill_runs){ 1, 0 }, "attention_mma_bf16_64",
				    "attention_prefill_bf16_64");
	}
	device_batch_close(&batch);
	prefill_end();
}

/* V in K: attention_mla, then combine_kv_chunks */

/* The bits of all results, also of query rows that the lengths leave out, which nothing writes. */
static uint8_t *
results_get(struct device_batch *batch, size_t *n_bytes_p)
{
	struct batch_fixture *fixture = &batch->fixture;
	size_t n_lines = (size_t)fixture->total_q * fixture->params.q_heads;
	size_t n_out = n_lines * fixture->params.v_dim * sizeof(uint16_t), n_floats = n_lines * sizeof(float);
	uint8_t *bits = malloc(n_out + 2 * n_floats);

	it_require(bits != NULL);
	batch_fixture_get(fixture, bits, fixture->out.data, n_out);
	batch_fixture_get(fixture, bits + n_out, fixture->lse, n_floats);
	batch_fixture_get(fixture, bits + n_out + n_floats, fixture->max_score, n_floats);
	*n_bytes_p = n_out + 2 * n_floats;
	return bits;
}

/* The results are those of the same calls outside the graph, bit for bit. */
static void
expect_eager_bits(struct device_batch *batch)
{
	size_t n_bytes;
	uint8_t *replayed = results_get(batch, &n_bytes), *eager;

	batch_fixture_ok(&batch->fixture, device_batch_plan(batch, false));
	batch_fixture_ok(&batch->fixture, device_batch_attend(batch));
	batch_fixture_ok(&batch->fixture, paged_batch_validate(batch->fixture.batch));
	eager = results_get(batch, &n_bytes);
	it_require(memcmp(replayed, eager, n_bytes) == 0, "a replay and the same calls outside the graph differ");
	free(replayed);
	free(eager);
}

static void
expect_mla_runs(unsigned int n)
{
	if (fake_cuda_wanted())
		it_require(fake_cuda_n_runs("combine_kv_chunks") == n, "combine_kv_chunks ran %u times",
			   fake_cuda_n_runs("combine_kv_chunks"));
	prefill_expect_runs(&(struct prefill_runs){ n, 0 }, "attention_mla_", "attention_prefill");
}

static const struct batch_fixture_params mla_bounds = {
	.backend = "cuda",
	.v_in_k = true,
	.q_heads = 24,
	.kv_heads = 1,
	.k_dim = 80,
	.v_dim = 64,
	.page_size = 16,
	.chunk = 512,
	.n_rows = N_ROWS,
	.rows = { { .kv_len = 700, .q_len = 1 },
		  { .kv_len = 420, .q_len = 4 },
		  { .kv_len = 300, .q_len = 1 },
		  { .kv_len = 40, .q_len = 2 } },
};

/*
 * Captured with bounds of several KV chunks, replayed with rows of several, of one, and without tokens or queries.  In
 * the last replay no row is split: there is nothing to combine.
 */
static void
mla_replay(enum paged_dtype dtype, uint32_t q_heads)
{
	static const struct {
		uint32_t q_len[N_ROWS], kv_len[N_ROWS];
	} replays[] = {
		{ { 1, 4, 1, 2 }, { 700, 420, 300, 40 } }, { { 1, 1, 1, 1 }, { 513, 5, 128, 40 } },
		{ { 1, 0, 1, 2 }, { 257, 0, 1, 39 } },     { { 0, 3, 0, 0 }, { 0, 401, 290, 0 } },
		{ { 1, 4, 1, 1 }, { 700, 420, 0, 40 } },   { { 1, 2, 0, 1 }, { 31, 90, 0, 1 } },
	};
	struct batch_fixture_params params = mla_bounds;
	struct device_batch batch = { .exec = NULL };

	params.pool = params.q = dtype;
	params.q_heads = q_heads;
	device_batch_open(&batch, &params);
	device_batch_capture(&batch);
	for (size_t i = 0; i < sizeof(replays) / sizeof(replays[0]); i++) {
		for (uint32_t r = 0; r < N_ROWS; r++)
			batch.fixture.params.rows[r].kv_len = replays[i].kv_len[r];
		batch_fixture_ok(&batch.fixture, device_batch_replay(&batch, replays[i].q_len));
		expect_mla_runs(1);
		batch_fixture_check(&batch.fixture);
		expect_eager_bits(&batch);
		expect_mla_runs(1);
	}
	device_batch_close(&batch);
}

IT_TEST(graph_of_v_in_k)
{
	prefill_begin();
	mla_replay(PAGED_BF16, 24);
	mla_replay(PAGED_F16, 24);
	prefill_end();
}

/* A captured launch has the tensor map of its layer. */
IT_OPT_IN_TEST(PAGED_CLUSTERS, graph_of_clusters)
{
	setenv("PAGED_WGMMA", "1", 1);
	prefill_begin();
	mla_replay(PAGED_BF16, 128);
	prefill_end();
}

/* Each kernel of the graph may begin before the one before it has ended. */
IT_OPT_IN_TEST(PAGED_PDL, graph_of_v_in_k_with_overlapping_launches)
{
	prefill_begin();
	mla_replay(PAGED_BF16, 24);
	prefill_end();
}

/* A launch fails while a graph is captured: the capture goes on, and may be ended and made again. */
IT_TEST(captures_survive_a_failed_launch)
{
	static const uint32_t q_len[N_ROWS] = { 37, 1, 33, 16 };
	struct device_batch batch = { .exec = NULL };
	cuda_graph graph;

	cuda_skip_with_gpu();
	prefill_begin();
	device_batch_open(&batch, &prefill_mixed);
	device_batch_lengths(&batch, q_len);
	batch_fixture_ok(&batch.fixture, device_batch_plan(&batch, false));
	batch_fixture_ok(&batch.fixture, device_batch_attend(&batch));
	batch_fixture_ok(&batch.fixture, paged_batch_validate(batch.fixture.batch));
	prefill_expect_runs(&(struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64", "attention_prefill_bf16_64");
	it_require(batch.graphs.begin(batch.fixture.stream, CUDA_CAPTURE_GLOBAL) == CUDA_SUCCESS);
	batch_fixture_ok(&batch.fixture, device_batch_plan(&batch, false));
	prefill_fail_after("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	batch_fixture_expect(&batch.fixture, device_batch_attend(&batch), PAGED_ERR_BACKEND);
	it_require(batch.graphs.end(batch.fixture.stream, &graph) == CUDA_SUCCESS);
	it_require(batch.graphs.destroy(graph) == CUDA_SUCCESS);
	device_batch_capture(&batch);
	batch_fixture_ok(&batch.fixture, device_batch_replay(&batch, q_len));
	batch_fixture_check(&batch.fixture);
	prefill_expect_runs(&(struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64", "attention_prefill_bf16_64");
	device_batch_close(&batch);
	prefill_end();
}

IT_MAIN
