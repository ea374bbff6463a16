/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/batch_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/reference.h"
#include "tests/support/sequences.h"

#define ok(fixture, call)                                                                  \
	do {                                                                               \
		int result_ = (call);                                                      \
		it_require(result_ == CUDA_SUCCESS, "%s: CUDA result %d", #call, result_); \
	} while (0)

/* Memory */

void *
batch_fixture_put(struct batch_fixture *fixture, const void *data, size_t size)
{
	void *at;

	it_require(fixture->n_buffers < BATCH_FIXTURE_MAX_BUFFERS, "%u buffers", fixture->n_buffers);
	if (fixture->on_device) {
		cuda_address address;

		ok(fixture, fixture->gpu.driver.alloc(&address, size));
		at = (void *)(uintptr_t)address;
		if (data == NULL)
			ok(fixture, fixture->gpu.driver.fill(address, 0xff, size, fixture->stream));
	} else {
		at = malloc(size);
		it_require(at != NULL);
		if (data == NULL)
			memset(at, 0xff, size);
	}
	fixture->buffers[fixture->n_buffers++] = at;
	if (data != NULL)
		batch_fixture_set(fixture, at, data, size);
	return at;
}

void
batch_fixture_set(struct batch_fixture *fixture, void *to, const void *data, size_t size)
{
	if (fixture->on_device)
		ok(fixture, fixture->gpu.driver.copy_in((uintptr_t)to, data, size, fixture->stream));
	else
		memcpy(to, data, size);
}

void
batch_fixture_get(struct batch_fixture *fixture, void *to, const void *from, size_t size)
{
	if (!fixture->on_device) {
		memcpy(to, from, size);
		return;
	}
	ok(fixture, fixture->gpu.driver.copy_out(to, (uintptr_t)from, size, fixture->stream));
	ok(fixture, fixture->gpu.driver.stream_synchronize(fixture->stream));
}

static void
buffers_free(struct batch_fixture *fixture)
{
	while (fixture->n_buffers > 0) {
		void *at = fixture->buffers[--fixture->n_buffers];

		if (fixture->on_device)
			ok(fixture, fixture->gpu.driver.free((uintptr_t)at));
		else
			free(at);
	}
}

/* Contents */

enum which { KEYS, VALUES, QUERIES };

static float
number(const struct batch_fixture *fixture, enum which which, uint32_t row, uint32_t head, uint32_t token, uint32_t dim)
{
	const struct batch_fixture_params *p = &fixture->params;
	uint64_t at = (((uint64_t)row * 4096 + token) * 256 + head) * 1024 + dim;

	if (p->golden != NULL) {
		const struct golden_tensor *const from[] = { &p->golden->k, &p->golden->v, &p->golden->q };

		return golden_tensor_element(from[which], row, head, token, dim);
	}
	return random_float(71 + which, at, which == VALUES ? 1 : 1.5f);
}

/* The value after quantisation to i8 with its head's scale. */
static float
i8_of(const struct batch_fixture *fixture, enum which which, uint32_t row, uint32_t head, uint32_t token, float value)
{
	uint32_t n = which == KEYS ? fixture->params.k_dim : fixture->params.v_dim;
	float most = 0;

	for (uint32_t d = 0; d < n; d++)
		most = fmaxf(most, fabsf(number(fixture, which, row, head, token, d)));
	return rintf(value * (127 / most)) * (most / 127);
}

static float
scale_of(const struct batch_fixture *fixture, enum which which, uint32_t head)
{
	return fixture->params.scales ? ldexpf(1, (int)head - (which == KEYS ? 1 : 3)) : 1;
}

static float
element(const struct batch_fixture *fixture, enum which which, uint32_t row, uint32_t head, uint32_t token,
	uint32_t dim)
{
	const struct batch_fixture_params *p = &fixture->params;
	enum paged_dtype dtype = which == QUERIES ? p->q : p->pool;
	float value = number(fixture, which, row, head, token, dim), scale = 1;
	uint8_t rounded[4];

	if (dtype == PAGED_I8)
		return i8_of(fixture, which, row, head, token, value);
	if (which != QUERIES)
		scale = scale_of(fixture, which, head);
	reference_store(rounded, dtype, 0, value / scale);
	return reference_load(rounded, dtype, 0) * scale;
}

/* Keys and values for an 8-bit pool are written unrounded: the append quantises them. */
static float
written(const struct batch_fixture *fixture, enum which which, uint32_t row, uint32_t head, uint32_t token,
	uint32_t dim)
{
	if (which == QUERIES || paged_dtype_is_tensor(fixture->params.pool))
		return element(fixture, which, row, head, token, dim);
	return number(fixture, which, row, head, token, dim);
}

struct paged_tensor
batch_fixture_tensor(struct batch_fixture *fixture, enum paged_dtype dtype, uint32_t n_tokens, uint32_t n_heads,
		     uint32_t dim)
{
	uint32_t stride = n_heads * dim + fixture->params.padding;

	return (struct paged_tensor){
		.data = batch_fixture_put(fixture, NULL, ((size_t)n_tokens * stride + 1) * paged_dtype_size(dtype)),
		.dtype = dtype,
		.n_heads = n_heads,
		.dim = dim,
		.token_stride = stride,
	};
}

/* Tokens [from, to) of a row into the packed tensor's rows from `at` on. */
static void
tokens_set(struct batch_fixture *fixture, const struct paged_tensor *tensor, uint32_t at, enum which which,
	   uint32_t row, uint32_t from, uint32_t to)
{
	size_t size = paged_dtype_size(tensor->dtype), n = (size_t)(to - from) * (size_t)tensor->token_stride;
	uint8_t *host = calloc(n + 1, size);

	it_require(host != NULL);
	for (uint32_t t = from; t < to; t++)
		for (uint32_t h = 0; h < tensor->n_heads; h++)
			for (uint32_t d = 0; d < tensor->dim; d++)
				reference_store(host, tensor->dtype,
						(t - from) * (size_t)tensor->token_stride + h * tensor->dim + d,
						written(fixture, which, row, h, t, d));
	if (n > 0)
		batch_fixture_set(fixture, (uint8_t *)tensor->data + at * (size_t)tensor->token_stride * size, host,
				  n * size);
	free(host);
}

struct paged_tensor
batch_fixture_keys(struct batch_fixture *fixture, uint32_t row, uint32_t from, uint32_t to)
{
	struct paged_tensor k =
		batch_fixture_tensor(fixture, PAGED_F32, to - from, fixture->params.kv_heads, fixture->params.k_dim);

	tokens_set(fixture, &k, 0, KEYS, row, from, to);
	return k;
}

struct paged_tensor
batch_fixture_values(struct batch_fixture *fixture, uint32_t row, uint32_t from, uint32_t to)
{
	enum paged_dtype dtype = paged_dtype_is_tensor(fixture->params.pool) ? fixture->params.pool : PAGED_F32;
	struct paged_tensor v =
		batch_fixture_tensor(fixture, dtype, to - from, fixture->params.kv_heads, fixture->params.v_dim);

	tokens_set(fixture, &v, 0, VALUES, row, from, to);
	return v;
}

struct paged_tensor
batch_fixture_queries(struct batch_fixture *fixture)
{
	const struct batch_fixture_params *p = &fixture->params;
	struct paged_tensor q = batch_fixture_tensor(fixture, p->q, fixture->total_q, p->q_heads, p->k_dim);

	for (uint32_t r = 0, at = 0; r < p->n_rows; at += p->rows[r++].q_len)
		tokens_set(fixture, &q, at, QUERIES, r, 0, p->rows[r].q_len);
	return q;
}

/* Calls */

static void
device_open(struct batch_fixture *fixture)
{
	struct paged_error error;

	it_require(cuda_gpu_open(&fixture->gpu, "0", &error) == PAGED_OK, "%s", error.text);
	/* As an engine does, make the context current on this thread: the library must work in that state. */
	ok(fixture, fixture->gpu.driver.context_push(fixture->gpu.context));
	ok(fixture, fixture->gpu.driver.stream_create(&fixture->stream, CUDA_STREAM_NON_BLOCKING));
}

static const float *
scales_put(struct batch_fixture *fixture, enum which which)
{
	float scales[256];

	for (uint32_t h = 0; h < fixture->params.kv_heads; h++)
		scales[h] = scale_of(fixture, which, h);
	return batch_fixture_put(fixture, scales, fixture->params.kv_heads * sizeof(float));
}

void
batch_fixture_open(struct batch_fixture *fixture, const struct batch_fixture_params *params)
{
	uint32_t longest = 1, n_pages = 1, n_tokens[BATCH_FIXTURE_MAX_ROWS];
	struct paged_pool_params pool = { .struct_size = sizeof(pool) };
	struct paged_client_params client = { .struct_size = sizeof(client) };

	memset(fixture, 0, sizeof(*fixture));
	fixture->params = *params;
	fixture->on_device = strcmp(params->backend, "cuda") == 0;
	for (uint32_t r = 0; r < params->n_rows; r++) {
		n_tokens[r] = params->rows[r].kv_len;
		longest = longest > n_tokens[r] ? longest : n_tokens[r];
		n_pages += n_tokens[r] / params->page_size + 1;
		fixture->total_q += params->rows[r].q_len;
	}
	pool.name = "test";
	pool.backend = params->backend;
	pool.n_layers = BATCH_FIXTURE_LAYERS;
	pool.n_kv_heads = params->kv_heads;
	pool.k_dim = params->k_dim;
	pool.v_dim = params->v_dim;
	pool.v_in_k = params->v_in_k;
	pool.dtype = params->pool;
	pool.page_size = params->page_size;
	pool.n_pages = params->n_pages != 0 ? params->n_pages : n_pages;
	pool.max_length = params->max_length != 0 ? params->max_length : longest;
	if (fixture->on_device)
		device_open(fixture);
	client.log = params->log;
	if (params->daemon_pool != NULL)
		batch_fixture_ok(fixture, paged_client_open(NULL, &client, &fixture->client));
	else
		batch_fixture_ok(fixture, paged_client_open_embedded(&pool, 1, &client, &fixture->client));
	batch_fixture_ok(fixture,
			 paged_pool_open(fixture->client, params->daemon_pool != NULL ? params->daemon_pool : "test",
					 &fixture->pool));
	fixture->info.struct_size = sizeof(fixture->info);
	batch_fixture_ok(fixture, paged_pool_get_info(fixture->pool, &fixture->info));
	batch_fixture_ok(fixture, paged_batch_create(fixture->pool,
						     &(struct paged_batch_params){
							     .struct_size = sizeof(struct paged_batch_params),
							     .max_rows = BATCH_FIXTURE_MAX_ROWS,
							     .max_q_tokens = params->max_q_tokens,
							     .max_q_heads = params->q_heads,
							     .reserve_ahead = params->reserve_ahead },
						     &fixture->batch));
	batch_fixture_ok(fixture, paged_batch_stream(fixture->batch, fixture->stream));
	if (params->n_rows == 0)
		return;
	batch_fixture_ok(fixture, seqs_create(fixture->client, fixture->pool, params->n_rows, fixture->seq));
	batch_fixture_ok(fixture, seqs_reserve(fixture->client, params->n_rows, fixture->seq, n_tokens));
	fixture->out = batch_fixture_tensor(fixture, params->q, fixture->total_q, params->q_heads, params->v_dim);
	fixture->lse = batch_fixture_put(fixture, NULL, (fixture->total_q * params->q_heads + 1) * sizeof(float));
	fixture->max_score = batch_fixture_put(fixture, NULL, (fixture->total_q * params->q_heads + 1) * sizeof(float));
	if (params->scales) {
		fixture->k_scale = scales_put(fixture, KEYS);
		fixture->v_scale = scales_put(fixture, VALUES);
	}
}

void
batch_fixture_close(struct batch_fixture *fixture)
{
	if (fixture->on_device)
		ok(fixture, fixture->gpu.driver.stream_synchronize(fixture->stream));
	buffers_free(fixture);
	paged_client_close(fixture->client);
	if (!fixture->on_device)
		return;
	ok(fixture, fixture->gpu.driver.stream_destroy(fixture->stream));
	fixture->gpu.driver.context_pop(NULL);
	cuda_gpu_close(&fixture->gpu);
}

void
batch_fixture_write(struct batch_fixture *fixture, uint32_t row, uint32_t from, uint32_t to)
{
	uint32_t chunk = fixture->params.chunk != 0 ? fixture->params.chunk : to - from;

	for (uint32_t at = from; at < to; at += chunk) {
		uint32_t end = to - at < chunk ? to : at + chunk;
		struct paged_tensor k = batch_fixture_keys(fixture, row, at, end), v = { 0 };

		if (!fixture->params.v_in_k)
			v = batch_fixture_values(fixture, row, at, end);
		batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, 1,
							   &(struct paged_batch_row){ .seq = fixture->seq[row],
										      .q_len = end - at,
										      .kv_len = end }));
		batch_fixture_ok(
			fixture,
			paged_append(fixture->batch, BATCH_FIXTURE_LAYER, &k, v.data != NULL ? &v : NULL,
				     &(struct paged_append_params){ .struct_size = sizeof(struct paged_append_params),
								    .k_scale = fixture->k_scale,
								    .v_scale = fixture->v_scale }));
	}
}

void
batch_fixture_rows(const struct batch_fixture *fixture, struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS])
{
	for (uint32_t r = 0; r < fixture->params.n_rows; r++) {
		const struct batch_fixture_row *from = &fixture->params.rows[r];

		rows[r] = (struct paged_batch_row){ .seq = fixture->seq[r],
						    .q_len = from->q_len,
						    .kv_len = from->kv_len,
						    .flags = from->has_q_base ? PAGED_ROW_Q_BASE : 0,
						    .q_base = from->q_base,
						    .kv_first = from->kv_first };
	}
}

static float
sink_of(uint32_t head)
{
	return head % 3 == 2 ? -INFINITY : 0.5f * (float)head - 1;
}

enum paged_status
batch_fixture_attend(struct batch_fixture *fixture, struct paged_mod_set *mods)
{
	const struct batch_fixture_params *p = &fixture->params;
	struct paged_tensor q = batch_fixture_queries(fixture);
	float sinks[512];

	it_require(p->q_heads <= sizeof(sinks) / sizeof(sinks[0]));
	for (uint32_t h = 0; h < p->q_heads; h++)
		sinks[h] = sink_of(h);
	return paged_attention(fixture->batch, BATCH_FIXTURE_LAYER, &q, &fixture->out,
			       &(struct paged_attention_params){
				       .struct_size = sizeof(struct paged_attention_params),
				       .scale = p->scale,
				       .mask = p->mask,
				       .lse = fixture->lse,
				       .max_score = fixture->max_score,
				       .mod_set = mods,
				       .sink = p->sink ? batch_fixture_put(fixture, sinks, p->q_heads * 4) : NULL,
				       .k_scale = fixture->k_scale,
				       .v_scale = fixture->v_scale });
}

/* Expectations */

struct results {
	uint8_t *out;
	float *lse, *max_score;
};

static bool
near(double got, double wanted, double tolerance)
{
	return got == wanted || (isnan(got) && isnan(wanted)) || fabs(got - wanted) <= tolerance;
}

static double
wanted_out(const struct batch_fixture *fixture, const struct reference_result *expected, uint32_t r, uint32_t i,
	   uint32_t h, uint32_t d)
{
	const struct golden_attention *c = fixture->params.golden;

	if (c == NULL)
		return expected->out[d];
	return (double)c->out[(((size_t)r * c->q_heads + h) * c->q.max_tokens + i) * c->v_dim + d];
}

static void
line_check(const struct batch_fixture *fixture, const struct results *results, uint32_t r, uint32_t i, uint32_t packed,
	   const struct reference_q_row *line, uint32_t h)
{
	const struct batch_fixture_params *p = &fixture->params;
	enum paged_dtype weights = p->pool;
	struct reference_result expected;
	size_t at = (size_t)packed * p->q_heads + h;

	reference_attend(line, &expected);
	/*
	 * Tensor cores take weights in the pool's dtype, or in the half that pools of bytes do; values are at most 1.
	 */
	if (p->pool == PAGED_I8)
		weights = PAGED_BF16;
	else if (!paged_dtype_is_tensor(p->pool))
		weights = PAGED_F16;
	if (weights != PAGED_F32)
		expected.out_tolerance += 2 * reference_unit(weights);
	for (uint32_t d = 0; d < p->v_dim; d++) {
		double got = (double)reference_load(results->out, p->q,
						    packed * (size_t)fixture->out.token_stride + h * p->v_dim + d);
		double wanted = wanted_out(fixture, &expected, r, i, h, d);

		it_require(near(got, wanted, expected.out_tolerance + reference_unit(p->q) * fabs(wanted)),
			   "row %u query %u head %u dim %u: %.9g, expected %.9g +- %.3g", r, i, h, d, got, wanted,
			   expected.out_tolerance);
	}
	it_require(
		near((double)results->lse[at], expected.lse, expected.score_tolerance + 0x1p-22 * fabs(expected.lse)) &&
			(p->max_unknown ||
			 near((double)results->max_score[at], expected.max_score, expected.score_tolerance)),
		"row %u query %u head %u: lse %.9g max %.9g, expected %.9g %.9g", r, i, h, (double)results->lse[at],
		(double)results->max_score[at], expected.lse, expected.max_score);
}

static int64_t
q_base(const struct batch_fixture_params *p, uint32_t r)
{
	const struct batch_fixture_row *row = &p->rows[r];

	return row->has_q_base ? row->q_base : (int64_t)row->kv_len - row->q_len;
}

static uint32_t
visible(const struct batch_fixture_params *p, uint32_t r, uint32_t i)
{
	const struct batch_fixture_row *row = &p->rows[r];
	int64_t seen = q_base(p, r) + i + 1;

	if (p->mask == PAGED_MASK_NONE || seen > (int64_t)row->kv_len)
		return row->kv_len;
	return seen < 0 ? 0 : (uint32_t)seen;
}

static uint32_t
first_visible(const struct batch_fixture_params *p, uint32_t r, uint32_t i)
{
	uint32_t first = p->rows[r].kv_first, seen = visible(p, r, i);

	return p->window != 0 && seen > first + p->window ? seen - p->window : first;
}

static void
row_head_check(const struct batch_fixture *fixture, const struct results *results, uint32_t r, uint32_t h,
	       uint32_t packed)
{
	const struct batch_fixture_params *p = &fixture->params;
	uint32_t n = p->rows[r].kv_len, kv_head = h / (p->q_heads / p->kv_heads);
	float *k = calloc((size_t)n * p->k_dim + 1, sizeof(*k)), *v = calloc((size_t)n * p->v_dim + 1, sizeof(*v));
	float sink = sink_of(h), q[PAGED_MAX_DIM];

	it_require(k != NULL && v != NULL);
	for (uint32_t t = 0; t < n; t++) {
		for (uint32_t d = 0; d < p->k_dim; d++)
			k[(size_t)t * p->k_dim + d] = element(fixture, KEYS, r, kv_head, t, d);
		for (uint32_t d = 0; d < p->v_dim; d++)
			v[(size_t)t * p->v_dim + d] = element(fixture, p->v_in_k ? KEYS : VALUES, r, kv_head, t, d);
	}
	for (uint32_t i = 0; i < p->rows[r].q_len; i++) {
		for (uint32_t d = 0; d < p->k_dim; d++)
			q[d] = element(fixture, QUERIES, r, h, i, d);
		line_check(fixture, results, r, i, packed + i,
			   &(struct reference_q_row){
				   .q = q,
				   .k = k,
				   .v = v,
				   .k_stride = p->k_dim,
				   .v_stride = p->v_dim,
				   .k_dim = p->k_dim,
				   .v_dim = p->v_dim,
				   .n_keys = visible(p, r, i),
				   .first_key = first_visible(p, r, i),
				   .scale = p->scale != 0 ? (double)p->scale : 1 / sqrt((double)p->k_dim),
				   .sink = p->sink ? &sink : NULL,
				   .mask = p->mask_mod,
				   .score = p->score_mod,
				   .at = { .b = (int32_t)r, .h = (int32_t)h, .q_idx = (int32_t)(q_base(p, r) + i) } },
			   h);
	}
	free(k);
	free(v);
}

void
batch_fixture_check(struct batch_fixture *fixture)
{
	const struct batch_fixture_params *p = &fixture->params;
	size_t n_out = (size_t)fixture->total_q * (size_t)fixture->out.token_stride * paged_dtype_size(p->q);
	size_t n_lines = (size_t)fixture->total_q * p->q_heads;
	struct results results = { malloc(n_out + 1), calloc(n_lines + 1, 4), calloc(n_lines + 1, 4) };

	it_require(results.out != NULL && results.lse != NULL && results.max_score != NULL);
	batch_fixture_get(fixture, results.out, fixture->out.data, n_out);
	batch_fixture_get(fixture, results.lse, fixture->lse, n_lines * sizeof(float));
	batch_fixture_get(fixture, results.max_score, fixture->max_score, n_lines * sizeof(float));
	for (uint32_t r = 0, at = 0; r < p->n_rows; at += p->rows[r++].q_len)
		for (uint32_t h = 0; h < p->q_heads; h++)
			row_head_check(fixture, &results, r, h, at);
	free(results.out);
	free(results.lse);
	free(results.max_score);
}

void
batch_fixture_run(const struct batch_fixture_params *params)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture fixture;

	batch_fixture_open(&fixture, params);
	for (uint32_t r = 0; r < params->n_rows; r++)
		batch_fixture_write(&fixture, r, 0, params->rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, params->n_rows, rows));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

#define MASK_BLOCK 8u /* tokens */

void
batch_fixture_run_first_tokens(const struct batch_fixture_params *params, uint32_t n)
{
	const uint64_t start[] = { 0, n / MASK_BLOCK };
	uint32_t full[64];
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_block_mask *blocks;
	struct paged_mod_set *mods;
	struct batch_fixture fixture;

	it_require(n % MASK_BLOCK == 0 && n / MASK_BLOCK <= sizeof(full) / sizeof(full[0]));
	for (uint32_t i = 0; i < n / MASK_BLOCK; i++)
		full[i] = i;
	batch_fixture_open(&fixture, params);
	batch_fixture_write(&fixture, 0, 0, params->rows[0].kv_len);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_block_mask_from_lists(
					   fixture.pool,
					   &(struct paged_block_mask_params){
						   .struct_size = sizeof(struct paged_block_mask_params),
						   .n_rows = 1,
						   .rows = rows,
						   .q_block = params->rows[0].q_len,
						   .kv_block = MASK_BLOCK },
					   &(struct paged_block_lists){ .struct_size = sizeof(struct paged_block_lists),
									.start = { NULL, start },
									.indices = { NULL, full } },
					   &blocks));
	batch_fixture_ok(&fixture, paged_mod_set_create(fixture.batch, NULL, &mods));
	batch_fixture_ok(&fixture, paged_mod_set_bind(mods, 0, NULL, blocks));
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 1, rows));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, mods));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	fixture.params.rows[0].kv_len = n;
	fixture.params.mask = PAGED_MASK_NONE;
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}
