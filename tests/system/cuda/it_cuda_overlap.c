/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PAGED_PDL: launches that may start before the kernel before has ended.  On the fake CUDA driver a kernel that does
 * not wait first is an error.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake-cuda/load.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"

static const struct batch_fixture_params two_rows = {
	.backend = "cuda",
	.pool = PAGED_BF16,
	.q = PAGED_BF16,
	.q_heads = 4,
	.kv_heads = 2,
	.k_dim = 64,
	.v_dim = 64,
	.page_size = 16,
	.chunk = 40,
	.n_rows = 2,
	.rows = { { .kv_len = 300, .q_len = 1 }, { .kv_len = 70, .q_len = 30 } },
};

/* Append and attend; which launches did the library make? */
static void
run_and_count(unsigned int *n_dependent, unsigned int *n_plain)
{
	char path[] = "/tmp/paged-cuda-log-XXXXXX";
	int fd = mkstemp(path);

	it_require(fd >= 0, "%m");
	close(fd);
	cuda_daemon_environment();
	setenv("PAGED_FAKE_CUDA_LOG", path, 1);
	it_require(fake_cuda_load(), "%s", dlerror());
	batch_fixture_run(&two_rows);
	if (fake_cuda_wanted()) {
		*n_dependent = fake_cuda_n_calls("cuLaunchKernelEx");
		*n_plain = fake_cuda_n_calls("cuLaunchKernel");
	}
	unlink(path);
}

static void
expect_no_overlap(void)
{
	unsigned int n_dependent = 0, n_plain = 1;

	run_and_count(&n_dependent, &n_plain);
	it_require(n_dependent == 0 && n_plain > 0, "%u dependent launches, %u others", n_dependent, n_plain);
}

IT_OPT_IN_TEST(PAGED_PDL, launches_overlap_if_permitted)
{
	unsigned int n_dependent = 1, n_plain = 0;

	run_and_count(&n_dependent, &n_plain);
	it_require(n_dependent > 0 && n_plain == 0, "%u dependent launches, %u others", n_dependent, n_plain);
}

IT_TEST(launches_do_not_overlap_by_default)
{
	unsetenv("PAGED_PDL");
	expect_no_overlap();
}

IT_TEST(launches_do_not_overlap_if_forbidden)
{
	setenv("PAGED_PDL", "0", 1);
	expect_no_overlap();
}

/* An architecture without the wait, and a driver whose graphs do not keep such launches. */
IT_OPT_IN_TEST(PAGED_PDL, launches_do_not_overlap_on_older_devices)
{
	cuda_skip_with_gpu();
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "75=8", 1);
	expect_no_overlap();
}

IT_OPT_IN_TEST(PAGED_PDL, launches_do_not_overlap_on_older_drivers)
{
	cuda_skip_with_gpu();
	setenv("PAGED_FAKE_CUDA_VERSION", "12020", 1);
	expect_no_overlap();
}

IT_OPT_IN_TEST(PAGED_PDL, failed_dependent_launches_are_reported)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture fixture;

	cuda_skip_with_gpu();
	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
	batch_fixture_open(&fixture, &two_rows);
	for (uint32_t r = 0; r < two_rows.n_rows; r++)
		batch_fixture_write(&fixture, r, 0, two_rows.rows[r].kv_len);
	batch_fixture_rows(&fixture, rows);
	setenv("PAGED_FAKE_CUDA_FAIL", "cuLaunchKernelEx=701", 1);
	batch_fixture_expect(&fixture, paged_batch_plan(fixture.batch, two_rows.n_rows, rows), PAGED_ERR_BACKEND);
	it_require(strstr(paged_client_error(fixture.client), "launch of scatter_words") != NULL, "%s",
		   paged_client_error(fixture.client));
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, two_rows.n_rows, rows));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

IT_TEST(invalid_setting_is_refused)
{
	struct paged_client *client;
	struct paged_batch *batch;
	struct paged_pool *pool;

	cuda_daemon_environment();
	setenv("PAGED_PDL", "yes", 1);
	it_require(fake_cuda_load(), "%s", dlerror());
	it_require(paged_client_open_embedded(&cuda_small_pool, 1, NULL, &client) == PAGED_OK);
	it_require(paged_pool_open(client, "test", &pool) == PAGED_OK);
	it_require(paged_batch_create(pool, NULL, &batch) == PAGED_ERR_INVALID);
	it_require(strcmp(paged_client_error(client), "pool test: PAGED_PDL is \"yes\": 0 and 1 are possible") == 0,
		   "%s", paged_client_error(client));
	paged_client_close(client);
}

IT_MAIN
