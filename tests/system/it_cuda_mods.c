/* SPDX-License-Identifier: Apache-2.0 */
/* Mods in attention on a GPU, compiled by NVRTC or its fake: compared with the host back end's results. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cuda/aot.h"
#include "tests/system/cuda_daemon.h"
#include "tests/system/mods_fixture.h"
#include "tests/fake-cuda/load.h"

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

IT_TEST_LIMIT(mods_of_prefill, 120)
{
	mods_of_prefill_run();
}

IT_TEST_LIMIT(mods_of_prefill_by_wgmma, 120)
{
	setenv("PAGED_WGMMA", "1", 1);
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

/* With each result by which a driver refuses an image. */
IT_TEST_LIMIT(rejected_cached_code_is_recompiled, 120)
{
	static const int refusals[] = { 200, 209, 218, 221, 222, 223, 300 };
	char cache_dir[] = "/tmp/paged-mods.XXXXXX", path[64], fail[48];
	struct batch_fixture_params params = mods_base;
	unsigned int n_loads;

	mods_begin();
	cuda_skip_with_gpu();
	it_require(mkdtemp(cache_dir) != NULL);
	setenv("PAGED_CACHE_DIR", cache_dir, 1);
	snprintf(path, sizeof(path), "%s/calls", cache_dir);
	setenv("PAGED_FAKE_CUDA_LOG", path, 1);
	mods_log_begin(&params);
	mods_prepare_in_new_client(&params);
	expect_log("6 attention_simt_128 compiled");
	/* Each client loads the pool's own modules first. */
	n_loads = fake_cuda_n_calls("cuModuleLoadData");
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		snprintf(fail, sizeof(fail), "cuModuleLoadData@%u=%d", fake_cuda_n_calls("cuModuleLoadData") + n_loads,
			 refusals[i]);
		setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
		mods_prepare_in_new_client(&params);
		it_require(strstr(mods_log, "\n6 attention_simt_128 compiled") != NULL, "%d: %s", refusals[i],
			   mods_log);
		expect_log("7 attention_simt_128 for 9.0, ");
	}
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	mods_prepare_in_new_client(&params);
	expect_log("7 attention_simt_128 for 9.0, ");
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

IT_TEST(an_old_compiler_is_refused)
{
	char path[4200];

	mods_begin();
	cuda_skip_with_gpu();
	snprintf(path, sizeof(path), "%s/libnvrtc.so.12", fake_cuda_path());
	setenv("PAGED_FAKE_NVRTC_VERSION", "11060", 1);
	expect_no_compiler(path, "libnvrtc.so.12 is NVRTC 11.6, and 11.7 or later is needed: install one, or set "
				 "PAGED_NVRTC to its file");
	setenv("PAGED_FAKE_NVRTC_VERSION", "11070", 1);
	expect_same_on_both(&(struct mods_case){ .score = "score * 7", .n_slopes = 4 }, PAGED_OK);
}

IT_TEST(paged_nvrtc_selects_the_compiler)
{
	char path[4200];

	mods_begin();
	if (!fake_cuda_wanted())
		it_skip("the fake compiler goes with the fake driver");
	snprintf(path, sizeof(path), "%s/libnvrtc.so.12", fake_cuda_path());
	setenv("PAGED_NVRTC", path, 1);
	expect_same_on_both(&(struct mods_case){ .score = "score + slope[h]", .n_slopes = 4 }, PAGED_OK);
}

/* Two versions of NVRTC are installed, of the fake driver's major version of CUDA and of the next one. */
static void
newer_nvrtc_begin(char path[4200])
{
	mods_begin();
	cuda_skip_with_gpu();
	snprintf(path, 4200, "%s/../newer/.libs/libnvrtc.so.13", fake_cuda_path());
	it_require(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL, "%s", dlerror());
}

static void
expect_nvrtc(const char *driver, const char *nvrtc)
{
	struct batch_fixture_params params = mods_base;
	char compiled[80];

	mods_log_begin(&params);
	setenv("PAGED_FAKE_CUDA_VERSION", driver, 1);
	mods_prepare_in_new_client(&params);
	snprintf(compiled, sizeof(compiled), "6 attention_simt_128 compiled for 9.0 by nvrtc %s ", nvrtc);
	expect_log(compiled);
}

IT_TEST_LIMIT(nvrtc_of_the_drivers_version_comes_first, 120)
{
	char path[4200];

	newer_nvrtc_begin(path);
	expect_nvrtc("12020", "12.8");
	expect_nvrtc("13000", "13.0");
	/* Without one of that version: the next older one, else the next newer one. */
	expect_nvrtc("14000", "13.0");
	if (dlopen("libnvrtc.so.11.2", RTLD_NOW | RTLD_LOCAL) == NULL)
		expect_nvrtc("11080", "12.8");
	setenv("PAGED_NVRTC", path, 1);
	expect_nvrtc("12080", "13.0");
}

/* The driver refuses what was compiled here: the error names both versions, and the next attempt succeeds. */
static void
expect_refused_code(const char *nvrtc, int result, enum paged_status status, const char *part)
{
	struct mods_case c = { .score = "score * 9", .n_slopes = 4 };
	struct batch_fixture_params params = mods_base;
	struct batch_fixture fixture;
	struct paged_mod_set *mods;
	char fail[64];

	setenv("PAGED_NVRTC", nvrtc, 1);
	params.backend = "cuda";
	batch_fixture_open(&fixture, &params);
	mods = mods_make(&fixture, &c);
	snprintf(fail, sizeof(fail), "cuModuleLoadData@%u=%d", fake_cuda_n_calls("cuModuleLoadData") + 1, result);
	setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
	batch_fixture_expect(&fixture, paged_mod_set_prepare(mods, PAGED_F32, -1), status);
	it_require(strstr(paged_client_error(fixture.client), part) != NULL, "%s", paged_client_error(fixture.client));
	it_note("%s", paged_client_error(fixture.client));
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	batch_fixture_ok(&fixture, paged_mod_set_prepare(mods, PAGED_F32, -1));
	batch_fixture_close(&fixture);
}

IT_TEST(errors_of_refused_code_name_the_versions)
{
	char path[4200], log[64];

	newer_nvrtc_begin(path);
	snprintf(log, sizeof(log), "/tmp/paged-calls-%d", (int)getpid());
	setenv("PAGED_FAKE_CUDA_LOG", log, 1);
	expect_refused_code(path, 200, PAGED_ERR_UNSUPPORTED,
			    "CUDA_ERROR_INVALID_IMAGE (device kernel image is invalid); NVRTC 13.0 compiled it, and "
			    "this driver supports CUDA 12.8: set PAGED_NVRTC to NVRTC 12.8 or older");
	expect_refused_code("libnvrtc.so.12", 221, PAGED_ERR_BACKEND,
			    "; NVRTC 12.8 compiled it, and this driver supports CUDA 12.8");
	unlink(log);
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

IT_TEST(aot_mods_of_wgmma_need_no_compiler)
{
	setenv("PAGED_WGMMA", "1", 1);
	aot_mods_run();
}

IT_MAIN
