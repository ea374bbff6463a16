/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mods in attention of prefill and decode: both kernels apply them, and their results are those of float64, also with
 * block masks, and after failures.  Over the fake CUDA driver, or a GPU, where the kernels that run are not known.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/nvrtc.h"
#include "tests/fake-cuda/load.h"
#include "tests/support/mod_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/prefill_fixture.h"

#define N_ARRAYS 4
#define N_TOKENS 210

static const int32_t window = 29;
static const float cap = 1.5f, slopes[8] = { 0.125f, -0.25f, 0.5f, 0, 0.0625f, -0.5f, 0.25f, 1 };
static int32_t documents[N_TOKENS];

static const struct mod_array host_arrays[N_ARRAYS] = {
	MOD_PARAM("window", MOD_I32, window),
	MOD_PARAM("cap", MOD_F32, cap),
	MOD_1D("slope", MOD_F32, slopes),
	MOD_1D("doc", MOD_I32, documents),
};

struct mods_case {
	const char *mask, *score; /* NULL: none */
	const char *suffix;       /* of the kernels' names */
	enum paged_dtype dtype;
	uint32_t k_dim, v_dim, page_size;
	bool v_in_k;      /* one kernel computes all rows */
	uint32_t q_heads; /* of one KV head, with few query rows; 0: those of prefill_mixed */
};

/* A batch of both kinds of rows, whose tokens are written, and the mods of a case. */
struct mods_batch {
	struct batch_fixture_params params;
	struct batch_fixture fixture;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_array arrays[N_ARRAYS]; /* on the device */
	struct paged_mod *mask, *score;      /* NULL: none */
	struct mod_fixture mask_reference, score_reference;
	char decode[64], prefill[64]; /* the kernels' names */
	bool v_in_k;
};

static struct mod_fixture
reference_open(enum mod_kind kind, const char *text)
{
	struct mod_fixture none = { NULL, NULL };

	return text != NULL ? mod_fixture_open(kind, text, host_arrays, N_ARRAYS) : none;
}

static struct paged_mod *
mods_batch_parse(struct mods_batch *batch, enum paged_mod_kind kind, const char *text)
{
	struct paged_mod *mod = NULL;

	if (text != NULL)
		batch_fixture_ok(&batch->fixture,
				 paged_mod_parse(batch->fixture.pool, kind, text, N_ARRAYS, batch->arrays, &mod));
	return mod;
}

static void
mods_batch_names(struct mods_batch *batch, const struct mods_case *c, bool with_blocks)
{
	const char *dtype = c->dtype == PAGED_F16 ? "f16" : "bf16";
	int dim = c->k_dim <= 64 && c->v_dim <= 64 ? 64 : 128;

	batch->v_in_k = c->v_in_k;
	snprintf(batch->prefill, sizeof(batch->prefill), "%s_%s_%d%s", prefill_source(), dtype, dim, c->suffix);
	if (c->v_in_k) {
		snprintf(batch->decode, sizeof(batch->decode), "%s_%s%s",
			 prefill_mla_source(&batch->params, with_blocks), dtype, c->suffix);
		return;
	}
	snprintf(batch->decode, sizeof(batch->decode), "%s_%s_%d%s", prefill_decode_source(&batch->params), dtype, dim,
		 c->suffix);
}

static void
mods_batch_open(struct mods_batch *batch, const struct mods_case *c)
{
	struct batch_fixture *fixture = &batch->fixture;
	struct batch_fixture_params *params = &batch->params;

	for (uint32_t i = 0; i < N_TOKENS; i++)
		documents[i] = (int32_t)(i / 40 % 3);
	batch->mask_reference = reference_open(MOD_MASK, c->mask);
	batch->score_reference = reference_open(MOD_SCORE, c->score);
	*params = prefill_mixed;
	params->pool = params->q = c->dtype;
	params->k_dim = c->k_dim;
	params->v_dim = c->v_dim;
	params->page_size = c->page_size;
	params->v_in_k = c->v_in_k;
	params->mask = PAGED_MASK_CAUSAL;
	params->mask_mod = batch->mask_reference.binding;
	params->score_mod = batch->score_reference.binding;
	params->rows[0].kv_first = 37;
	params->rows[2].kv_len = 70;
	if (c->q_heads != 0) {
		params->q_heads = c->q_heads;
		params->kv_heads = 1;
		for (uint32_t r = 0; r < params->n_rows; r++)
			params->rows[r].q_len = 1 + r % 2;
	}
	batch_fixture_open(fixture, params);
	for (uint32_t r = 0; r < params->n_rows; r++)
		batch_fixture_write(fixture, r, 0, params->rows[r].kv_len);
	batch_fixture_rows(fixture, batch->rows);
	batch->arrays[0] = (struct paged_array){ .name = "window", .dtype = PAGED_I32, .data = &window };
	batch->arrays[1] = (struct paged_array){ .name = "cap", .dtype = PAGED_F32, .data = &cap };
	batch->arrays[2] = (struct paged_array){ .name = "slope",
						 .dtype = PAGED_F32,
						 .n_dims = 1,
						 .extents = { 8 },
						 .data = batch_fixture_put(fixture, slopes, sizeof(slopes)) };
	batch->arrays[3] = (struct paged_array){ .name = "doc",
						 .dtype = PAGED_I32,
						 .n_dims = 1,
						 .extents = { N_TOKENS },
						 .data = batch_fixture_put(fixture, documents, sizeof(documents)) };
	batch->mask = mods_batch_parse(batch, PAGED_MOD_MASK, c->mask);
	batch->score = mods_batch_parse(batch, PAGED_MOD_SCORE, c->score);
	mods_batch_names(batch, c, false);
}

static void
mods_batch_close(struct mods_batch *batch)
{
	batch_fixture_close(&batch->fixture);
	mod_fixture_close(&batch->mask_reference);
	mod_fixture_close(&batch->score_reference);
}

static struct paged_mod_set *
mods_batch_set(struct mods_batch *batch, struct paged_block_mask *blocks)
{
	struct paged_mod_set *set;

	batch_fixture_ok(
		&batch->fixture,
		paged_mod_set_create(batch->fixture.batch,
				     &(struct paged_mod_set_params){ .struct_size = sizeof(struct paged_mod_set_params),
								     .mask = batch->mask,
								     .score = batch->score },
				     &set));
	batch_fixture_ok(&batch->fixture, paged_mod_set_bind(set, N_ARRAYS, batch->arrays, blocks));
	return set;
}

/* The block mask of the mask mod; without one, of causality, which attention applies in its partial blocks. */
static struct paged_block_mask *
mods_batch_blocks(struct mods_batch *batch)
{
	struct paged_mod *causal = mods_batch_parse(batch, PAGED_MOD_MASK, "kv_idx <= q_idx");
	struct paged_block_mask *blocks;
	struct paged_array arrays[N_ARRAYS];

	memcpy(arrays, batch->arrays, sizeof(arrays));
	arrays[2].data = slopes;
	arrays[3].data = documents;
	batch_fixture_ok(
		&batch->fixture,
		paged_block_mask_create(
			batch->fixture.pool,
			&(struct paged_block_mask_params){ .struct_size = sizeof(struct paged_block_mask_params),
							   .rows = batch->rows,
							   .n_rows = batch->params.n_rows,
							   .q_block = 5,
							   .kv_block = 8 },
			batch->mask != NULL ? batch->mask : causal, N_ARRAYS, arrays, &blocks));
	return blocks;
}

static void
mods_batch_check(struct mods_batch *batch)
{
	batch_fixture_ok(&batch->fixture, paged_batch_validate(batch->fixture.batch));
	batch_fixture_check(&batch->fixture);
	prefill_expect_runs(&(struct prefill_runs){ 1, batch->v_in_k ? 0 : 1 }, batch->decode, batch->prefill);
}

/* Attention with the mods alone, and with a block mask.  Once they are prepared, it compiles and loads nothing. */
static void
mods_run(const struct mods_case *c)
{
	struct mods_batch batch;

	mods_batch_open(&batch, c);
	for (unsigned int with_blocks = 0; with_blocks < 2; with_blocks++) {
		struct paged_mod_set *set = mods_batch_set(&batch, with_blocks ? mods_batch_blocks(&batch) : NULL);
		struct paged_batch *to = batch.fixture.batch;
		unsigned int n_loads;

		mods_batch_names(&batch, c, with_blocks);
		batch_fixture_ok(&batch.fixture, paged_mod_set_prepare(set, c->dtype, -1));
		n_loads = fake_cuda_wanted() ? fake_cuda_n_calls("cuModuleLoadData") : 0;
		batch_fixture_ok(&batch.fixture, paged_batch_plan(to, batch.params.n_rows, batch.rows));
		batch_fixture_ok(&batch.fixture, batch_fixture_attend(&batch.fixture, set));
		it_require(!fake_cuda_wanted() || fake_cuda_n_calls("cuModuleLoadData") == n_loads);
		mods_batch_check(&batch);
	}
	mods_batch_close(&batch);
}

/* Kernels that are built in need no compiler. */
static void
built_in_mods_run(void)
{
	static const struct mods_case cases[] = {
		{ "sliding_window", NULL, "_sliding_window", PAGED_BF16, 64, 64, 16, false, 0 },
		{ NULL, "soft_cap", "_soft_cap", PAGED_BF16, 24, 40, 3, false, 0 },
		{ "sliding_window", "soft_cap", "_capped_window", PAGED_BF16, 64, 56, 64, false, 0 },
	};

	prefill_begin();
	setenv("PAGED_NVRTC", "/nonexistent/libnvrtc.so", 1);
	for (unsigned int i = 0; i < 3; i++)
		mods_run(&cases[i]);
	prefill_end();
}

IT_TEST(built_in_mods_apply_to_both_kernels)
{
	built_in_mods_run();
}

IT_OPT_IN_TEST(PAGED_WGMMA, built_in_mods_by_wgmma)
{
	built_in_mods_run();
}

IT_OPT_IN_TEST(PAGED_BULK, built_in_mods_by_bulk_copies)
{
	built_in_mods_run();
}

static const char compiled_mask[] = "doc[q_idx] == doc[kv_idx] && q_idx - kv_idx < window",
		  compiled_score[] = "cap * tanh(score / cap) + slope[h] * (kv_idx - q_idx)";

static void
cases_run(const struct mods_case *cases, size_t n)
{
	struct paged_error error;
	struct cuda_nvrtc nvrtc;

	prefill_begin();
	if (!fake_cuda_wanted() && cuda_nvrtc_open(&nvrtc, 0, &error) != PAGED_OK)
		it_skip("%s", error.text);
	for (size_t i = 0; i < n; i++)
		mods_run(&cases[i]);
	prefill_end();
}

static void
compiled_mods_run(void)
{
	static const struct mods_case cases[] = {
		{ compiled_mask, NULL, "", PAGED_BF16, 64, 64, 16, false, 0 },
		{ NULL, compiled_score, "", PAGED_F16, 72, 40, 3, false, 0 },
		{ compiled_mask, compiled_score, "", PAGED_BF16, 128, 104, 64, false, 0 },
		{ compiled_mask, compiled_score, "", PAGED_F16, 128, 128, 8, false, 0 },
	};

	cases_run(cases, sizeof(cases) / sizeof(cases[0]));
}

static void
compiled_mods_of_v_in_k_run(void)
{
	static const struct mods_case cases[] = {
		{ compiled_mask, compiled_score, "", PAGED_BF16, 80, 64, 16, true, 0 },
		{ NULL, compiled_score, "", PAGED_F16, 144, 32, 3, true, 0 },
	};

	cases_run(cases, sizeof(cases) / sizeof(cases[0]));
}

IT_TEST(compiled_mods_apply_to_both_kernels)
{
	compiled_mods_run();
}

IT_OPT_IN_TEST(PAGED_BULK, compiled_mods_by_bulk_copies)
{
	compiled_mods_run();
}

IT_OPT_IN_TEST(PAGED_WGMMA, compiled_mods_by_wgmma)
{
	compiled_mods_run();
}

IT_TEST(compiled_mods_of_v_in_k)
{
	compiled_mods_of_v_in_k_run();
}

IT_OPT_IN_TEST(PAGED_WGMMA, compiled_mods_of_v_in_k_by_wgmma)
{
	compiled_mods_of_v_in_k_run();
}

/* With a block mask, each block is alone. */
IT_OPT_IN_TEST(PAGED_CLUSTERS, compiled_mods_by_clusters)
{
	static const struct mods_case c = {
		compiled_mask, "cap * tanh(score / cap)", "", PAGED_BF16, 80, 64, 16, true, 128
	};

	setenv("PAGED_WGMMA", "1", 1);
	cases_run(&c, 1);
}

/* The second of two compilations or loads of a mod set fails: no kernel runs, and the next attempt succeeds. */
static void
window_fail(const char *mask, const char *function, int result, const char *what)
{
	const struct mods_case c = { mask, NULL, "", PAGED_BF16, 64, 64, 16, false, 0 };
	struct paged_mod_set *set;
	struct mods_batch batch;

	mods_batch_open(&batch, &c);
	prefill_fail_after(function, 1, result);
	set = mods_batch_set(&batch, NULL);
	batch_fixture_ok(&batch.fixture, paged_batch_plan(batch.fixture.batch, batch.params.n_rows, batch.rows));
	if (what != NULL) {
		const char *error;

		batch_fixture_expect(&batch.fixture, batch_fixture_attend(&batch.fixture, set), PAGED_ERR_BACKEND);
		error = paged_client_error(batch.fixture.client);
		it_require(strstr(error, batch.prefill) != NULL && strstr(error, what) != NULL, "%s", error);
		batch_fixture_ok(&batch.fixture, paged_batch_validate(batch.fixture.batch));
		prefill_expect_runs(&(struct prefill_runs){ 0, 0 }, batch.decode, batch.prefill);
	}
	batch_fixture_ok(&batch.fixture, batch_fixture_attend(&batch.fixture, set));
	mods_batch_check(&batch);
	mods_batch_close(&batch);
	unsetenv("PAGED_FAKE_CUDA_FAIL");
}

static void
window_fails(void)
{
	cuda_skip_with_gpu();
	prefill_begin();
	window_fail("q_idx - kv_idx < window + 0", "nvrtcCompileProgram", 6, ": NVRTC_ERROR_COMPILATION");
	window_fail("q_idx - kv_idx < window + 0", "cuModuleLoadData", 200, " with mods: ");
	/* A built-in image that the driver refuses is compiled. */
	window_fail("sliding_window", "cuModuleLoadData", 222, NULL);
	prefill_end();
}

IT_TEST(mods_survive_failures_of_the_second_kernel)
{
	window_fails();
}

IT_OPT_IN_TEST(PAGED_WGMMA, mods_survive_failures_of_wgmma)
{
	window_fails();
}

IT_MAIN
