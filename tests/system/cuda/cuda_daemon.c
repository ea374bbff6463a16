/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/cuda/cuda_daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cuda/host/gpu.h"
#include "tests/fake-cuda/load.h"
#include "tests/support/geometry.h"
#include "tests/support/worker_fixture.h"

const struct paged_pool_params cuda_small_pool = { .struct_size = sizeof(cuda_small_pool),
						   .name = "test",
						   .backend = "cuda",
						   .n_layers = 1,
						   .n_kv_heads = 1,
						   .k_dim = 64,
						   .dtype = PAGED_F16,
						   .n_pages = 4 };

static struct paged_error
driver_try(void)
{
	struct paged_error error = { 0 };
	struct cuda_gpu gpu;

	if (cuda_gpu_open(&gpu, "0", &error) == PAGED_OK)
		cuda_gpu_close(&gpu);
	return error;
}

static void
driver_try_and_send(int from, int to, void *argument)
{
	struct paged_error error = driver_try();

	(void)from, (void)argument;
	it_send(to, &error, sizeof(error));
}

/* Shared by the processes of all tests of the program. */
static struct driver_answer {
	bool is_known;
	struct paged_error error;
} * driver_answer;

__attribute__((constructor)) static void
driver_answer_map(void)
{
	driver_answer = mmap(NULL, sizeof(*driver_answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (driver_answer == MAP_FAILED)
		abort();
}

/*
 * Once for all tests, because to open a device takes up to a second.  In a child if the test may start workers: a child
 * of a process that has started CUDA cannot use it.
 */
static void
driver_require(void)
{
	struct it_worker child;

	if (!driver_answer->is_known && it_in_process()) {
		driver_answer->error = driver_try();
	} else if (!driver_answer->is_known) {
		it_fork(&child, driver_try_and_send, NULL);
		it_receive(child.from, &driver_answer->error, sizeof(driver_answer->error));
		it_join(&child);
	}
	driver_answer->is_known = true;
	if (driver_answer->error.status != PAGED_OK)
		it_skip("%s", driver_answer->error.text);
}

void
cuda_daemon_environment(void)
{
	char path[4200];

	if (!fake_cuda_wanted()) {
		driver_require();
		return;
	}
	snprintf(path, sizeof(path), "%s/libcuda.so.1", fake_cuda_path());
	if (access(path, R_OK) != 0)
		it_skip("the fake CUDA driver is not built");
	setenv("LD_LIBRARY_PATH", fake_cuda_path(), 1);
}

const char *
cuda_daemon_config(enum export_setting export, const char *pool_settings, const char *more_config)
{
	static const char *const names[] = { "auto", "vmm", "legacy" };
	static char text[2048];

	snprintf(text, sizeof(text),
		 "pool test {\n" WORKER_POOL_SETTINGS "\n"
		 " backend = cuda\n"
		 " export = %s\n"
		 " %s\n"
		 "}\n"
		 "%s",
		 names[export], pool_settings, more_config);
	return text;
}

void
cuda_daemon_start(struct it_daemon *daemon, enum export_setting export, const char *pool_settings,
		  const char *more_config)
{
	cuda_daemon_environment();
	it_daemon_start(daemon, cuda_daemon_config(export, pool_settings, more_config), NULL, NULL);
}

void
cuda_skip_with_driver(void)
{
	if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL)
		it_skip("this machine has a CUDA driver");
}

void
cuda_skip_with_gpu(void)
{
	if (!fake_cuda_wanted())
		it_skip("for the fake driver: a real one fails, logs and shows devices as it likes");
}

void
cuda_expect_refusal(enum paged_status status, const char *part)
{
	struct paged_pool *pool;
	struct worker_fixture worker;

	it_require(fake_cuda_load());
	worker_attach(&worker, NULL);
	worker_expect(&worker, paged_pool_open(worker.client, "test", &pool), status);
	it_require(strstr(paged_client_error(worker.client), part) != NULL, "%s", paged_client_error(worker.client));
	worker_close(&worker);
}

void
cuda_daemon_allow_all_users(const struct it_daemon *daemon)
{
	it_require(chmod(daemon->dir, 0711) == 0, "%m");
}

unsigned int
fake_cuda_n_calls(const char *name)
{
	FILE *file = fopen(getenv("PAGED_FAKE_CUDA_LOG"), "re");
	unsigned int n = 0;
	char each[64];
	int pid, result;

	it_require(file != NULL, "%m");
	while (fscanf(file, "%d %63s %d", &pid, each, &result) == 3)
		n += pid == getpid() && (name == NULL || strcmp(each, name) == 0);
	fclose(file);
	return n;
}

unsigned int
fake_cuda_n_runs(const char *prefix)
{
	FILE *file = fopen(getenv("PAGED_FAKE_CUDA_RUNS"), "re");
	unsigned int n = 0;
	char each[64];
	int pid;

	it_require(file != NULL, "%m");
	while (fscanf(file, "%d %63s", &pid, each) == 2)
		n += pid == getpid() && strncmp(each, prefix, strlen(prefix)) == 0;
	fclose(file);
	return n;
}

unsigned int
fake_cuda_n_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned int n = 0;
	char line[512];

	it_require(maps != NULL, "%m");
	while (fgets(line, sizeof(line), maps) != NULL)
		n += strstr(line, "paged-fake-cuda") != NULL;
	fclose(maps);
	return n;
}
