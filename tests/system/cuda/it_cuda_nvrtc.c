/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an NVRTC, and compiled code that the driver refuses: on the fake driver, which fails at will. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/mods_fixture.h"
#include "tests/fake-cuda/load.h"

/* With each result by which a driver refuses an image. */
IT_TEST(rejected_cached_code_is_recompiled)
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

IT_TEST(nvrtc_of_the_drivers_version_comes_first)
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

IT_MAIN
