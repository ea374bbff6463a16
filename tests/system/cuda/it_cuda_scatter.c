/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a plan's tables and lengths reach a GPU: by one launch, whatever changed, and without a loss when a driver call
 * fails.  Over the fake CUDA driver.  The tests compare the batch's arrays in device memory with a model.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cuda/compute_cuda_batch.h"
#include "tests/fake-cuda/load.h"
#include "tests/support/random.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"

#define ROWS 64u
#define N_PAGES 1000u
#define STRIDE 40000u /* entries of a row: more than a stage has */
#define POISON 0xabababab

static char log_path[] = "/tmp/paged-cuda-log-XXXXXX";

struct tables {
	struct batch_fixture fixture;
	struct paged_batch *batch;
	struct paged_batch_row rows[ROWS];
	uint32_t n_rows;
	uint32_t *pages;  /* [ROWS][STRIDE]: the next plan's page tables */
	uint32_t *device; /* [ROWS][STRIDE]: what the device has */
	uint64_t n_random;
};

static uint32_t
tables_random(struct tables *tables, uint32_t n)
{
	return (uint32_t)(random_bits(test_seed(), tables->n_random++) % n);
}

static void
tables_open(struct tables *tables)
{
	static const struct batch_fixture_params params = {
		.backend = "cuda",
		.pool = PAGED_F16,
		.q = PAGED_F16,
		.q_heads = 1,
		.kv_heads = 1,
		.k_dim = 8,
		.v_dim = 8,
		.page_size = 1,
		.n_pages = N_PAGES,
		.max_length = STRIDE,
	};
	struct paged_batch_params batch = { .struct_size = sizeof(batch), .max_rows = ROWS };
	int fd = mkstemp(log_path);

	it_require(fd >= 0, "%m");
	close(fd);
	cuda_daemon_environment();
	setenv("PAGED_FAKE_CUDA_LOG", log_path, 1);
	it_require(fake_cuda_load(), "%s", dlerror());
	memset(tables, 0, sizeof(*tables));
	batch_fixture_open(&tables->fixture, &params);
	batch_fixture_ok(&tables->fixture, paged_batch_create(tables->fixture.pool, &batch, &tables->batch));
	batch_fixture_ok(&tables->fixture, paged_batch_stream(tables->batch, tables->fixture.stream));
	tables->pages = calloc(ROWS * STRIDE, sizeof(*tables->pages));
	tables->device = malloc(ROWS * STRIDE * sizeof(*tables->device));
	it_require(tables->pages != NULL && tables->device != NULL);
	memset(tables->device, 0xff, ROWS * STRIDE * sizeof(*tables->device));
	for (uint32_t r = 0; r < ROWS; r++)
		tables->rows[r].pages = tables->pages + r * STRIDE;
}

static void
tables_close(struct tables *tables)
{
	batch_fixture_ok(&tables->fixture, paged_batch_finish(tables->batch));
	paged_batch_destroy(tables->batch);
	batch_fixture_close(&tables->fixture);
	free(tables->pages);
	free(tables->device);
	unlink(log_path);
}

static enum paged_status
tables_plan(struct tables *tables)
{
	return paged_batch_plan(tables->batch, tables->n_rows, tables->rows);
}

static void
row_set_length(struct tables *tables, uint32_t r, uint32_t n)
{
	struct paged_batch_row *row = &tables->rows[r];

	for (uint32_t i = row->n_pages; i < n; i++)
		tables->pages[r * STRIDE + i] = tables_random(tables, N_PAGES);
	row->n_pages = row->kv_len = n;
	row->kv_first = row->kv_first <= n ? row->kv_first : 0;
	row->q_len = n > 0 ? row->q_len : 0;
}

/* Grow, shrink or replace a row, change some of its entries, or leave it. */
static void
row_change(struct tables *tables, uint32_t r)
{
	struct paged_batch_row *row = &tables->rows[r];
	uint32_t what = tables_random(tables, 8);

	if (what == 0)
		row_set_length(tables, r, tables_random(tables, 300));
	if (what == 1 && tables_random(tables, 40) == 0)
		row_set_length(tables, r, tables_random(tables, STRIDE));
	if (what == 2)
		row_set_length(tables, r, 0);
	if (what <= 3 && row->n_pages < 300)
		row_set_length(tables, r, row->n_pages + tables_random(tables, 30));
	for (uint32_t i = 0; what == 4 && i < 5 && row->n_pages > 0; i++)
		tables->pages[r * STRIDE + tables_random(tables, row->n_pages)] = tables_random(tables, N_PAGES);
	if (what == 5) {
		row->flags = tables_random(tables, 2) * PAGED_ROW_B;
		row->b = row->flags == PAGED_ROW_B ? tables_random(tables, 1000) : 0;
		row->kv_first = tables_random(tables, row->kv_len + 1);
		row->q_len = tables_random(tables, 1 + (row->kv_len > 0)) * (row->kv_len > row->kv_first);
	}
}

static const void *
device_get(struct tables *tables, cuda_address from, void *to, size_t size)
{
	batch_fixture_get(&tables->fixture, to, (const void *)(uintptr_t)from, size);
	return to;
}

/* A plan succeeded; rows past its rows keep what they had. */
static void
tables_note(struct tables *tables)
{
	for (uint32_t r = 0; r < tables->n_rows; r++) {
		uint32_t *entries = tables->device + r * STRIDE, n = tables->rows[r].n_pages;

		memcpy(entries, tables->pages + r * STRIDE, n * sizeof(*entries));
		memset(entries + n, 0xff, (STRIDE - n) * sizeof(*entries));
	}
}

static void
tables_check_entries(struct tables *tables)
{
	const struct cuda_batch *cuda = cuda_batch_of(tables->batch);
	uint32_t *got = malloc(ROWS * STRIDE * sizeof(*got));

	it_require(tables->batch->table_stride == STRIDE);
	device_get(tables, cuda->table, got, ROWS * STRIDE * sizeof(*got));
	for (uint32_t i = 0; i < ROWS * STRIDE; i++)
		it_require(got[i] == tables->device[i], "row %u, entry %u is %u, not %u", i / STRIDE, i % STRIDE,
			   got[i], tables->device[i]);
	free(got);
}

static void
tables_check(struct tables *tables)
{
	const struct cuda_batch *cuda = cuda_batch_of(tables->batch);
	uint32_t n = tables->n_rows, b[ROWS], kv_first[ROWS];
	int32_t q_indptr[ROWS + 1], kv_len[ROWS];
	int64_t q_base[ROWS];

	device_get(tables, cuda->b.device, b, sizeof(b));
	device_get(tables, cuda->kv_first.device, kv_first, sizeof(kv_first));
	device_get(tables, cuda->params.q_base, q_base, n * sizeof(*q_base));
	device_get(tables, cuda->params.q_indptr, q_indptr, (n + 1) * sizeof(*q_indptr));
	device_get(tables, cuda->params.kv_len, kv_len, n * sizeof(*kv_len));
	it_require(q_indptr[0] == 0);
	for (uint32_t r = 0; r < n; r++) {
		const struct paged_batch_row *row = &tables->rows[r];

		it_require(b[r] == (row->flags == PAGED_ROW_B ? row->b : r), "row %u: b is %u", r, b[r]);
		it_require(kv_first[r] == row->kv_first, "row %u: kv_first is %u", r, kv_first[r]);
		it_require(kv_len[r] == (int32_t)row->kv_len, "row %u: kv_len is %d", r, kv_len[r]);
		it_require(q_indptr[r + 1] - q_indptr[r] == (int32_t)row->q_len, "row %u: q_indptr", r);
		it_require(q_base[r] == (int64_t)row->kv_len - row->q_len, "row %u: q_base", r);
	}
	tables_note(tables);
	tables_check_entries(tables);
}

/* Plans of rows that all change make the same driver calls, however many they are. */
IT_TEST(calls_of_a_plan_do_not_depend_on_its_rows)
{
	static const char *const names[] = { "cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuEventRecord", NULL };
	unsigned int before[4], wanted[4] = { 2, 0, 1, 0 };
	struct tables tables;

	cuda_skip_with_gpu();
	tables_open(&tables);
	for (tables.n_rows = 1; tables.n_rows <= ROWS; tables.n_rows *= 4) {
		for (uint32_t step = 0; step < 8; step++) {
			for (uint32_t r = 0; r < tables.n_rows; r++) {
				row_set_length(&tables, r, 20 + step);
				tables.pages[r * STRIDE + r % 12] = tables_random(&tables, N_PAGES);
				tables.rows[r].q_len = 1;
				tables.rows[r].kv_first = step;
			}
			for (unsigned int i = 0; i < 4; i++)
				before[i] = fake_cuda_n_calls(names[i]);
			batch_fixture_ok(&tables.fixture, tables_plan(&tables));
			for (unsigned int i = 0; i < 4; i++) {
				unsigned int n = fake_cuda_n_calls(names[i]) - before[i];

				/* All calls together are as many as those of the first plan. */
				if (names[i] == NULL && wanted[i] == 0)
					wanted[i] = n;
				it_require(n == wanted[i], "%u rows, step %u: %u calls of %s, not %u", tables.n_rows,
					   step, n, names[i] == NULL ? "all functions" : names[i], wanted[i]);
			}
		}
		tables_check(&tables);
	}
	tables_close(&tables);
}

IT_TEST(random_changes_reach_the_device)
{
	struct tables tables;
	char seed[16];

	tables_open(&tables);
	for (uint32_t step = 0; step < 60; step++) {
		tables.n_rows = 1 + tables_random(&tables, ROWS);
		for (uint32_t r = 0; r < ROWS; r++)
			row_change(&tables, r);
		snprintf(seed, sizeof(seed), "%u", step);
		setenv("PAGED_FAKE_CUDA_SEED", seed, 1);
		batch_fixture_ok(&tables.fixture, tables_plan(&tables));
		/* Without a wait, more plans are queued than there are stages. */
		tables_note(&tables);
		if (step % 8 == 0)
			tables_check(&tables);
	}
	tables_check(&tables);
	tables_close(&tables);
}

/* Number of the row's entries that a plan wrote. */
static uint32_t
count_written(struct tables *tables, uint32_t r)
{
	const struct cuda_batch *cuda = cuda_batch_of(tables->batch);
	const struct cuda_driver *driver = &tables->fixture.gpu.driver;
	uint32_t *got = malloc(STRIDE * sizeof(*got)), n = 0;
	cuda_address row = cuda->table + r * STRIDE * sizeof(*got);

	it_require(driver->fill(row, POISON & 0xff, STRIDE * sizeof(*got), tables->fixture.stream) == CUDA_SUCCESS);
	batch_fixture_ok(&tables->fixture, tables_plan(tables));
	device_get(tables, row, got, STRIDE * sizeof(*got));
	for (uint32_t i = 0; i < STRIDE; i++) {
		uint32_t entry = i < tables->rows[r].n_pages ? tables->pages[r * STRIDE + i] : UINT32_MAX;

		it_require(got[i] == POISON || got[i] == entry, "entry %u is %u, not %u", i, got[i], entry);
		n += got[i] != POISON;
	}
	free(got);
	return n;
}

IT_TEST(only_changed_entries_are_written)
{
	struct tables tables;
	uint32_t *row;

	tables_open(&tables);
	tables.n_rows = 3;
	for (uint32_t r = 0; r < 3; r++)
		row_set_length(&tables, r, 100);
	row = tables.pages + STRIDE;
	batch_fixture_ok(&tables.fixture, tables_plan(&tables));
	it_require(count_written(&tables, 1) == 0);
	row[50] = (row[50] + 1) % N_PAGES;
	it_require(count_written(&tables, 1) == 1);
	/* The distance at which two changes share a record, and the next one. */
	row[50] = (row[50] + 1) % N_PAGES;
	row[50 + CUDA_SCATTER_WORDS] = (row[50 + CUDA_SCATTER_WORDS] + 1) % N_PAGES;
	it_require(count_written(&tables, 1) == CUDA_SCATTER_WORDS + 1);
	row[50] = (row[50] + 1) % N_PAGES;
	row[51 + CUDA_SCATTER_WORDS] = (row[51 + CUDA_SCATTER_WORDS] + 1) % N_PAGES;
	it_require(count_written(&tables, 1) == 2);
	row_set_length(&tables, 1, 103);
	it_require(count_written(&tables, 1) == 3);
	row_set_length(&tables, 1, 98);
	it_require(count_written(&tables, 1) == 5);
	tables_close(&tables);
}

/* A run that fills a stage is copied by the driver; the rest of it is scattered. */
IT_TEST(long_runs_are_copied)
{
	unsigned int copies, launches;
	struct tables tables;

	cuda_skip_with_gpu();
	tables_open(&tables);
	tables.n_rows = 2;
	for (uint32_t n = CUDA_STAGE_SIZE / 4 - 1; n <= CUDA_STAGE_SIZE / 4; n++) {
		row_set_length(&tables, 0, 0);
		batch_fixture_ok(&tables.fixture, tables_plan(&tables));
		row_set_length(&tables, 0, n);
		copies = fake_cuda_n_calls("cuMemcpyHtoDAsync_v2");
		batch_fixture_ok(&tables.fixture, tables_plan(&tables));
		it_require(fake_cuda_n_calls("cuMemcpyHtoDAsync_v2") - copies == n / (CUDA_STAGE_SIZE / 4));
		tables_check(&tables);
	}
	row_set_length(&tables, 0, 0);
	batch_fixture_ok(&tables.fixture, tables_plan(&tables));
	row_set_length(&tables, 0, STRIDE);
	row_set_length(&tables, 1, 10);
	copies = fake_cuda_n_calls("cuMemcpyHtoDAsync_v2");
	launches = fake_cuda_n_calls("cuLaunchKernel");
	batch_fixture_ok(&tables.fixture, tables_plan(&tables));
	it_require(fake_cuda_n_calls("cuMemcpyHtoDAsync_v2") - copies == 2);
	it_require(fake_cuda_n_calls("cuLaunchKernel") - launches <= 3);
	tables_check(&tables);
	tables_close(&tables);
}

/*
 * Each driver call of a plan fails once, or the launch and all that follows.  The plan fails, and the next one writes
 * all that the device does not have.
 */
IT_TEST(failed_calls_lose_nothing)
{
	static const char *const names[] = { "cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuEventRecord",
					     "cuEventSynchronize" };
	unsigned int n_failed = 0;
	struct tables tables;
	char fail[96];

	cuda_skip_with_gpu();
	tables_open(&tables);
	for (uint32_t step = 0; step < 96; step++) {
		const char *name = names[step % 4];

		tables.n_rows = 1 + tables_random(&tables, ROWS);
		for (uint32_t r = 0; r < tables.n_rows; r++)
			row_change(&tables, r);
		/* Steps of many changes make several launches and copies. */
		for (uint32_t r = 0; step % 3 == 0 && r < 3; r++)
			row_set_length(&tables, r, tables.rows[r].n_pages > 1000 ? 10 : STRIDE / 2);
		snprintf(fail, sizeof(fail), "%s@%u=1%s", name, fake_cuda_n_calls(name) + 1 + step / 4 % 3,
			 step % 5 == 0 ? ",cuLaunchKernel=1,cuEventRecord=1" : "");
		setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
		if (tables_plan(&tables) != PAGED_OK) {
			n_failed++;
			it_require(strstr(paged_client_error(tables.fixture.client), "CUDA_ERROR") != NULL, "%s",
				   paged_client_error(tables.fixture.client));
		}
		unsetenv("PAGED_FAKE_CUDA_FAIL");
		/* The rows change again before they are written. */
		for (uint32_t r = 0; step % 2 == 1 && r < ROWS; r++)
			row_change(&tables, r);
		tables.n_rows = ROWS;
		batch_fixture_ok(&tables.fixture, tables_plan(&tables));
		tables_check(&tables);
	}
	it_note("%u plans failed", n_failed);
	it_require(n_failed >= 24);
	tables_close(&tables);
}

IT_MAIN
