/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/cuda/prefill_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake-cuda/load.h"
#include "tests/system/cuda/cuda_daemon.h"

static char log_path[] = "/tmp/paged-cuda-calls-XXXXXX", runs_path[] = "/tmp/paged-cuda-runs-XXXXXX";

const struct batch_fixture_params prefill_mixed = {
	.backend = "cuda",
	.pool = PAGED_BF16,
	.q = PAGED_BF16,
	.q_heads = 8,
	.kv_heads = 2,
	.k_dim = 64,
	.v_dim = 64,
	.page_size = 16,
	.n_rows = 4,
	.rows = { { .kv_len = 150, .q_len = 37 },
		  { .kv_len = 77, .q_len = 1 },
		  { .kv_len = 33, .q_len = 33 },
		  { .kv_len = 210, .q_len = 16 } },
};

void
prefill_begin(void)
{
	cuda_daemon_environment();
	it_require(close(mkstemp(log_path)) == 0 && close(mkstemp(runs_path)) == 0, "%m");
	setenv("PAGED_FAKE_CUDA_LOG", log_path, 1);
	setenv("PAGED_FAKE_CUDA_RUNS", runs_path, 1);
	setenv("PAGED_CACHE_DIR", "", 1);
	it_require(fake_cuda_load() && fake_cuda_load_nvrtc(), "%s", dlerror());
}

void
prefill_end(void)
{
	unlink(log_path);
	unlink(runs_path);
}

static bool
is_permitted(const char *variable)
{
	const char *value = getenv(variable);

	return value != NULL && strcmp(value, "1") == 0;
}

const char *
prefill_source(void)
{
	return is_permitted("PAGED_WGMMA") ? "attention_wgmma" : "attention_prefill";
}

const char *
prefill_mla_source(const struct batch_fixture_params *params, bool with_blocks)
{
	if (is_permitted("PAGED_CLUSTERS") && params->q_heads == 128 && !with_blocks)
		return "attention_mla_cluster";
	return is_permitted("PAGED_WGMMA") ? "attention_mla_wgmma" : "attention_mla";
}

const char *
prefill_decode_source(const struct batch_fixture_params *params)
{
	bool fits = params->k_dim == params->v_dim && (params->k_dim == 64 || params->k_dim == 128) &&
		    params->page_size % 8 == 0;

	return fits && is_permitted("PAGED_BULK") ? "attention_bulk" : "attention_mma";
}

void
prefill_expect_runs(const struct prefill_runs *wanted, const char *decode, const char *prefill)
{
	unsigned int n_decode, n_prefill, n;

	if (!fake_cuda_wanted())
		return;
	n_decode = fake_cuda_n_runs(decode);
	n_prefill = fake_cuda_n_runs(prefill);
	n = fake_cuda_n_runs("attention_");
	it_require(n_decode == wanted->decode && n_prefill == wanted->prefill && n == n_decode + n_prefill,
		   "%u times %s, %u times %s, %u kernels of attention", n_decode, decode, n_prefill, prefill, n);
	it_require(truncate(runs_path, 0) == 0, "%m");
}

void
prefill_expect_switch(const struct batch_fixture_params *params, const char *variable)
{
	struct batch_fixture fixture;
	struct paged_batch *batch;
	char wanted[80];

	batch_fixture_open(&fixture, params);
	paged_batch_destroy(fixture.batch); /* the last one: kernels are loaded again */
	setenv(variable, "yes", 1);
	it_require(paged_batch_create(fixture.pool, NULL, &batch) == PAGED_ERR_INVALID);
	snprintf(wanted, sizeof(wanted), "%s is \"yes\": 0 and 1 are possible", variable);
	it_require(strstr(paged_client_error(fixture.client), wanted) != NULL, "%s",
		   paged_client_error(fixture.client));
	setenv(variable, "0", 1);
	batch_fixture_ok(&fixture, paged_batch_create(fixture.pool, NULL, &fixture.batch));
	batch_fixture_close(&fixture);
}

void
prefill_fail_after(const char *function, unsigned int skip, int result)
{
	char fail[64];

	snprintf(fail, sizeof(fail), "%s@%u=%d", function, fake_cuda_n_calls(function) + skip + 1, result);
	setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
}
