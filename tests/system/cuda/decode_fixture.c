/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/cuda/decode_fixture.h"
#include "tests/support/sequences.h"

#include <math.h>
#include <string.h>

#define TOLERANCE 2e-5f

/* Engines */

void
decode_open(struct decode_engine *engine)
{
	struct paged_pool_params pool = { .struct_size = sizeof(pool),
					  .name = "host",
					  .backend = "host",
					  .n_layers = DECODE_LAYERS,
					  .n_kv_heads = DECODE_KV_HEADS,
					  .k_dim = DECODE_DIM,
					  .dtype = PAGED_F32,
					  .page_size = DECODE_PAGE_SIZE + 1,
					  .n_pages = DECODE_PAGES,
					  .max_length = DECODE_MAX_LENGTH };
	struct paged_error error;

	memset(engine, 0, sizeof(*engine));
	it_require(cuda_gpu_open(&engine->gpu, "0", &error) == PAGED_OK, "%s", error.text);
	decode_cuda(engine->gpu.driver.context_push(engine->gpu.context));
	it_require(cuda_graphs_find(&engine->graphs, &engine->gpu.driver));
	decode_ok(engine->client, paged_client_open(NULL, NULL, &engine->client));
	decode_ok(engine->client, paged_pool_open(engine->client, "decode", &engine->pool));
	decode_ok(engine->host_client, paged_client_open_embedded(&pool, 1, NULL, &engine->host_client));
	decode_ok(engine->host_client, paged_pool_open(engine->host_client, "host", &engine->host_pool));
}

void
decode_close(struct decode_engine *engine)
{
	paged_client_close(engine->host_client);
	paged_client_close(engine->client);
	engine->gpu.driver.context_pop(NULL);
	cuda_gpu_close(&engine->gpu);
}

/* Batches */

static uint32_t
below(struct decode_batch *decode, uint32_t n)
{
	decode->random = decode->random * 1664525u + 1013904223u;
	return (decode->random >> 8) % n;
}

static void *
pinned(struct decode_batch *decode, size_t size)
{
	void *at;

	decode_cuda(decode->engine->gpu.driver.host_alloc(&at, size, 0));
	memset(at, 0, size);
	return at;
}

void
decode_batch_open(struct decode_engine *engine, struct decode_batch *decode, uint32_t seed)
{
	const struct cuda_driver *driver = &engine->gpu.driver;
	const struct paged_batch_params params = { .struct_size = sizeof(params),
						   .max_rows = DECODE_ROWS,
						   .max_q_tokens = DECODE_TOKENS,
						   .max_q_heads = DECODE_HEADS,
						   .reserve_ahead = 4 };

	memset(decode, 0, sizeof(*decode));
	decode->engine = engine;
	decode->random = seed;
	decode_ok(engine->client, paged_batch_create(engine->pool, &params, &decode->batch));
	decode_ok(engine->host_client, paged_batch_create(engine->host_pool, &params, &decode->host_batch));
	decode_cuda(driver->stream_create(&decode->stream, CUDA_STREAM_NON_BLOCKING));
	decode_ok(engine->client, paged_batch_stream(decode->batch, decode->stream));
	decode->lengths = pinned(decode, sizeof(*decode->lengths));
	decode->input = pinned(decode, sizeof(*decode->input));
	decode->output = pinned(decode, sizeof(*decode->output));
	decode_cuda(driver->alloc(&decode->device_lengths, sizeof(*decode->lengths)));
	decode_cuda(driver->alloc(&decode->device_input, sizeof(*decode->input)));
	decode_cuda(driver->alloc(&decode->device_output, sizeof(*decode->output)));
}

void
decode_batch_close(struct decode_batch *decode)
{
	const struct cuda_driver *driver = &decode->engine->gpu.driver;

	decode_cuda(driver->stream_synchronize(decode->stream));
	/* The graph has kernels of modules that the batch may unload. */
	if (decode->exec != NULL)
		decode_cuda(decode->engine->graphs.exec_destroy(decode->exec));
	paged_batch_destroy(decode->batch);
	paged_batch_destroy(decode->host_batch);
	decode_cuda(driver->stream_destroy(decode->stream));
	decode_cuda(driver->host_free(decode->lengths));
	decode_cuda(driver->host_free(decode->input));
	decode_cuda(driver->host_free(decode->output));
	decode_cuda(driver->free(decode->device_lengths));
	decode_cuda(driver->free(decode->device_input));
	decode_cuda(driver->free(decode->device_output));
}

/* A step */

static struct paged_tensor
tensor(const void *data, uint32_t n_heads)
{
	return (struct paged_tensor){
		.data = (void *)(uintptr_t)data, .dtype = PAGED_F32, .n_heads = n_heads, .dim = DECODE_DIM
	};
}

/* Append and attention of each layer, and a merge; in and out are in the memory of the batch's back end. */
static void
layers(struct paged_client *client, struct paged_batch *batch, struct paged_mod_set *mods,
       const struct decode_input *in, struct decode_output *out, uint32_t n_tokens)
{
	const struct paged_merge_params merge = {
		.struct_size = sizeof(merge),
		.n_tokens = n_tokens,
		.part = { tensor(out->out[0], DECODE_HEADS), tensor(out->out[1], DECODE_HEADS) },
		.part_lse = { out->lse[0], out->lse[1] },
		.out = tensor(out->merged, DECODE_HEADS),
	};

	for (uint32_t l = 0; l < DECODE_LAYERS; l++) {
		struct paged_tensor q = tensor(in->q[l], DECODE_HEADS), o = tensor(out->out[l], DECODE_HEADS);
		struct paged_tensor k = tensor(in->k[l], DECODE_KV_HEADS), v = tensor(in->v[l], DECODE_KV_HEADS);
		struct paged_attention_params params = { .struct_size = sizeof(params),
							 .lse = out->lse[l],
							 .mod_set = mods };

		decode_ok(client, paged_append(batch, l, &k, &v, NULL));
		decode_ok(client, paged_attention(batch, l, &q, &o, &params));
	}
	decode_ok(client, paged_merge(batch, &merge));
}

static struct paged_plan_device_params
plan_params(const struct decode_batch *decode, uint32_t n_rows, const struct paged_batch_row *rows)
{
	const struct decode_lengths *at = (const struct decode_lengths *)(uintptr_t)decode->device_lengths;

	return (struct paged_plan_device_params){ .struct_size = sizeof(struct paged_plan_device_params),
						  .n_rows = n_rows,
						  .rows = rows,
						  .q_indptr = at->q_indptr,
						  .kv_len = at->kv_len };
}

void
decode_enqueue(struct decode_batch *decode, const struct paged_batch_row rows[DECODE_ROWS])
{
	const struct cuda_driver *driver = &decode->engine->gpu.driver;
	struct paged_client *client = decode->engine->client;
	struct paged_plan_device_params params = plan_params(decode, DECODE_ROWS, rows);

	/* In a graph, these copies access host memory at each replay. */
	decode_cuda(driver->copy_in(decode->device_lengths, decode->lengths, sizeof(*decode->lengths), decode->stream));
	decode_ok(client, paged_batch_plan_device(decode->batch, &params));
	layers(client, decode->batch, decode->mod_set, (const struct decode_input *)(uintptr_t)decode->device_input,
	       (struct decode_output *)(uintptr_t)decode->device_output, DECODE_TOKENS);
	decode_cuda(driver->copy_out(decode->output, decode->device_output, sizeof(*decode->output), decode->stream));
}

void
decode_bounds(struct paged_batch_row rows[DECODE_ROWS])
{
	memset(rows, 0, DECODE_ROWS * sizeof(*rows));
	for (uint32_t r = 0; r < DECODE_ROWS; r++)
		rows[r].q_len = DECODE_Q_LEN;
}

void
decode_capture(struct decode_batch *decode, int mode)
{
	const struct cuda_graphs *graphs = &decode->engine->graphs;
	struct paged_batch_row rows[DECODE_ROWS];
	cuda_graph graph;

	decode_bounds(rows);
	decode_cuda(graphs->begin(decode->stream, mode));
	decode_enqueue(decode, rows);
	decode_cuda(graphs->end(decode->stream, &graph));
	decode_cuda(graphs->instantiate(&decode->exec, graph, 0));
	decode_cuda(graphs->destroy(graph));
}

/* No step is outstanding, so sequences may be erased. */
static void
row_next(struct decode_batch *decode, struct decode_row *row)
{
	struct decode_engine *engine = decode->engine;

	if (row->seq != 0 && (row->len + DECODE_Q_LEN > DECODE_MAX_LENGTH || below(decode, 12) == 0)) {
		decode_ok(engine->client, paged_seq_erase(engine->client, 1, &row->seq));
		decode_ok(engine->host_client, paged_seq_erase(engine->host_client, 1, &row->host_seq));
		memset(row, 0, sizeof(*row));
	}
	if (row->seq == 0 && below(decode, 2) == 0) {
		decode_ok(engine->client, seqs_create(engine->client, engine->pool, 1, &row->seq));
		decode_ok(engine->host_client, seqs_create(engine->host_client, engine->host_pool, 1, &row->host_seq));
	}
	row->q_len = row->seq == 0 ? 0 : 1 + below(decode, DECODE_Q_LEN);
	row->len += row->q_len;
}

/* Rows of the host back end: paged_batch_plan() has no empty rows. */
static void
expect(struct decode_batch *decode)
{
	struct paged_client *client = decode->engine->host_client;
	struct paged_batch_row rows[DECODE_ROWS];
	size_t n = 0;

	for (uint32_t r = 0; r < DECODE_ROWS; r++)
		if (decode->row[r].seq != 0)
			rows[n++] = (struct paged_batch_row){ .seq = decode->row[r].host_seq,
							      .q_len = decode->row[r].q_len,
							      .kv_len = decode->row[r].len };
	decode_ok(client, paged_batch_plan(decode->host_batch, n, rows));
	layers(client, decode->host_batch, decode->host_mod_set, decode->input, &decode->expected,
	       (uint32_t)decode->lengths->q_indptr[DECODE_ROWS]);
}

void
decode_next(struct decode_batch *decode)
{
	float *numbers = (float *)decode->input;

	for (size_t i = 0; i < sizeof(*decode->input) / sizeof(*numbers); i++)
		numbers[i] = (float)below(decode, 2001) / 1000 - 1;
	for (uint32_t r = 0; r < DECODE_ROWS; r++) {
		row_next(decode, &decode->row[r]);
		decode->lengths->q_indptr[r + 1] = decode->lengths->q_indptr[r] + (int32_t)decode->row[r].q_len;
		decode->lengths->kv_len[r] = (int32_t)decode->row[r].len;
	}
	memset(decode->output, 0xff, sizeof(*decode->output));
	expect(decode);
}

uint32_t
decode_rows(const struct decode_batch *decode, struct paged_batch_row rows[DECODE_ROWS])
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < DECODE_ROWS; r++) {
		const struct decode_row *row = &decode->row[r];

		rows[r] = (struct paged_batch_row){ .seq = row->seq, .q_len = row->q_len, .kv_len = row->len };
		if (row->seq != 0)
			n = r + 1;
	}
	return n;
}

enum paged_status
decode_tables(struct decode_batch *decode, uint32_t n_rows, const struct paged_batch_row *rows)
{
	struct paged_plan_device_params params = plan_params(decode, n_rows, rows);

	params.tables_only = 1;
	return paged_batch_plan_device(decode->batch, &params);
}

static void
input_copy(struct decode_batch *decode)
{
	decode_cuda(decode->engine->gpu.driver.copy_in(decode->device_input, decode->input, sizeof(*decode->input),
						       decode->stream));
}

void
decode_launch(struct decode_batch *decode)
{
	input_copy(decode);
	decode_cuda(decode->engine->graphs.launch(decode->exec, decode->stream));
}

static void
same(const char *what, const float *got, const float *wanted, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		it_require(got[i] == wanted[i] || fabsf(got[i] - wanted[i]) <= TOLERANCE * (1 + fabsf(wanted[i])),
			   "%s[%u]: %.9g, expected %.9g", what, i, (double)got[i], (double)wanted[i]);
}

void
decode_check(struct decode_batch *decode)
{
	uint32_t n = (uint32_t)decode->lengths->q_indptr[DECODE_ROWS] * DECODE_HEADS;

	decode_ok(decode->engine->client, paged_batch_validate(decode->batch));
	for (uint32_t l = 0; l < DECODE_LAYERS; l++) {
		same("out", decode->output->out[l], decode->expected.out[l], n * DECODE_DIM);
		same("lse", decode->output->lse[l], decode->expected.lse[l], n);
	}
	same("merged", decode->output->merged, decode->expected.merged, n * DECODE_DIM);
}

void
decode_replay(struct decode_batch *decode)
{
	struct paged_batch_row rows[DECODE_ROWS];
	uint32_t n;

	decode_next(decode);
	n = decode_rows(decode, rows);
	decode_ok(decode->engine->client, decode_tables(decode, below(decode, 2) == 0 ? n : DECODE_ROWS, rows));
	decode_launch(decode);
	decode_check(decode);
}

void
decode_eager(struct decode_batch *decode)
{
	struct paged_batch_row rows[DECODE_ROWS];

	decode_next(decode);
	decode_rows(decode, rows);
	input_copy(decode);
	decode_enqueue(decode, rows);
	decode_check(decode);
}
