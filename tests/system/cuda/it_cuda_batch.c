/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan, append, attention and merge through the public API: the same tests on
 * both back ends; cuda runs over the fake CUDA driver.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/kernels.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/support/reference.h"
#include "tests/fake-cuda/load.h"

static void
run_on_both_backends(const struct batch_fixture_params *params)
{
	struct batch_fixture_params each = *params;

	each.backend = "host";
	batch_fixture_run(&each);
	each.backend = "cuda";
	batch_fixture_run(&each);
}

static void
fake_cuda_begin(void)
{
	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
}

static const struct batch_fixture_params decode_params = {
	.pool = PAGED_F32,
	.q = PAGED_F32,
	.q_heads = 4,
	.kv_heads = 2,
	.k_dim = 16,
	.v_dim = 16,
	.page_size = 4,
	.n_rows = 3,
	.rows = { { .kv_len = 21, .q_len = 1 }, { .kv_len = 1, .q_len = 1 }, { .kv_len = 9, .q_len = 1 } },
};

IT_TEST(decode_of_one_query)
{
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	run_on_both_backends(&params);
	params.padding = 3;
	params.chunk = 5;
	params.page_size = 1;
	params.sink = true;
	run_on_both_backends(&params);
}

IT_TEST(decode_in_16_bit_dtypes)
{
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	params.k_dim = params.v_dim = 64;
	params.page_size = 16;
	for (enum paged_dtype dtype = PAGED_F16; dtype <= PAGED_BF16; dtype++) {
		params.pool = params.q = dtype;
		run_on_both_backends(&params);
	}
}

IT_TEST(decode_from_8_bit_pools)
{
	static const enum paged_dtype pools[] = { PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	params.page_size = 16;
	params.q_heads = 6;
	params.rows[0].q_len = 11;
	for (unsigned int i = 0; i < 9; i++) {
		params.pool = pools[i % 3];
		params.q = PAGED_F32 + i / 3;
		params.k_dim = i % 2 ? 64 : 32;
		params.v_dim = i % 4 == 3 ? 19 : 48;
		params.scales = i < 6 && params.pool != PAGED_I8;
		params.v_in_k = i == 8 || i == 6;
		params.v_dim = params.v_in_k ? 16 : params.v_dim;
		run_on_both_backends(&params);
	}
}

IT_TEST(prefill_with_odd_dims)
{
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	params.q_heads = 6;
	params.k_dim = 17;
	params.v_dim = 9;
	params.page_size = 3;
	params.rows[0].q_len = 13;
	params.rows[1].q_len = 0;
	params.rows[2].q_len = 9;
	run_on_both_backends(&params);
	params.mask = PAGED_MASK_NONE;
	params.pool = PAGED_BF16;
	run_on_both_backends(&params);
}

IT_TEST(attention_with_v_in_k)
{
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	params.v_in_k = true;
	params.kv_heads = 1;
	params.k_dim = 40;
	params.v_dim = 32;
	params.rows[0].q_len = 2;
	run_on_both_backends(&params);
}

/* On tensor cores, with split-KV for one row. */
static void
v_in_k_run(void)
{
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	params.v_in_k = true;
	params.kv_heads = 1;
	params.q_heads = 24;
	params.k_dim = 80;
	params.v_dim = 64;
	params.page_size = 16;
	params.sink = true;
	params.rows[0].q_len = 2;
	params.rows[1].kv_len = 300;
	for (enum paged_dtype dtype = PAGED_F16; dtype <= PAGED_BF16; dtype++) {
		params.pool = params.q = dtype;
		run_on_both_backends(&params);
	}
}

IT_TEST(v_in_k_on_tensor_cores)
{
	v_in_k_run();
}

/* The fake device is of sm_90. */
IT_OPT_IN_TEST(PAGED_WGMMA, v_in_k_by_wgmma)
{
	v_in_k_run();
}

/* As much shared memory as a block has on sm_80. */
IT_TEST(v_in_k_with_less_shared_memory)
{
	cuda_skip_with_gpu();
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "97=166912", 1);
	v_in_k_run();
}

/* A kernel of its own combines KV chunks if V is in K.  It is launched only if a row may have several. */
static void
kv_chunks_of_v_in_k_run(const char *kernel)
{
	struct batch_fixture_params params = decode_params;
	char runs_path[] = "/tmp/paged-cuda-runs-XXXXXX";

	it_require(close(mkstemp(runs_path)) == 0, "%m");
	setenv("PAGED_FAKE_CUDA_RUNS", runs_path, 1);
	fake_cuda_begin();
	params.v_in_k = true;
	params.kv_heads = 1;
	params.q_heads = 72;
	params.k_dim = 80;
	params.v_dim = 64;
	params.page_size = 16;
	params.backend = "cuda";
	params.pool = params.q = PAGED_BF16;
	for (unsigned int i = 0; i < 3; i++) {
		params.rows[1].kv_len = 127 + i;
		batch_fixture_run(&params);
		if (fake_cuda_wanted())
			it_require(fake_cuda_n_runs(kernel) == i + 1 &&
					   fake_cuda_n_runs("combine_kv_chunks") == (i == 2),
				   "%u tokens: %u and %u times", params.rows[1].kv_len, fake_cuda_n_runs(kernel),
				   fake_cuda_n_runs("combine_kv_chunks"));
	}
	unlink(runs_path);
}

IT_TEST(kv_chunks_of_v_in_k_are_combined)
{
	kv_chunks_of_v_in_k_run("attention_mla_bf16");
}

IT_OPT_IN_TEST(PAGED_WGMMA, kv_chunks_of_v_in_k_by_wgmma)
{
	kv_chunks_of_v_in_k_run("attention_mla_wgmma_bf16");
}

/*
 * The same kernel combines the KV chunks of long rows with few KV heads, which have more than a block combines, after
 * decode and after prefill.
 */
static void
kv_chunks_of_few_kv_heads_run(uint32_t kv_heads, uint32_t q_len, bool combined)
{
	struct batch_fixture_params params = decode_params;
	char runs_path[] = "/tmp/paged-cuda-runs-XXXXXX";

	it_require(close(mkstemp(runs_path)) == 0, "%m");
	setenv("PAGED_FAKE_CUDA_RUNS", runs_path, 1);
	fake_cuda_begin();
	params.kv_heads = kv_heads;
	params.q_heads = 8;
	params.k_dim = params.v_dim = 16;
	params.page_size = 16;
	params.chunk = 500;
	params.backend = "cuda";
	params.pool = params.q = PAGED_BF16;
	params.rows[0].q_len = q_len;
	for (unsigned int i = 0; i < 2; i++) {
		params.rows[0].kv_len = CUDA_BLOCK_KV_CHUNKS * CUDA_KV_CHUNK_UNIT + i;
		batch_fixture_run(&params);
		if (fake_cuda_wanted())
			it_require(fake_cuda_n_runs("combine_kv_chunks") == (combined && i == 1 ? 1 + (q_len > 1) : 0),
				   "%u KV heads, %u queries, %u tokens: %u times", kv_heads, q_len,
				   params.rows[0].kv_len, fake_cuda_n_runs("combine_kv_chunks"));
	}
	unlink(runs_path);
}

IT_TEST(kv_chunks_of_few_kv_heads_are_combined)
{
	kv_chunks_of_few_kv_heads_run(1, 1, true);
	kv_chunks_of_few_kv_heads_run(2, 1, true);
	kv_chunks_of_few_kv_heads_run(8, 1, false);
}

/* Decode of two rows, and prefill of the long one. */
IT_TEST(kv_chunks_of_prefill_with_one_kv_head_are_combined)
{
	kv_chunks_of_few_kv_heads_run(1, 9, true);
}

#define LONG_HEADS 128u
#define LONG_V_DIM 16u

struct long_results {
	uint16_t out[LONG_HEADS * LONG_V_DIM];
	float lse[LONG_HEADS];
};

/* Attend with the fixture's batch; gets the results of the first row, which has one query. */
static void
long_kv_chunks_attend(struct batch_fixture *fixture, struct long_results *first)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];

	batch_fixture_rows(fixture, rows);
	batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, fixture->params.n_rows, rows));
	batch_fixture_ok(fixture, batch_fixture_attend(fixture, NULL));
	batch_fixture_ok(fixture, paged_batch_validate(fixture->batch));
	batch_fixture_check(fixture);
	batch_fixture_get(fixture, first->out, fixture->out.data, sizeof(first->out));
	batch_fixture_get(fixture, first->lse, fixture->lse, sizeof(first->lse));
}

/*
 * The KV chunks of a row with 128 heads are long.  A batch that was created for one such query has no room for the
 * states of more chunks, and computes the same bits as a larger one.
 */
static void
long_kv_chunks_run(void)
{
	struct batch_fixture_params params = decode_params;
	struct long_results of_three, alone;
	struct paged_batch *three, *one;
	struct batch_fixture fixture;

	fake_cuda_begin();
	params.v_in_k = true;
	params.kv_heads = 1;
	params.q_heads = LONG_HEADS;
	params.v_dim = LONG_V_DIM;
	params.page_size = 64;
	params.backend = "cuda";
	params.pool = params.q = PAGED_BF16;
	params.chunk = 500;
	params.rows[0].kv_len = 4300;
	params.rows[1].kv_len = 1100;
	batch_fixture_open(&fixture, &params);
	for (uint32_t r = 0; r < params.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, params.rows[r].kv_len);
	long_kv_chunks_attend(&fixture, &of_three);
	batch_fixture_ok(&fixture, paged_batch_create(fixture.pool,
						      &(struct paged_batch_params){
							      .struct_size = sizeof(struct paged_batch_params),
							      .max_rows = 1,
							      .max_q_tokens = 1,
							      .max_q_heads = LONG_HEADS },
						      &one));
	batch_fixture_ok(&fixture, paged_batch_stream(one, fixture.stream));
	three = fixture.batch;
	fixture.batch = one;
	fixture.params.n_rows = fixture.total_q = 1;
	long_kv_chunks_attend(&fixture, &alone);
	it_require(memcmp(of_three.out, alone.out, sizeof(alone.out)) == 0);
	it_require(memcmp(of_three.lse, alone.lse, sizeof(alone.lse)) == 0);
	fixture.batch = three;
	paged_batch_destroy(one);
	batch_fixture_close(&fixture);
}

IT_TEST(long_kv_chunks_of_v_in_k)
{
	long_kv_chunks_run();
}

IT_OPT_IN_TEST(PAGED_WGMMA, long_kv_chunks_by_wgmma)
{
	long_kv_chunks_run();
}

IT_OPT_IN_TEST(PAGED_CLUSTERS, long_kv_chunks_by_clusters)
{
	setenv("PAGED_WGMMA", "1", 1);
	long_kv_chunks_run();
}

/* Attention from a token on, without and with split-KV. */
IT_TEST(kv_first)
{
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	params.page_size = 16;
	params.rows[0] = (struct batch_fixture_row){ .kv_len = 300, .q_len = 1, .kv_first = 17 };
	params.rows[1] = (struct batch_fixture_row){ .kv_len = 90, .q_len = 20, .kv_first = 64 };
	params.rows[2] = (struct batch_fixture_row){ .kv_len = 33, .q_len = 3, .kv_first = 33 };
	run_on_both_backends(&params);
	params.pool = params.q = PAGED_BF16;
	params.rows[0].kv_first = 200;
	run_on_both_backends(&params);
}

/* Split-KV, combined in the kernel; more plans are queued than there are staging buffers, without a wait. */
IT_TEST(split_kv_is_combined)
{
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	params.page_size = 16;
	params.n_rows = 1;
	params.rows[0] = (struct batch_fixture_row){ .kv_len = 300, .q_len = 1 };
	params.chunk = 30;
	params.q_heads = 2;
	run_on_both_backends(&params);
}

#define ROTARY_DIM 24u
#define ROTARY_POSITIONS 16u
#define ROTARY_TOKENS 9u

struct rotary_results {
	float q[ROTARY_TOKENS * 4 * 32]; /* 4 heads of K dim 32 */
	float out[ROTARY_TOKENS * 4 * 16];
};

/* Append with explicit positions, and attend with the rotated queries that the append wrote. */
static void
rotary_run(const char *backend, enum paged_dtype pool, uint32_t past, struct rotary_results *results)
{
	struct batch_fixture_params params = decode_params;
	float cos_sin[ROTARY_POSITIONS * ROTARY_DIM];
	struct paged_rotary rotary = { .struct_size = sizeof(rotary),
				       .n_positions = ROTARY_POSITIONS,
				       .dim = ROTARY_DIM,
				       .first = 8,
				       .style = past % 2 };
	struct paged_append_params append = { .struct_size = sizeof(append), .rotary = &rotary };
	bool device = strcmp(backend, "cuda") == 0;
	uint32_t positions[ROTARY_TOKENS];
	struct paged_tensor k, v;
	struct batch_fixture fixture;

	for (unsigned int i = 0; i < ROTARY_POSITIONS * ROTARY_DIM; i++)
		cos_sin[i] = random_float(5, i, 1);
	for (unsigned int i = 0; i < ROTARY_TOKENS; i++)
		positions[i] = i == 4 ? past : i * 5 % ROTARY_POSITIONS;
	params.backend = backend;
	params.pool = pool;
	params.k_dim = 32;
	params.n_rows = 1;
	params.rows[0] = (struct batch_fixture_row){ .kv_len = ROTARY_TOKENS, .q_len = ROTARY_TOKENS };
	batch_fixture_open(&fixture, &params);
	rotary.cos_sin = batch_fixture_put(&fixture, cos_sin, sizeof(cos_sin));
	rotary.positions = batch_fixture_put(&fixture, positions, sizeof(positions));
	rotary.q = batch_fixture_queries(&fixture);
	rotary.q_out = batch_fixture_tensor(&fixture, PAGED_F32, ROTARY_TOKENS, params.q_heads, params.k_dim);
	k = batch_fixture_keys(&fixture, 0, 0, ROTARY_TOKENS);
	v = batch_fixture_values(&fixture, 0, 0, ROTARY_TOKENS);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 1,
						    &(struct paged_batch_row){ .seq = fixture.seq[0],
									       .q_len = ROTARY_TOKENS,
									       .kv_len = ROTARY_TOKENS }));
	if (past >= ROTARY_POSITIONS) {
		batch_fixture_expect(&fixture, paged_append(fixture.batch, BATCH_FIXTURE_LAYER, &k, &v, &append),
				     device ? PAGED_OK : PAGED_ERR_RANGE);
		batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch),
				     device ? PAGED_ERR_RANGE : PAGED_OK);
		it_note("%s: %s", backend, paged_client_error(fixture.client));
	} else {
		batch_fixture_ok(&fixture, paged_append(fixture.batch, BATCH_FIXTURE_LAYER, &k, &v, &append));
		batch_fixture_ok(&fixture, paged_attention(fixture.batch, BATCH_FIXTURE_LAYER, &rotary.q_out,
							   &fixture.out, NULL));
		batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
		batch_fixture_get(&fixture, results->q, rotary.q_out.data, sizeof(results->q));
		batch_fixture_get(&fixture, results->out, fixture.out.data, sizeof(results->out));
	}
	batch_fixture_close(&fixture);
}

/* Rotated queries are bit-identical on both back ends; attention over rotated keys is close. */
IT_TEST(rotary_embedding)
{
	static const enum paged_dtype pools[] = { PAGED_F32, PAGED_E4M3, PAGED_I8 };
	struct rotary_results host, cuda;

	fake_cuda_begin();
	for (uint32_t i = 0; i < 6; i++) {
		rotary_run("host", pools[i / 2], i % 2, &host);
		rotary_run("cuda", pools[i / 2], i % 2, &cuda);
		it_require(memcmp(host.q, cuda.q, sizeof(host.q)) == 0);
		for (size_t at = 0; at < sizeof(host.out) / sizeof(host.out[0]); at++)
			it_require(fabsf(host.out[at] - cuda.out[at]) < 1e-5f, "%zu: host %g, cuda %g", at,
				   (double)host.out[at], (double)cuda.out[at]);
	}
}

IT_TEST(rotary_positions_out_of_range)
{
	fake_cuda_begin();
	rotary_run("host", PAGED_F16, ROTARY_POSITIONS, NULL);
	rotary_run("cuda", PAGED_F16, ROTARY_POSITIONS, NULL);
}

/* Attention over a row's keys in two parts, each an explicit page table; the merge equals attention over all keys. */
static void
merge_run(const char *backend)
{
	struct batch_fixture_params params = decode_params;
	struct paged_tensor q, part[2];
	float *lse[2];
	uint32_t pages[8];
	struct batch_fixture fixture;

	params.backend = backend;
	params.n_rows = 1;
	params.rows[0].q_len = 2;
	params.mask = PAGED_MASK_NONE;
	batch_fixture_open(&fixture, &params);
	batch_fixture_write(&fixture, 0, 0, 21);
	batch_fixture_ok(&fixture, paged_seq_read(fixture.pool, fixture.seq[0], NULL, pages, 8));
	q = batch_fixture_queries(&fixture);
	for (unsigned int i = 0; i < 2; i++) {
		part[i] = batch_fixture_tensor(&fixture, PAGED_F32, 2, params.q_heads, params.v_dim);
		lse[i] = batch_fixture_put(&fixture, NULL, 2 * params.q_heads * sizeof(float));
		batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 1,
							    &(struct paged_batch_row){ .pages = pages + 2 * i,
										       .n_pages = i == 0 ? 2 : 4,
										       .q_len = 2,
										       .kv_len = i == 0 ? 8 : 13 }));
		batch_fixture_ok(&fixture, paged_attention(fixture.batch, BATCH_FIXTURE_LAYER, &q, &part[i],
							   &(struct paged_attention_params){
								   .struct_size = sizeof(struct paged_attention_params),
								   .mask = PAGED_MASK_NONE,
								   .lse = lse[i],
								   .max_score = fixture.max_score }));
	}
	batch_fixture_ok(&fixture, paged_merge(fixture.batch, &(struct paged_merge_params){
								      .struct_size = sizeof(struct paged_merge_params),
								      .n_tokens = 2,
								      .part = { part[0], part[1] },
								      .part_lse = { lse[0], lse[1] },
								      .out = fixture.out,
								      .lse = fixture.lse }));
	/* paged_merge() does not compute max_score. */
	fixture.params.max_unknown = true;
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

IT_TEST(merge_of_two_parts)
{
	fake_cuda_begin();
	merge_run("host");
	merge_run("cuda");
}

/* The block mask contains only the first of two KV blocks. */
static void
block_mask_run(const char *backend)
{
	struct batch_fixture_params params = decode_params;

	params.backend = backend;
	params.n_rows = 1;
	params.rows[0] = (struct batch_fixture_row){ .kv_len = 16, .q_len = 1 };
	batch_fixture_run_first_tokens(&params, 8);
}

IT_TEST(attention_under_a_block_mask)
{
	fake_cuda_begin();
	block_mask_run("host");
	block_mask_run("cuda");
}

/* Contents and results computed by PyTorch. */
static void
golden_run(const char *name, uint32_t max_rows)
{
	struct batch_fixture_params params = { .backend = "cuda", .chunk = 500 };
	char path[512], what[256];
	struct golden_attention c;

	snprintf(path, sizeof(path), "%s/tests/golden/attention/%s.case", getenv("PAGED_SRCDIR"), name);
	it_require(golden_attention_open(&c, path, what, sizeof(what)), "%s: %s", path, what);
	it_require(c.score == NULL && (c.mask == NULL || strcmp(c.mask, "kv_idx <= q_idx") == 0), "%s has mods", name);
	params.golden = &c;
	params.pool = params.q = c.dtype;
	params.q_heads = c.q_heads;
	params.kv_heads = c.kv_heads;
	params.k_dim = c.k_dim;
	params.v_dim = c.v_dim;
	params.v_in_k = c.v_in_k;
	params.page_size = c.page_size;
	params.scale = (float)c.scale;
	params.mask = c.mask != NULL ? PAGED_MASK_CAUSAL : PAGED_MASK_NONE;
	params.n_rows = c.n_sequences < max_rows ? c.n_sequences : max_rows;
	for (uint32_t r = 0; r < params.n_rows; r++)
		params.rows[r] = (struct batch_fixture_row){ .kv_len = c.sequences[r].kv_len,
							     .q_len = c.sequences[r].q_len,
							     .q_base = c.sequences[r].q_base,
							     .has_q_base = true };
	batch_fixture_run(&params);
	golden_attention_close(&c);
}

/* Gather all rows without the first tokens of row 0, as f32; `begin` is in the back end's memory. */
static void
gather_run(const struct batch_fixture_params *params, const char *backend, float *keys, uint32_t n_tokens)
{
	const uint32_t begin[BATCH_FIXTURE_MAX_ROWS] = { 5 };
	struct batch_fixture_params p = *params;
	struct paged_gather_params gather = { .struct_size = sizeof(gather) };
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_tensor k, v;
	uint32_t past = 1000;
	struct batch_fixture fixture;

	p.backend = backend;
	batch_fixture_open(&fixture, &p);
	for (uint32_t r = 0; r < p.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, p.rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, p.n_rows, rows));
	k = batch_fixture_tensor(&fixture, PAGED_F32, n_tokens, p.kv_heads, p.k_dim);
	v = batch_fixture_tensor(&fixture, PAGED_BF16, n_tokens, p.kv_heads, p.v_dim);
	gather.begin = batch_fixture_put(&fixture, begin, p.n_rows * sizeof(begin[0]));
	gather.k_scale = fixture.k_scale;
	gather.v_scale = p.v_in_k ? NULL : fixture.v_scale;
	batch_fixture_ok(&fixture, paged_gather(fixture.batch, BATCH_FIXTURE_LAYER, &k, &v, &gather));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_get(&fixture, keys, k.data, (size_t)n_tokens * (size_t)k.token_stride * sizeof(float));
	gather.begin = NULL;
	gather.end = batch_fixture_put(&fixture, &past, sizeof(past));
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 1, rows));
	if (fixture.on_device) {
		batch_fixture_ok(&fixture, paged_gather(fixture.batch, BATCH_FIXTURE_LAYER, &k, NULL, &gather));
		batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch), PAGED_ERR_RANGE);
	} else {
		batch_fixture_expect(&fixture, paged_gather(fixture.batch, BATCH_FIXTURE_LAYER, &k, NULL, &gather),
				     PAGED_ERR_RANGE);
	}
	batch_fixture_close(&fixture);
}

IT_TEST(gather_to_a_tensor)
{
	static const enum paged_dtype pools[] = { PAGED_F32, PAGED_BF16, PAGED_E4M3, PAGED_I8 };
	static float host[31 * 4 * 64], cuda[31 * 4 * 64];
	struct batch_fixture_params params = decode_params;

	fake_cuda_begin();
	params.rows[2].q_len = 0;
	for (unsigned int i = 0; i < 8; i++) {
		params.pool = pools[i % 4];
		params.scales = params.pool == PAGED_E4M3 && i < 4;
		params.v_in_k = i >= 4;
		params.v_dim = i >= 4 ? 16 : 24;
		gather_run(&params, "host", host, 21 - 5 + 1 + 9);
		gather_run(&params, "cuda", cuda, 21 - 5 + 1 + 9);
		it_require(memcmp(host, cuda, sizeof(host)) == 0, "pool of %s", paged_dtype_name(params.pool));
	}
}

IT_TEST(golden_edge_lengths)
{
	fake_cuda_begin();
	golden_run("edge_p3_kv17", 1);
	golden_run("edge_p1_kv65", 1);
	golden_run("edge_p16_kv130", 3);
}

IT_TEST(golden_decode_on_tensor_cores)
{
	fake_cuda_begin();
	golden_run("decode_16_1_p128_bf16", 2);
	golden_run("append_q4", 3);
	golden_run("append_q23", 2);
	golden_run("latent_576_512", 1);
}

IT_MAIN
