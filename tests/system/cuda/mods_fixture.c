/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/cuda/mods_fixture.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/nvrtc.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/fake-cuda/load.h"

#define PREFILL_LENGTH 50u
#define MAX_OUT ((PREFILL_LENGTH + 1) * 4 * 64)
#define STRIDED_Q_LEN 3 /* query rows of a row, if they are equal */

const struct batch_fixture_params mods_base = {
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

void
mods_begin(void)
{
	cuda_daemon_environment();
	setenv("PAGED_CACHE_DIR", "", 1);
	if (!fake_cuda_wanted())
		nvrtc_require();
	it_require(fake_cuda_load() && fake_cuda_load_nvrtc(), "%s", dlerror());
}

static const float slopes[4] = { 0.5f, -0.25f, 0.125f, 1 };
static const int32_t heads = 4, prefixes[2] = { 20, 3 };
static const int32_t documents[PREFILL_LENGTH] = { 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2,
						   2, 2, 2, 2, 2, 2, 0, 2, 2, 1, 1, 3 };

size_t
mods_arrays(struct batch_fixture *fixture, const struct mods_case *c, struct paged_array arrays[MODS_N_ARRAYS])
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
	return MODS_N_ARRAYS;
}

struct paged_mod_set *
mods_make(struct batch_fixture *fixture, const struct mods_case *c)
{
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct paged_array arrays[MODS_N_ARRAYS];
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

void
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

char mods_log[2048];
static pthread_t calling_thread;

/* The compiling thread never calls the log function itself. */
static void
log_append(void *argument, enum paged_log_level level, const char *text)
{
	size_t length = strlen(mods_log);

	(void)argument;
	it_require(pthread_equal(calling_thread, pthread_self()));
	snprintf(mods_log + length, sizeof(mods_log) - length, "%d %s\n", (int)level, text);
}

void
mods_log_begin(struct batch_fixture_params *params)
{
	calling_thread = pthread_self();
	params->backend = "cuda";
	params->log = log_append;
}

void
expect_log(const char *what)
{
	it_require(strncmp(mods_log, what, strlen(what)) == 0, "'%s', not %s", mods_log, what);
	it_note("%.*s", (int)strcspn(mods_log, "\n"), mods_log);
	mods_log[0] = '\0';
}

void
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

void
mods_cache_dir_remove(const char *cache_dir)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", cache_dir);
	it_require(system(command) == 0);
}

void
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
