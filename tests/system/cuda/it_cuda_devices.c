/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of a pool in a GPU's memory that see other devices, or no driver: on the fake driver. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/system/cuda/cuda_daemon.h"
#include "tests/support/worker_fixture.h"
#include "tests/fake-cuda/load.h"

static void
worker_on_another_device(int from, int to, void *argument)
{
	(void)from, (void)to, (void)argument;
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	cuda_expect_refusal(PAGED_ERR_NOENT, "pool test: this process sees 1 CUDA devices, and none is the pool's");
}

static void
worker_with_reordered_devices(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	it_require(fake_cuda_load());
	worker_open(&worker, NULL, 0);
	worker_close(&worker);
}

static void
worker_without_driver(int from, int to, void *argument)
{
	struct paged_pool *pool;
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	worker_attach(&worker, NULL);
	worker_expect(&worker, paged_pool_open(worker.client, "test", &pool), PAGED_ERR_UNSUPPORTED);
	it_require(strcmp(paged_client_error(worker.client), "pool test: no CUDA driver (libcuda.so.1 not found)") == 0,
		   "%s", paged_client_error(worker.client));
	worker_close(&worker);
}

IT_TEST(devices_are_found_by_uuid)
{
	struct it_worker child;
	struct it_daemon daemon;

	cuda_skip_with_gpu();
	setenv("PAGED_FAKE_CUDA_DEVICES", "2", 1);
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "device = GPU-70616765-6420-6661-6b65-204355444100", "");
	it_fork(&child, worker_on_another_device, NULL);
	it_join(&child);
	it_fork(&child, worker_with_reordered_devices, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

static void
run_without_driver(enum export_setting export, void (*run)(int from, int to, void *argument))
{
	struct it_worker child;
	struct it_daemon daemon;

	cuda_skip_with_driver();
	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&child, run, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

IT_TEST(worker_without_driver_gets_an_error)
{
	run_without_driver(EXPORT_SETTING_AUTO, worker_without_driver);
}

/* A router or monitor needs no driver. */
static void
tables_without_driver(int from, int to, void *argument)
{
	struct paged_client_params params = worker_params("tables only");
	struct worker_fixture worker;
	struct paged_watch *watch;

	(void)from, (void)to, (void)argument;
	params.tables_only = 1;
	params.observer = 1;
	worker_attach(&worker, &params);
	worker_ok(&worker, paged_pool_open(worker.client, "test", &worker.pool));
	worker.info.struct_size = sizeof(worker.info);
	worker_ok(&worker, paged_pool_get_info(worker.pool, &worker.info));
	it_require(strcmp(worker.info.backend, "cuda") == 0 && worker.info.base == NULL);
	worker_ok(&worker, paged_watch_open(worker.pool, &watch));
	worker_check_pool(&worker);
	worker_close(&worker);
}

IT_TEST(tables_of_vmm_memory_need_no_driver)
{
	run_without_driver(EXPORT_SETTING_VMM, tables_without_driver);
}

IT_TEST(tables_of_legacy_memory_need_no_driver)
{
	run_without_driver(EXPORT_SETTING_LEGACY, tables_without_driver);
}

IT_MAIN
