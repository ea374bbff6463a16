/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of prefill and decode: which kernels run for which batches, and that their results are those of float64,
 * also with block masks and after failures.  Over the fake CUDA driver, or a GPU, where the kernels that run are not
 * known.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/prefill_fixture.h"

static void
run_and_count(const struct batch_fixture_params *params, struct prefill_runs wanted)
{
	char decode[32], prefill[32];
	const char *dtype = params->pool == PAGED_F16 ? "f16" : "bf16";
	uint32_t most = params->k_dim > params->v_dim ? params->k_dim : params->v_dim, dim = most <= 64 ? 64 : 128;

	snprintf(decode, sizeof(decode), "%s_%s_%u", prefill_decode_source(params), dtype, most > 128 ? 256 : dim);
	snprintf(prefill, sizeof(prefill), "%s_%s_%u", prefill_source(), dtype, dim);
	batch_fixture_run(params);
	prefill_expect_runs(&wanted, decode, prefill);
}

static void
each_kernel_run(void)
{
	struct batch_fixture_params params = prefill_mixed;

	prefill_begin();
	run_and_count(&params, (struct prefill_runs){ 1, 1 });
	for (uint32_t r = 0; r < params.n_rows; r++)
		params.rows[r].q_len = r % 2 ? 0 : 17 + r;
	run_and_count(&params, (struct prefill_runs){ 0, 1 });
	/* 64 q_rows are a tile of the decode kernel, 68 are not. */
	for (uint32_t r = 0; r < params.n_rows; r++)
		params.rows[r].q_len = r % 2 ? 16 : 1;
	run_and_count(&params, (struct prefill_runs){ 1, 0 });
	params.rows[1].q_len = 17;
	run_and_count(&params, (struct prefill_runs){ 1, 1 });
	prefill_end();
}

IT_TEST(each_kernel_runs_if_it_has_rows)
{
	each_kernel_run();
}

/* The fake device is of sm_90. */
IT_OPT_IN_TEST(PAGED_WGMMA, wgmma_runs_on_request)
{
	each_kernel_run();
}

IT_OPT_IN_TEST(PAGED_BULK, bulk_copies_run_on_request)
{
	each_kernel_run();
}

/* A pool that the kernel does not support, and a device without bulk copies. */
IT_OPT_IN_TEST(PAGED_BULK, other_pools_and_devices_do_without_bulk_copies)
{
	struct batch_fixture_params params = prefill_mixed;

	cuda_skip_with_gpu();
	prefill_begin();
	params.page_size = 4;
	run_and_count(&params, (struct prefill_runs){ 1, 1 });
	params.page_size = 8;
	params.v_dim = 56;
	run_and_count(&params, (struct prefill_runs){ 1, 1 });
	prefill_end();
}

IT_OPT_IN_TEST(PAGED_BULK, bulk_copies_need_9_0)
{
	char attributes[32];

	cuda_skip_with_gpu();
	snprintf(attributes, sizeof(attributes), "%d=8", CUDA_DEVICE_COMPUTE_MAJOR);
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", attributes, 1);
	prefill_begin();
	batch_fixture_run(&prefill_mixed);
	prefill_expect_runs(&(struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64", "attention_prefill_bf16_64");
	prefill_end();
}

/* Its code runs on exactly 9.0. */
IT_OPT_IN_TEST(PAGED_WGMMA, wgmma_does_not_run_on_9_1)
{
	char attributes[32];

	cuda_skip_with_gpu();
	snprintf(attributes, sizeof(attributes), "%d=1", CUDA_DEVICE_COMPUTE_MINOR);
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", attributes, 1);
	prefill_begin();
	batch_fixture_run(&prefill_mixed);
	prefill_expect_runs(&(struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64", "attention_prefill_bf16_64");
	prefill_end();
}

IT_TEST(wgmma_is_0_or_1)
{
	prefill_begin();
	prefill_expect_switch(&prefill_mixed, "PAGED_WGMMA");
	prefill_end();
}

/* Dims that the kernels pad, all dtypes, pages of any size, sinks, kv_first, and no mask. */
static void
shapes_run(void)
{
	static const uint32_t dims[][2] = { { 8, 24 }, { 128, 128 }, { 72, 40 }, { 64, 104 } };
	struct batch_fixture_params params = prefill_mixed;

	prefill_begin();
	for (unsigned int i = 0; i < 4; i++) {
		params.pool = params.q = i % 2 ? PAGED_F16 : PAGED_BF16;
		params.k_dim = dims[i][0];
		params.v_dim = dims[i][1];
		params.page_size = i % 2 ? 3 : 64;
		params.mask = i == 2 ? PAGED_MASK_NONE : PAGED_MASK_CAUSAL;
		params.sink = i > 0;
		params.padding = i == 1 ? 3 : 0;
		params.rows[0].kv_first = 37 * i;
		params.rows[3].kv_first = 200;
		run_and_count(&params, (struct prefill_runs){ 1, 1 });
	}
	prefill_end();
}

IT_TEST(shapes_of_prefill)
{
	shapes_run();
}

IT_OPT_IN_TEST(PAGED_WGMMA, shapes_of_prefill_by_wgmma)
{
	shapes_run();
}

/*
 * Decode of one and of several queries, whose tiles are narrow and wide, over many KV chunks; queries at addresses that
 * a bulk copy does not take, sinks, kv_first.
 */
IT_OPT_IN_TEST(PAGED_BULK, shapes_of_decode_by_bulk_copies)
{
	struct batch_fixture_params params = prefill_mixed;

	prefill_begin();
	params.max_q_tokens = 1100;
	for (unsigned int i = 0; i < 6; i++) {
		params.pool = params.q = i % 2 ? PAGED_F16 : PAGED_BF16;
		params.k_dim = params.v_dim = i % 3 == 0 ? 128 : 64;
		params.page_size = 8u << i % 3;
		params.mask = i == 2 ? PAGED_MASK_NONE : PAGED_MASK_CAUSAL;
		params.sink = i > 2;
		params.padding = i % 4;
		params.q_heads = i % 2 ? 8 : 2;
		for (uint32_t r = 0; r < params.n_rows; r++)
			params.rows[r] = (struct batch_fixture_row){ .kv_len = 1 + (r * 397 + i * 131) % 1100,
								     .q_len = 1 + (r + i) % 3 * 7 };
		params.rows[1].kv_first = params.rows[1].kv_len / 2;
		for (uint32_t r = 0; r < params.n_rows; r++)
			if (params.rows[r].q_len > params.rows[r].kv_len)
				params.rows[r].q_len = params.rows[r].kv_len;
		run_and_count(&params, (struct prefill_runs){ 1, 0 });
	}
	prefill_end();
}

/* A pool without a prefill kernel: f32, dims of more than 128, or bytes. */
IT_TEST(other_pools_run_one_kernel)
{
	struct batch_fixture_params params = prefill_mixed;

	prefill_begin();
	params.n_rows = 2;
	params.pool = params.q = PAGED_F32;
	batch_fixture_run(&params);
	prefill_expect_runs(&(struct prefill_runs){ 1, 0 }, "attention_simt_128", "attention_prefill");
	params.pool = params.q = PAGED_F16;
	params.v_dim = 136;
	batch_fixture_run(&params);
	prefill_expect_runs(&(struct prefill_runs){ 1, 0 }, "attention_mma_f16_256", "attention_prefill");
	params.pool = PAGED_I8;
	params.v_dim = 64;
	batch_fixture_run(&params);
	prefill_expect_runs(&(struct prefill_runs){ 1, 0 }, "attention_bytes_i8_f16_64", "attention_prefill");
	prefill_end();
}

/* A block mask without mods. */
static void
block_mask_run(const char *prefill)
{
	struct batch_fixture_params params = prefill_mixed;

	prefill_begin();
	params.n_rows = 1;
	batch_fixture_run_first_tokens(&params, 64);
	prefill_expect_runs(&(struct prefill_runs){ 0, 1 }, "attention_mma", prefill);
	prefill_end();
}

/* Devices whose blocks have 99 KiB, as sm_86, sm_89 and sm_120: decode and prefill run on tensor cores there too. */
IT_TEST(tensor_cores_with_99_kib_of_shared_memory)
{
	static const struct {
		uint32_t k_dim, v_dim;
		struct prefill_runs runs;
	} cases[] = { { 128, 128, { 1, 1 } }, { 72, 120, { 1, 1 } }, { 192, 128, { 1, 0 } }, { 256, 256, { 1, 0 } } };
	struct batch_fixture_params params = prefill_mixed;
	char attributes[32];

	cuda_skip_with_gpu();
	snprintf(attributes, sizeof(attributes), "%d=%u", CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN, 99u << 10);
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", attributes, 1);
	prefill_begin();
	for (unsigned int i = 0; i < 4; i++) {
		params.pool = params.q = i % 2 ? PAGED_F16 : PAGED_BF16;
		params.k_dim = cases[i].k_dim;
		params.v_dim = cases[i].v_dim;
		run_and_count(&params, cases[i].runs);
	}
	/* MLA: every tile is narrow. */
	params.v_in_k = true;
	params.kv_heads = 1;
	params.q_heads = 24;
	params.k_dim = 288;
	params.v_dim = 256;
	batch_fixture_run(&params);
	prefill_expect_runs(&(struct prefill_runs){ 1, 0 }, "attention_mla_f16", "attention_prefill_");
	prefill_end();
}

IT_TEST(block_mask_of_prefill)
{
	block_mask_run("attention_prefill_bf16_64");
}

IT_OPT_IN_TEST(PAGED_WGMMA, block_mask_of_prefill_by_wgmma)
{
	block_mask_run("attention_wgmma_bf16_64");
}

/* Two carve-outs of shared memory from the L1 cache would keep two kernels apart. */
IT_TEST(every_kernel_asks_for_the_same_carve_out)
{
	unsigned int opted_in = 2; /* those for bf16 queries have more than 48 KiB: decode and prefill */
	struct batch_fixture fixture;

	cuda_skip_with_gpu();
	prefill_begin();
	batch_fixture_open(&fixture, &prefill_mixed);
	it_require(fake_cuda_n_calls("cuFuncSetAttribute") == fake_cuda_n_calls("cuModuleGetFunction") + opted_in,
		   "%u attributes, %u kernels", fake_cuda_n_calls("cuFuncSetAttribute"),
		   fake_cuda_n_calls("cuModuleGetFunction"));
	batch_fixture_close(&fixture);
	prefill_end();
}

/* Failures */

/* The prefill kernel of the last dtype is the last one that is loaded. */
IT_TEST(error_names_the_prefill_kernel)
{
	static const struct {
		const char *function;
		int result;
		enum paged_status status;
		const char *text;
	} cases[] = {
		{ "cuModuleLoadData", CUDA_ERROR_INVALID_IMAGE, PAGED_ERR_BACKEND,
		  "cuModuleLoadData of attention_prefill: " },
		{ "cuModuleGetFunction", CUDA_ERROR_OUT_OF_MEMORY, PAGED_ERR_NOMEM,
		  "cuModuleGetFunction of attention_prefill_bf16_64: " },
		{ "cuFuncSetAttribute", CUDA_ERROR_INVALID_HANDLE, PAGED_ERR_BACKEND,
		  "the largest carve-out of shared memory for attention_prefill_bf16_64: " },
		{ "cuOccupancyMaxActiveBlocksPerMultiprocessor", CUDA_ERROR_INVALID_HANDLE, PAGED_ERR_BACKEND,
		  "occupancy of attention_prefill_bf16_64: " },
	};
	struct paged_pool_params pool_params = cuda_small_pool;
	struct paged_client *client;
	struct paged_batch *batch;
	struct paged_pool *pool;

	cuda_skip_with_gpu();
	/* As new as what compiled the kernels: an older driver's error also says that, with another status. */
	setenv("PAGED_FAKE_CUDA_VERSION", "99000", 1);
	prefill_begin();
	pool_params.dtype = PAGED_BF16;
	pool_params.k_dim = pool_params.v_dim = 64;
	it_require(paged_client_open_embedded(&pool_params, 1, NULL, &client) == PAGED_OK, "%s",
		   paged_client_error(client));
	it_require(paged_pool_open(client, "test", &pool) == PAGED_OK, "%s", paged_client_error(client));
	for (unsigned int i = 0; i < 4; i++) {
		unsigned int before = fake_cuda_n_calls(cases[i].function);
		enum paged_status status;

		it_require(paged_batch_create(pool, NULL, &batch) == PAGED_OK, "%s", paged_client_error(client));
		paged_batch_destroy(batch);
		prefill_fail_after(cases[i].function, fake_cuda_n_calls(cases[i].function) - before - 1,
				   cases[i].result);
		status = paged_batch_create(pool, NULL, &batch);
		it_require(status == cases[i].status && strstr(paged_client_error(client), cases[i].text) != NULL,
			   "%s: %s", paged_status_name(status), paged_client_error(client));
		unsetenv("PAGED_FAKE_CUDA_FAIL");
	}
	paged_client_close(client);
	prefill_end();
}

/* The launch of either kernel fails: what was launched before it runs, and the same plan serves the next call. */
static void
launches_fail(void)
{
	static const struct prefill_runs runs[] = { { 0, 0 }, { 1, 0 } };
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture fixture;
	char text[64];

	cuda_skip_with_gpu();
	prefill_begin();
	batch_fixture_open(&fixture, &prefill_mixed);
	for (uint32_t r = 0; r < prefill_mixed.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, prefill_mixed.rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, prefill_mixed.n_rows, rows));
	/* The planner for these queries runs in the first call. */
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	for (unsigned int skip = 0; skip < 2; skip++) {
		batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
		batch_fixture_check(&fixture);
		prefill_expect_runs(&(struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64", prefill_source());
		prefill_fail_after("cuLaunchKernel", skip, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
		snprintf(text, sizeof(text), "launch of %s_bf16_64: ", skip == 0 ? "attention_mma" : prefill_source());
		batch_fixture_expect(&fixture, batch_fixture_attend(&fixture, NULL), PAGED_ERR_BACKEND);
		it_require(strstr(paged_client_error(fixture.client), text) != NULL, "%s",
			   paged_client_error(fixture.client));
		batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
		prefill_expect_runs(&runs[skip], "attention_mma_bf16_64", prefill_source());
		batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	}
	batch_fixture_check(&fixture);
	/* Another plan, and the tokens are written again. */
	for (uint32_t r = 0; r < prefill_mixed.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, prefill_mixed.rows[r].kv_len);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, prefill_mixed.n_rows, rows));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
	prefill_end();
}

IT_TEST(calls_survive_a_failed_launch)
{
	launches_fail();
}

IT_OPT_IN_TEST(PAGED_WGMMA, calls_survive_a_failed_launch_of_wgmma)
{
	launches_fail();
}

IT_MAIN
