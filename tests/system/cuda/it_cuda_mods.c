/* SPDX-License-Identifier: Apache-2.0 */
/* Mods in attention on a GPU, compiled by NVRTC or its fake: compared with the host back end's results. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/cuda/host/aot.h"
#include "tests/system/cuda/mods_fixture.h"

IT_TEST(score_mod_reads_an_array)
{
	mods_begin();
	expect_same_on_both(&(struct mods_case){ .score = "score + slope[h] * (kv_idx - q_idx)", .n_slopes = 4 },
			    PAGED_OK);
}

IT_TEST(mask_mod_reads_a_parameter_and_an_array)
{
	mods_begin();
	expect_same_on_both(&(struct mods_case){ .mask = "q_idx - kv_idx < window && doc[q_idx] == doc[kv_idx]",
						 .score = "8 * tanh(score / 8)",
						 .window = 7,
						 .n_slopes = 4 },
			    PAGED_OK);
}

static void
mods_of_prefill_run(void)
{
	mods_begin();
	expect_same_on_both(&(struct mods_case){ .mask = "q_idx - kv_idx < window && doc[q_idx] != doc[kv_idx]",
						 .score = "score + slope[h] * (kv_idx - q_idx)",
						 .window = 21,
						 .n_slopes = 4,
						 .is_bf16 = true,
						 .is_prefill = true },
			    PAGED_OK);
	expect_same_on_both(
		&(struct mods_case){ .score = "score + slope[h]", .n_slopes = 3, .is_bf16 = true, .is_prefill = true },
		PAGED_ERR_RANGE);
}

IT_TEST(mods_of_prefill)
{
	mods_of_prefill_run();
}

IT_OPT_IN_TEST(PAGED_WGMMA, mods_of_prefill_by_wgmma)
{
	mods_of_prefill_run();
}

IT_TEST(mods_on_an_i8_pool)
{
	mods_begin();
	expect_same_on_both(&(struct mods_case){ .mask = "q_idx - kv_idx < window",
						 .score = "score + slope[h] * (kv_idx - q_idx)",
						 .window = 7,
						 .n_slopes = 4,
						 .is_bf16 = true,
						 .is_i8 = true },
			    PAGED_OK);
}

IT_TEST(rows_with_explicit_b)
{
	mods_begin();
	expect_same_on_both(&(struct mods_case){ .mask = "(kv_idx + b) % 3 != 1",
						 .score = "score + (b - 500) * 0.001",
						 .n_slopes = 4,
						 .has_b = true },
			    PAGED_OK);
}

IT_TEST(batch_strided_tensors)
{
	mods_begin();
	expect_same_on_both(
		&(struct mods_case){
			.mask = "q_idx - kv_idx < window", .window = 7, .n_slopes = 4, .is_strided = true },
		PAGED_OK);
}

IT_TEST(index_out_of_bounds_is_reported)
{
	mods_begin();
	expect_same_on_both(&(struct mods_case){ .score = "score + slope[h]", .n_slopes = 3 }, PAGED_ERR_RANGE);
}

/* A launch uses the values bound before it, also if they were bound after the plan; a later bind does not affect it. */
IT_TEST(launch_uses_values_bound_before_it)
{
	struct mods_case c = { .mask = "q_idx - kv_idx < window", .window = 3, .n_slopes = 4 };
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture_params params = mods_base;
	struct paged_array arrays[MODS_N_ARRAYS];
	struct paged_mod_set *mods;
	struct batch_fixture fixture;

	mods_begin();
	params.backend = "cuda";
	params.n_rows = 1;
	params.rows[0] = (struct batch_fixture_row){ .kv_len = 9, .q_len = 1 };
	batch_fixture_open(&fixture, &params);
	batch_fixture_write(&fixture, 0, 0, 9);
	batch_fixture_rows(&fixture, rows);
	mods = mods_make(&fixture, &c);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 1, rows));
	c.window = 100;
	mods_arrays(&fixture, &c, arrays);
	batch_fixture_ok(&fixture, paged_mod_set_bind(mods, MODS_N_ARRAYS, arrays, NULL));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, mods));
	c.window = 1;
	batch_fixture_ok(&fixture, paged_mod_set_bind(mods, MODS_N_ARRAYS, arrays, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

/* Parameters are in host memory and are narrowed; i64 arrays in GPU memory would need a converted copy. */
IT_TEST(i64_arrays_on_device_are_refused)
{
	const struct mods_case c = { .mask = "q_idx - kv_idx < window && document", .window = 7, .n_slopes = 4 };
	struct paged_array arrays[MODS_N_ARRAYS];
	struct batch_fixture_params params = mods_base;
	struct paged_mod_set *mods;
	struct batch_fixture fixture;
	int64_t window = 5;

	mods_begin();
	params.backend = "cuda";
	batch_fixture_open(&fixture, &params);
	mods = mods_make(&fixture, &c);
	mods_arrays(&fixture, &c, arrays);
	arrays[0].dtype = PAGED_I64;
	arrays[0].data = &window;
	batch_fixture_ok(&fixture, paged_mod_set_bind(mods, MODS_N_ARRAYS, arrays, NULL));
	arrays[2].dtype = PAGED_I64;
	batch_fixture_expect(&fixture, paged_mod_set_bind(mods, MODS_N_ARRAYS, arrays, NULL), PAGED_ERR_UNSUPPORTED);
	it_require(strstr(paged_client_error(fixture.client), "array 'doc' is i64 in a GPU's memory") != NULL);
	batch_fixture_close(&fixture);
}

IT_TEST(compiled_code_is_cached_on_disk)
{
	char cache_dir[] = "/tmp/paged-mods.XXXXXX";
	struct batch_fixture_params params = mods_base;

	mods_begin();
	it_require(mkdtemp(cache_dir) != NULL);
	setenv("PAGED_CACHE_DIR", cache_dir, 1);
	mods_log_begin(&params);
	mods_prepare_in_new_client(&params);
	expect_log("6 attention_simt_128 compiled for 9.0 by nvrtc 1");
	mods_prepare_in_new_client(&params);
	expect_log("7 attention_simt_128 for 9.0, ");
	it_require(chmod(cache_dir, 0755) == 0);
	mods_prepare_in_new_client(&params);
	expect_log("4 code cache: /tmp/paged-mods.");
	mods_cache_dir_remove(cache_dir);
}

IT_TEST(prepare_can_be_polled)
{
	struct mods_case c = { .score = "score * 2", .n_slopes = 4 };
	struct batch_fixture_params params = mods_base;
	struct paged_mod_set *mods;
	struct batch_fixture fixture;
	enum paged_status status;

	mods_begin();
	params.backend = "cuda";
	batch_fixture_open(&fixture, &params);
	mods = mods_make(&fixture, &c);
	status = paged_mod_set_prepare(mods, PAGED_F32, 0);
	it_require(status == PAGED_OK || status == PAGED_ERR_AGAIN, "%d", status);
	batch_fixture_expect(&fixture, paged_mod_set_prepare(mods, PAGED_I32, 0), PAGED_ERR_INVALID);
	batch_fixture_ok(&fixture, paged_mod_set_prepare(mods, PAGED_F32, 20000));
	/* The client is closed during a compilation. */
	mods_make(&fixture, &(struct mods_case){ .score = "score * 3", .n_slopes = 4 });
	batch_fixture_close(&fixture);
}

IT_TEST(mods_without_compiler_are_refused)
{
	mods_begin();
	expect_no_compiler("/nonexistent/libnvrtc.so",
			   "these mods must be compiled: no CUDA compiler: PAGED_NVRTC: /nonexistent/libnvrtc.so: ");
	expect_no_compiler("libc.so.6", "so it is not NVRTC 11.7 or later");
}

/* AOT mods need no compiler, for any values of their parameters. */
static void
aot_mods_run(void)
{
	const struct cuda_aot *aot;

	mods_begin();
	setenv("PAGED_NVRTC", "/nonexistent/libnvrtc.so", 1);
	for (size_t i = 0; (aot = cuda_aot_at(i)) != NULL; i++) {
		struct mods_case c = { .mask = aot->mask, .score = aot->score, .n_slopes = 4, .is_bf16 = true };

		it_note("%s", aot->name);
		for (c.window = 3, c.cap = 1; c.window <= 15; c.window += 12, c.cap += 29)
			expect_same_on_both(&c, PAGED_OK);
		c.is_prefill = true;
		expect_same_on_both(&c, PAGED_OK);
	}
	expect_no_compiler("/nonexistent/libnvrtc.so", "no CUDA compiler: ");
}

IT_TEST(aot_mods_need_no_compiler)
{
	aot_mods_run();
}

IT_OPT_IN_TEST(PAGED_WGMMA, aot_mods_of_wgmma_need_no_compiler)
{
	aot_mods_run();
}

IT_MAIN
