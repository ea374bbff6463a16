/* SPDX-License-Identifier: Apache-2.0 */
/* Mods in attention on a GPU, compiled by NVRTC or its fake: compared with the host back end's results. */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cuda/nvrtc.h"
#include "kernels/cuda/aot.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda_daemon.h"
#include "tests/fake-cuda/load.h"

#define PREFILL_LENGTH 50u
#define MAX_OUT ((PREFILL_LENGTH + 1) * 4 * 64)
#define N_ARRAYS 6

static const struct batch_fixture_params mods_base = {
	.pool = PAGED_F32,
	.q = PAGED_F32,
	.q_heads = 4,
	.kv_heads = 2,
	.k_dim = 16,
	.v_dim = 16,
	.page_size = 4,
	.n_rows = 2,
	.rows = { { .kv_len = 21, .q_len = 2 }, { .kv_len = 9, .q_len = 1 } },
};

/* With a real driver, NVRTC may be missing. */
static void
nvrtc_require(void)
{
	struct paged_error error;
	struct cuda_nvrtc nvrtc;

	if (cuda_nvrtc_open(&nvrtc, 0, &error) != PAGED_OK)
		it_skip("%s", error.text);
	cuda_nvrtc_close(&nvrtc);
}

static void
mods_begin(void)
{
	cuda_daemon_environment();
	setenv("PAGED_CACHE_DIR", "", 1);
	if (!fake_cuda_wanted())
		nvrtc_require();
	it_require(fake_cuda_load() && fake_cuda_load_nvrtc(), "%s", dlerror());
}

#define STRIDED_Q_LEN 3 /* query rows of a row, if they are equal */

struct mods_case {
	const char *mask, *score;
	int32_t window;
	uint32_t n_slopes; /* that are there; 4 are wanted */
	float cap;
	bool is_bf16;    /* bf16 and 64 dims */
	bool is_i8;      /* i8 in the pages besides */
	bool has_b;      /* rows have numbers of their own */
	bool is_strided; /* rows are equal, and tensors [row][head][token][dim] */
	bool is_prefill; /* all tokens of row 0 are query rows, more than the decode kernel computes */
};

static const float slopes[4] = { 0.5f, -0.25f, 0.125f, 1 };
static const int32_t heads = 4, prefixes[2] = { 20, 3 };
static const int32_t documents[PREFILL_LENGTH] = { 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2,
						   2, 2, 2, 2, 2, 2, 0, 2, 2, 1, 1, 3 };

static size_t
mods_arrays(struct batch_fixture *fixture, const struct mods_case *c, struct paged_array arrays[N_ARRAYS])
{
	const bool has_fixture = fixture != NULL;

	arrays[0] = (struct paged_array){ .name = "window", .dtype = PAGED_I32, .data = &c->window };
	arrays[1] =
		(struct paged_array){ .name = "slope",
				      .dtype = PAGED_F32,
				      .n_dims = 1,
				      .extents = { c->n_slopes },
				      .data = has_fixture ? batch_fixture_put(fixture, slopes, sizeof(slopes)) : NULL };
	arrays[2] = (struct paged_array){ .name = "doc",
					  .dtype = PAGED_I32,
					  .n_dims = 1,
					  .extents = { PREFILL_LENGTH },
					  .data = has_fixture ? batch_fixture_put(fixture, documents, sizeof(documents))
							      : NULL };
	arrays[3] = (struct paged_array){ .name = "cap", .dtype = PAGED_F32, .data = &c->cap };
	arrays[4] = (struct paged_array){ .name = "heads", .dtype = PAGED_I32, .data = &heads };
	arrays[5] = (struct paged_array){ .name = "prefix",
					  .dtype = PAGED_I32,
					  .n_dims = 1,
					  .extents = { 2 },
					  .data = has_fixture ? batch_fixture_put(fixture, prefixes, sizeof(prefixes))
							      : NULL };
	return N_ARRAYS;
}

static struct paged_mod_set *
mods_make(struct batch_fixture *fixture, const struct mods_case *c)
{
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct paged_array arrays[N_ARRAYS];
	struct paged_mod *mod;
	struct paged_mod_set *mods;
	size_t n = mods_arrays(fixture, c, arrays);

	if (c->mask != NULL) {
		batch_fixture_ok(fixture, paged_mod_parse(fixture->pool, PAGED_MOD_MASK, c->mask, n, arrays, &mod));
		params.mask = mod;
	}
	if (c->score != NULL) {
		batch_fixture_ok(fixture, paged_mod_parse(fixture->pool, PAGED_MOD_SCORE, c->score, n, arrays, &mod));
		params.score = mod;
	}
	batch_fixture_ok(fixture, paged_mod_set_create(fixture->batch, &params, &mods));
	batch_fixture_ok(fixture, paged_mod_set_bind(mods, n, arrays, NULL));
	return mods;
}

/* Copy the results as f32; returns their number. */
static unsigned int
results_get(struct batch_fixture *fixture, float out[MAX_OUT])
{
	uint16_t halves[MAX_OUT];
	unsigned int n = fixture->total_q * fixture->params.q_heads * fixture->params.v_dim;

	it_require(n <= MAX_OUT);
	if (fixture->params.q == PAGED_F32) {
		batch_fixture_get(fixture, out, fixture->out.data, n * sizeof(float));
		return n;
	}
	batch_fixture_get(fixture, halves, fixture->out.data, n * sizeof(halves[0]));
	for (unsigned int i = 0; i < n; i++) {
		uint32_t bits = (uint32_t)halves[i] << 16;

		memcpy(&out[i], &bits, sizeof(bits));
	}
	return n;
}

static struct batch_fixture_params
params_of(const struct mods_case *c)
{
	struct batch_fixture_params params = mods_base;

	if (c->is_bf16) {
		params.pool = params.q = PAGED_BF16;
		params.k_dim = params.v_dim = 64;
	}
	if (c->is_i8)
		params.pool = PAGED_I8;
	if (c->is_prefill)
		params.rows[0] = (struct batch_fixture_row){ .kv_len = PREFILL_LENGTH, .q_len = PREFILL_LENGTH };
	for (uint32_t r = 0; c->is_strided && r < params.n_rows; r++)
		params.rows[r].q_len = STRIDED_Q_LEN;
	return params;
}

static void
tensor_stride(struct paged_tensor *tensor)
{
	tensor->token_stride = tensor->dim;
	tensor->head_stride = STRIDED_Q_LEN * (int64_t)tensor->dim;
	tensor->batch_stride = tensor->n_heads * tensor->head_stride;
}

static enum paged_status
attend_strided(struct batch_fixture *fixture, struct paged_mod_set *mods)
{
	const struct paged_attention_params params = { .struct_size = sizeof(params), .mod_set = mods };
	struct paged_tensor q = batch_fixture_queries(fixture);

	tensor_stride(&q);
	tensor_stride(&fixture->out);
	return paged_attention(fixture->batch, BATCH_FIXTURE_LAYER, &q, &fixture->out, &params);
}

/* Write, plan, attend with the mods; returns the status of validate. */
static enum paged_status
mods_run(const char *backend, const struct mods_case *c, float out[MAX_OUT], unsigned int *n_p)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture_params params = params_of(c);
	struct paged_mod_set *mods;
	enum paged_status status;
	struct batch_fixture fixture;

	params.backend = backend;
	batch_fixture_open(&fixture, &params);
	for (uint32_t r = 0; r < params.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, params.rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	for (uint32_t r = 0; c->has_b && r < params.n_rows; r++) {
		rows[r].flags |= PAGED_ROW_B;
		rows[r].b = 900 - 250 * r;
	}
	mods = mods_make(&fixture, c);
	batch_fixture_ok(&fixture, paged_mod_set_prepare(mods, params.q, -1));
	batch_fixture_ok(&fixture, paged_mod_set_prepare(mods, params.q, 0));
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, params.n_rows, rows));
	batch_fixture_ok(&fixture,
			 c->is_strided ? attend_strided(&fixture, mods) : batch_fixture_attend(&fixture, mods));
	status = paged_batch_validate(fixture.batch);
	if (status != PAGED_OK)
		it_note("%s: %s", backend, paged_client_error(fixture.client));
	*n_p = results_get(&fixture, out);
	batch_fixture_close(&fixture);
	return status;
}

static void
expect_same_on_both(const struct mods_case *c, enum paged_status wanted)
{
	float host[MAX_OUT], cuda[MAX_OUT], tolerance = c->is_bf16 ? 0.02f : 1e-5f;
	unsigned int n, n_cuda;

	it_require(mods_run("host", c, host, &n) == wanted);
	it_require(mods_run("cuda", c, cuda, &n_cuda) == wanted);
	it_require(n == n_cuda);
	for (unsigned int i = 0; i < n; i++)
		it_require(fabsf(host[i] - cuda[i]) <= tolerance, "element %u: %.9g on the host, %.9g on the GPU", i,
			   (double)host[i], (double)cuda[i]);
}

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
	struct paged_array arrays[N_ARRAYS];
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
	batch_fixture_ok(&fixture, paged_mod_set_bind(mods, N_ARRAYS, arrays, NULL));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, mods));
	c.window = 1;
	batch_fixture_ok(&fixture, paged_mod_set_bind(mods, N_ARRAYS, arrays, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

/* Parameters are in host memory and are narrowed; i64 arrays in GPU memory would need a converted copy. */
IT_TEST(i64_arrays_on_device_are_refused)
{
	const struct mods_case c = { .mask = "q_idx - kv_idx < window && document", .window = 7, .n_slopes = 4 };
	struct paged_array arrays[N_ARRAYS];
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
	batch_fixture_ok(&fixture, paged_mod_set_bind(mods, N_ARRAYS, arrays, NULL));
	arrays[2].dtype = PAGED_I64;
	batch_fixture_expect(&fixture, paged_mod_set_bind(mods, N_ARRAYS, arrays, NULL), PAGED_ERR_UNSUPPORTED);
	it_require(strstr(paged_client_error(fixture.client), "array 'doc' is i64 in a GPU's memory") != NULL);
	batch_fixture_close(&fixture);
}

/* The compiling thread never calls the log function itself. */
static char mods_log[2048];
static pthread_t calling_thread;

static void
log_append(void *argument, enum paged_log_level level, const char *text)
{
	size_t length = strlen(mods_log);

	(void)argument;
	it_require(pthread_equal(calling_thread, pthread_self()));
	snprintf(mods_log + length, sizeof(mods_log) - length, "%d %s\n", (int)level, text);
}

/* The calling thread opens clients on cuda with these params, and their messages go to mods_log. */
static void
mods_log_begin(struct batch_fixture_params *params)
{
	calling_thread = pthread_self();
	params->backend = "cuda";
	params->log = log_append;
}

/* The log since the last call begins with this text. */
static void
expect_log(const char *what)
{
	it_require(strncmp(mods_log, what, strlen(what)) == 0, "'%s', not %s", mods_log, what);
	it_note("%.*s", (int)strcspn(mods_log, "\n"), mods_log);
	mods_log[0] = '\0';
}

static void
mods_prepare_in_new_client(const struct batch_fixture_params *params)
{
	struct mods_case c = { .score = "score * 5", .n_slopes = 4 };
	struct paged_mod_set *mods;
	struct batch_fixture fixture;

	mods_log[0] = '\0';
	batch_fixture_open(&fixture, params);
	mods = mods_make(&fixture, &c);
	batch_fixture_ok(&fixture, paged_mod_set_prepare(mods, PAGED_F32, -1));
	batch_fixture_close(&fixture);
}

static void
cache_dir_remove(const char *cache_dir)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", cache_dir);
	it_require(system(command) == 0);
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
	cache_dir_remove(cache_dir);
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
	cache_dir_remove(cache_dir);
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

/* Mods that need a compiler are refused each time with the reason; all other calls work. */
static void
expect_no_compiler(const char *library, const char *part)
{
	struct mods_case c = { .score = "score * 7", .n_slopes = 4 };
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture_params params = mods_base;
	struct paged_mod_set *mods;
	struct batch_fixture fixture;

	setenv("PAGED_NVRTC", library, 1);
	params.backend = "cuda";
	batch_fixture_open(&fixture, &params);
	for (uint32_t r = 0; r < params.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, params.rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	mods = mods_make(&fixture, &c);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, params.n_rows, rows));
	for (unsigned int i = 0; i < 2; i++) {
		batch_fixture_expect(&fixture, paged_mod_set_prepare(mods, PAGED_F32, -1), PAGED_ERR_UNSUPPORTED);
		it_require(strstr(paged_client_error(fixture.client), part) != NULL, "%s",
			   paged_client_error(fixture.client));
		batch_fixture_expect(&fixture, batch_fixture_attend(&fixture, mods), PAGED_ERR_UNSUPPORTED);
	}
	it_note("%s", paged_client_error(fixture.client));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
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
