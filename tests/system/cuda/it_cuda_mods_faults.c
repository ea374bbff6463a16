/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of the driver and of its compiler, from the making of mods to
 * attention with them, fails once: the caller gets an error message, and the next
 * attempt of the same client succeeds.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/fake-cuda/load.h"

#define MAX_NAMES 64

static const struct batch_fixture_params params = {
	.backend = "cuda",
	.pool = PAGED_F32,
	.q = PAGED_F32,
	.q_heads = 2,
	.kv_heads = 1,
	.k_dim = 16,
	.v_dim = 16,
	.page_size = 4,
	.n_rows = 1,
	.rows = { { .kv_len = 9, .q_len = 1 } },
};

/** Calls of a process: before mods are created, and in total. */
struct calls {
	struct {
		char name[48];
		unsigned int before, all;
	} of[MAX_NAMES];
	unsigned int n;
};

static void
calls_read(struct calls *calls, const char *path, bool before)
{
	FILE *file = fopen(path, "re");
	char name[48];
	unsigned int i;

	it_require(file != NULL, "%s: %m", path);
	for (i = 0; i < calls->n; i++)
		calls->of[i].all = 0;
	while (fscanf(file, "%*d %47s %*d", name) == 1) {
		for (i = 0; i < calls->n && strcmp(calls->of[i].name, name) != 0; i++)
			;
		it_require(i < MAX_NAMES);
		if (i == calls->n)
			snprintf(calls->of[calls->n++].name, sizeof(name), "%s", name);
		calls->of[i].all++;
	}
	fclose(file);
	for (i = 0; before && i < calls->n; i++)
		calls->of[i].before = calls->of[i].all;
}

/* Open a fixture with a planned batch, and make its queries. */
static void
planned_fixture_open(struct batch_fixture *fixture, struct paged_tensor *q)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];

	it_require(fake_cuda_load() && fake_cuda_load_nvrtc(), "%s", dlerror());
	batch_fixture_open(fixture, &params);
	batch_fixture_write(fixture, 0, 0, params.rows[0].kv_len);
	batch_fixture_rows(fixture, rows);
	batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, 1, rows));
	*q = batch_fixture_queries(fixture);
}

static enum paged_status
attend_with_mods(struct batch_fixture *fixture, const struct paged_mod_set_params *set_params,
		 const struct paged_tensor *q)
{
	const int32_t window = 4;
	const struct paged_array array = { .name = "window", .dtype = PAGED_I32, .data = &window };
	struct paged_attention_params attention = { .struct_size = sizeof(attention) };
	struct paged_mod_set *mods = NULL;
	enum paged_status status = paged_mod_set_create(fixture->batch, set_params, &mods);

	if (status == PAGED_OK)
		status = paged_mod_set_bind(mods, 1, &array, NULL);
	if (status == PAGED_OK)
		status = paged_mod_set_prepare(mods, PAGED_F32, -1);
	attention.mod_set = mods;
	if (status == PAGED_OK)
		status = paged_attention(fixture->batch, BATCH_FIXTURE_LAYER, q, &fixture->out, &attention);
	if (status == PAGED_OK)
		status = paged_batch_validate(fixture->batch);
	it_require(status == PAGED_OK || paged_client_error(fixture->client)[0] != '\0');
	paged_mod_set_destroy(mods);
	return status;
}

static struct paged_mod_set_params
mod_set_params_make(struct batch_fixture *fixture)
{
	const struct paged_array names = { .name = "window", .dtype = PAGED_I32 };
	struct paged_mod_set_params set_params = { .struct_size = sizeof(set_params) };
	struct paged_mod *mod;

	batch_fixture_ok(fixture, paged_mod_parse(fixture->pool, PAGED_MOD_MASK, "sliding_window", 1, &names, &mod));
	set_params.mask = mod;
	return set_params;
}

static void
count_calls(int from, int to, void *argument)
{
	struct calls calls = { .n = 0 };
	struct paged_mod_set_params set_params;
	struct paged_tensor q;
	struct batch_fixture fixture;

	(void)from;
	setenv("PAGED_FAKE_CUDA_LOG", argument, 1);
	planned_fixture_open(&fixture, &q);
	set_params = mod_set_params_make(&fixture);
	calls_read(&calls, argument, true);
	batch_fixture_ok(&fixture, attend_with_mods(&fixture, &set_params, &q));
	calls_read(&calls, argument, false);
	batch_fixture_close(&fixture);
	it_send(to, &calls, sizeof(calls));
}

static void
fail_once(int from, int to, void *argument)
{
	struct paged_mod_set_params set_params;
	struct paged_tensor q;
	struct batch_fixture fixture;
	bool refused;

	(void)from;
	setenv("PAGED_FAKE_CUDA_FAIL", argument, 1);
	planned_fixture_open(&fixture, &q);
	set_params = mod_set_params_make(&fixture);
	refused = attend_with_mods(&fixture, &set_params, &q) != PAGED_OK;
	if (refused)
		it_note("%s: %s", (char *)argument, paged_client_error(fixture.client));
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	batch_fixture_ok(&fixture, attend_with_mods(&fixture, &set_params, &q));
	batch_fixture_close(&fixture);
	it_send(to, &refused, sizeof(refused));
}

/* Let each call with this prefix fail once; returns the number of refused attempts. */
static unsigned int
every_call_fails(const char *prefix, int result)
{
	unsigned int n_cases = 0, n_refused = 0;
	static struct calls calls;
	struct it_worker worker;
	char log[] = "/tmp/paged-calls.XXXXXX", fail[96];
	bool refused;

	it_require(close(mkstemp(log)) == 0);
	it_fork(&worker, count_calls, log);
	it_receive(worker.from, &calls, sizeof(calls));
	it_join(&worker);
	unlink(log);
	for (unsigned int i = 0; i < calls.n; i++) {
		if (strncmp(calls.of[i].name, prefix, strlen(prefix)) != 0)
			continue;
		for (unsigned int n = calls.of[i].before + 1; n <= calls.of[i].all; n++, n_cases++) {
			snprintf(fail, sizeof(fail), "%s@%u=%d", calls.of[i].name, n, result);
			it_fork(&worker, fail_once, fail);
			it_receive(worker.from, &refused, sizeof(refused));
			it_join(&worker);
			n_refused += refused;
		}
	}
	it_note("%u calls failed once each, %u attempts were refused", n_cases, n_refused);
	return n_refused;
}

/* The compiled code is cached on disk, so no case waits for the compiler. */
IT_TEST(mods_survive_each_failed_driver_call)
{
	char cache_dir[] = "/tmp/paged-mods.XXXXXX", command[128];

	cuda_daemon_environment();
	it_require(mkdtemp(cache_dir) != NULL);
	setenv("PAGED_CACHE_DIR", cache_dir, 1);
	it_require(every_call_fails("cu", 999) > 5);
	snprintf(command, sizeof(command), "rm -r %s", cache_dir);
	it_require(system(command) == 0);
}

IT_TEST(mods_survive_each_failed_nvrtc_call)
{
	cuda_daemon_environment();
	setenv("PAGED_CACHE_DIR", "", 1);
	it_require(every_call_fails("nvrtc", 11) > 5);
}

IT_MAIN
