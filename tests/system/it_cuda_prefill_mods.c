/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mods in attention of prefill and decode: both kernels apply them, and their results are those of float64, also with
 * block masks, and after failures.  Over the fake CUDA driver, or a GPU, where the kernels that run are not known.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/nvrtc.h"
#include "tests/fake-cuda/load.h"
#include "tests/system/cuda_daemon.h"
#include "tests/system/prefill_fixture.h"

/* A sliding window, as the mod that is built in and as one that must be compiled */

#define WINDOW 29

static const int32_t window = WINDOW;
static const struct paged_array window_array = { .name = "window", .dtype = PAGED_I32, .data = &window };

static struct paged_mod *
window_parse(struct batch_fixture *fixture, const char *text)
{
	struct paged_mod *mod;

	batch_fixture_ok(fixture, paged_mod_parse(fixture->pool, PAGED_MOD_MASK, text, 1, &window_array, &mod));
	return mod;
}

static struct paged_mod_set *
window_set_make(struct batch_fixture *fixture, const struct paged_mod *mod, struct paged_block_mask *blocks)
{
	struct paged_mod_set *mods;

	batch_fixture_ok(fixture,
			 paged_mod_set_create(fixture->batch,
					      &(struct paged_mod_set_params){
						      .struct_size = sizeof(struct paged_mod_set_params), .mask = mod },
					      &mods));
	batch_fixture_ok(fixture, paged_mod_set_bind(mods, 1, &window_array, blocks));
	return mods;
}

static struct paged_block_mask *
window_blocks(struct batch_fixture *fixture, const struct paged_mod *mod, const struct paged_batch_row *rows)
{
	struct paged_block_mask *blocks;

	batch_fixture_ok(fixture, paged_block_mask_create(fixture->pool,
							  &(struct paged_block_mask_params){
								  .struct_size = sizeof(struct paged_block_mask_params),
								  .rows = rows,
								  .n_rows = fixture->params.n_rows,
								  .q_block = 5,
								  .kv_block = 8 },
							  mod, 1, &window_array, &blocks));
	return blocks;
}

/* Attention over a batch of both kinds of rows, with the mod alone, and with a block mask that is made from it. */
static void
window_run(const char *text, struct prefill_runs wanted, const char *decode, const char *prefill)
{
	struct batch_fixture_params params = prefill_mixed;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_mod *mod;
	struct batch_fixture fixture;

	params.mask = PAGED_MASK_CAUSAL;
	params.window = WINDOW;
	params.rows[2].kv_len = 70;
	batch_fixture_open(&fixture, &params);
	for (uint32_t r = 0; r < params.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, params.rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	mod = window_parse(&fixture, text);
	for (unsigned int with_blocks = 0; with_blocks < 2; with_blocks++) {
		struct paged_block_mask *blocks = with_blocks ? window_blocks(&fixture, mod, rows) : NULL;
		struct paged_mod_set *mods = window_set_make(&fixture, mod, blocks);

		batch_fixture_ok(&fixture, paged_mod_set_prepare(mods, PAGED_BF16, -1));
		batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, params.n_rows, rows));
		batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, mods));
		batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
		batch_fixture_check(&fixture);
		prefill_expect_runs(&wanted, decode, prefill);
	}
	batch_fixture_close(&fixture);
}

IT_TEST(built_in_mods_apply_to_both_kernels)
{
	prefill_begin();
	setenv("PAGED_NVRTC", "/nonexistent/libnvrtc.so", 1);
	setenv("PAGED_WGMMA", "1", 1); /* for calls without mods */
	window_run("sliding_window", (struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64_sliding_window",
		   "attention_prefill_bf16_64_sliding_window");
	prefill_end();
}

IT_TEST_LIMIT(compiled_mods_apply_to_both_kernels, 120)
{
	struct paged_error error;
	struct cuda_nvrtc nvrtc;

	prefill_begin();
	if (!fake_cuda_wanted() && cuda_nvrtc_open(&nvrtc, &error) != PAGED_OK)
		it_skip("%s", error.text);
	window_run("kv_idx <= q_idx && kv_idx > q_idx - window", (struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64",
		   "attention_prefill_bf16_64");
	prefill_end();
}

/* The second of two compilations or loads of a mod set fails: no kernel runs, and the next attempt succeeds. */
static void
window_fail(const char *mod_text, const char *function, int result, const char *text)
{
	struct batch_fixture_params params = prefill_mixed;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_mod_set *mods;
	struct batch_fixture fixture;

	params.mask = PAGED_MASK_CAUSAL;
	params.window = WINDOW;
	params.n_rows = 2;
	batch_fixture_open(&fixture, &params);
	for (uint32_t r = 0; r < params.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, params.rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	prefill_fail_after(function, 1, result);
	mods = window_set_make(&fixture, window_parse(&fixture, mod_text), NULL);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, params.n_rows, rows));
	if (text != NULL) {
		it_require(batch_fixture_attend(&fixture, mods) != PAGED_OK &&
				   strstr(paged_client_error(fixture.client), text) != NULL,
			   "%s", paged_client_error(fixture.client));
		batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
		prefill_expect_runs(&(struct prefill_runs){ 0, 0 }, "attention_mma", "attention_prefill");
	}
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, mods));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	prefill_expect_runs(&(struct prefill_runs){ 1, 1 }, "attention_mma_bf16_64", "attention_prefill_bf16_64");
	batch_fixture_close(&fixture);
	unsetenv("PAGED_FAKE_CUDA_FAIL");
}

IT_TEST_LIMIT(mods_survive_failures_of_the_second_kernel, 240)
{
	cuda_skip_with_gpu();
	prefill_begin();
	window_fail("q_idx - kv_idx < window + 0", "nvrtcCompileProgram", 6, "attention_prefill_bf16_64");
	window_fail("q_idx - kv_idx < window + 0", "cuModuleLoadData", 200,
		    "cuModuleLoadData of attention_prefill_bf16_64 with mods: ");
	/* A built-in image that the driver refuses is compiled. */
	window_fail("sliding_window", "cuModuleLoadData", 222, NULL);
	prefill_end();
}

IT_MAIN
