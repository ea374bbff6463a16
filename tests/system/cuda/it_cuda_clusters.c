/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by clusters (PAGED_CLUSTERS=1): when it is chosen, and its results, compared with float64.  Over the fake
 * CUDA driver, or a GPU, where the kernels that run are not known.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/load.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/prefill_fixture.h"

static const struct batch_fixture_params decode_params = {
	.backend = "cuda",
	.pool = PAGED_BF16,
	.q = PAGED_BF16,
	.v_in_k = true,
	.q_heads = 128,
	.kv_heads = 1,
	.k_dim = 80,
	.v_dim = 64,
	.page_size = 16,
	.n_rows = 3,
	.rows = { { .kv_len = 150, .q_len = 1 }, { .kv_len = 5, .q_len = 1 }, { .kv_len = 64, .q_len = 2 } },
};

static void
clusters_begin(void)
{
	setenv("PAGED_WGMMA", "1", 1);
	prefill_begin();
}

static void
run_expecting(const struct batch_fixture_params *params, const char *kernel)
{
	batch_fixture_run(params);
	prefill_expect_runs(&(struct prefill_runs){ 1, 0 }, kernel, "attention_prefill");
}

IT_OPT_IN_TEST(PAGED_CLUSTERS, decode_of_128_heads)
{
	struct batch_fixture_params params = decode_params;

	clusters_begin();
	run_expecting(&params, "attention_mla_cluster_bf16");
	params.pool = params.q = PAGED_F16;
	params.sink = true;
	params.rows[0].kv_first = 70;
	run_expecting(&params, "attention_mla_cluster_f16");
	params.q_heads = 256;
	params.kv_heads = 2;
	params.page_size = 64;
	run_expecting(&params, "attention_mla_cluster_f16");
	params.page_size = 8;
	params.k_dim = params.v_dim = 16;
	run_expecting(&params, "attention_mla_cluster_f16");
	params.k_dim = 576;
	params.v_dim = 512;
	params.q_heads = 384;
	params.kv_heads = 1;
	params.n_rows = 1;
	run_expecting(&params, "attention_mla_cluster_f16");
	prefill_end();
}

/* Pools, queries and drivers that clusters do not support have the kernel that each block runs alone. */
IT_OPT_IN_TEST(PAGED_CLUSTERS, others_have_blocks_alone)
{
	struct batch_fixture_params params = decode_params;

	clusters_begin();
	params.q_heads = 64;
	run_expecting(&params, "attention_mla_wgmma_bf16");
	params.q_heads = 192;
	params.n_rows = 1;
	run_expecting(&params, "attention_mla_wgmma_bf16");
	params.q_heads = 128;
	params.page_size = 4;
	run_expecting(&params, "attention_mla_wgmma_bf16");
	prefill_end();
}

/* A part of a device may have no room for two blocks at the same time. */
IT_OPT_IN_TEST(PAGED_CLUSTERS, a_device_has_no_clusters)
{
	char attributes[16];

	cuda_skip_with_gpu();
	snprintf(attributes, sizeof(attributes), "%d=1", CUDA_DEVICE_MULTIPROCESSORS);
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", attributes, 1);
	clusters_begin();
	run_expecting(&decode_params, "attention_mla_wgmma_bf16");
	prefill_end();
}

/* Clusters are permitted by both variables. */
IT_OPT_IN_TEST(PAGED_CLUSTERS, clusters_need_wgmma)
{
	clusters_begin();
	setenv("PAGED_WGMMA", "0", 1);
	run_expecting(&decode_params, "attention_mla_bf16");
	setenv("PAGED_WGMMA", "1", 1);
	setenv("PAGED_CLUSTERS", "0", 1);
	run_expecting(&decode_params, "attention_mla_wgmma_bf16");
	prefill_end();
}

IT_OPT_IN_TEST(PAGED_CLUSTERS, the_variable_is_0_or_1)
{
	clusters_begin();
	prefill_expect_switch(&decode_params, "PAGED_CLUSTERS");
	prefill_end();
}

/* The driver refuses a map: the error says which, no kernel runs, and the next call succeeds. */
IT_OPT_IN_TEST(PAGED_CLUSTERS, a_map_is_refused)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture fixture;

	cuda_skip_with_gpu();
	clusters_begin();
	batch_fixture_open(&fixture, &decode_params);
	for (uint32_t r = 0; r < decode_params.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, decode_params.rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, decode_params.n_rows, rows));
	prefill_fail_after("cuTensorMapEncodeTiled", 0, CUDA_ERROR_INVALID_VALUE);
	batch_fixture_expect(&fixture, batch_fixture_attend(&fixture, NULL), PAGED_ERR_BACKEND);
	it_require(strstr(paged_client_error(fixture.client), "cuTensorMapEncodeTiled of ") != NULL &&
			   strstr(paged_client_error(fixture.client), " pages of 16 tokens of 80 dims") != NULL,
		   "%s", paged_client_error(fixture.client));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	prefill_expect_runs(&(struct prefill_runs){ 1, 0 }, "attention_mla_cluster_bf16", "attention_prefill");
	batch_fixture_close(&fixture);
	prefill_end();
}

IT_MAIN
