/* SPDX-License-Identifier: Apache-2.0 */
/* Pools in a GPU's memory when something is missing, fails or dies. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/cuda/cuda_daemon.h"
#include "tests/fake-cuda/load.h"
#include "tests/support/worker_fixture.h"

/* Starts that are refused */

static void
expect_start_refused(const char *configuration, const char *words)
{
	struct it_daemon daemon;
	const char *output = it_daemon_start_failing(&daemon, configuration);

	it_require(strstr(output, words) != NULL, "%s", output);
}

IT_TEST(start_without_driver_is_refused)
{
	cuda_skip_with_driver();
	expect_start_refused(
		cuda_daemon_config(EXPORT_SETTING_AUTO, "", ""),
		"pagedd.conf:4: pool test: backend = cuda: no CUDA driver (libcuda.so.1 not found); use backend = "
		"host\n");
}

IT_TEST(unusable_devices_are_refused)
{
	cuda_skip_with_gpu();
	cuda_daemon_environment();
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_AUTO, "device = 1", ""),
			     "pagedd.conf:6: pool test: device = 1: there are 1 CUDA devices, counted from 0\n");
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_AUTO, "device = first", ""),
			     "device = first: neither a number nor a UUID as nvidia-smi -L prints it\n");
	expect_start_refused(
		cuda_daemon_config(EXPORT_SETTING_AUTO, "device = GPU-00000000-0000-0000-0000-000000000000", ""),
		"this process sees 1 CUDA devices, and none is the pool's (CUDA_VISIBLE_DEVICES)\n");
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "20=3", 1);
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_AUTO, "", ""),
			     "fake GPU: its compute mode admits one process at a time (nvidia-smi -c DEFAULT)\n");
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "103=0", 1);
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_VMM, "", ""),
			     "pagedd.conf:4: pool test: fake GPU shares no memory by descriptors\n");
	unsetenv("PAGED_FAKE_CUDA_ATTRIBUTES");
	setenv("PAGED_FAKE_CUDA_DEVICES", "0", 1);
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_AUTO, "", ""),
			     "backend = cuda: no CUDA device (the driver sees none: nvidia-smi, CUDA_VISIBLE_DEVICES); "
			     "use backend = host\n");
}

IT_TEST(pool_larger_than_device_memory_is_refused)
{
	cuda_skip_with_gpu();
	cuda_daemon_environment();
	setenv("PAGED_FAKE_CUDA_MEMORY", "8388608", 1);
	expect_start_refused(
		cuda_daemon_config(EXPORT_SETTING_AUTO, "",
				   "pool more { layers = 1 kv-heads = 1 head-dim = 16 size = 64MiB backend = cuda }\n"),
		"pagedd.conf:8: pool more: size = 64MiB: fake GPU (GPU-70616765-6420-6661-6b65-204355444100) "
		"has 8 MiB of memory, 8 MiB available, of which other pools take 256 KiB\n");
	/* Another process takes the memory between the check and the allocation. */
	setenv("PAGED_FAKE_CUDA_FAIL", "cuMemCreate=2", 1);
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_AUTO, "", ""),
			     "pool test: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)\n");
}

/* Export succeeds in the daemon, but no other process can open the memory. */
IT_TEST(export_that_no_process_can_open_is_refused)
{
	struct it_daemon daemon;

	cuda_skip_with_gpu();
	cuda_daemon_environment();
	setenv("PAGED_FAKE_CUDA_FAIL", "cuIpcOpenMemHandle_v2=801", 1);
	expect_start_refused(
		cuda_daemon_config(EXPORT_SETTING_LEGACY, "", ""),
		"pool test: no other process can open the memory: cuIpcOpenMemHandle: CUDA_ERROR_NOT_SUPPORTED "
		"(operation not supported)\n");
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "18=1", 1);
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_LEGACY, "", ""),
			     "(operation not supported); the device is integrated\n");
	unsetenv("PAGED_FAKE_CUDA_ATTRIBUTES");
	/* With export = auto, the daemon falls back to the other method. */
	setenv("PAGED_FAKE_CUDA_FAIL", "cuMemImportFromShareableHandle=800", 1);
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_require(it_daemon_logged(&daemon,
				    "test: export = vmm does not work here: no other process can open the memory: "
				    "cuMemImportFromShareableHandle: CUDA_ERROR_NOT_PERMITTED"));
	it_require(it_daemon_logged(&daemon, "CUDA, legacy, fake GPU"));
	it_daemon_stop(&daemon);
}

IT_TEST(mps_is_logged)
{
	struct it_daemon daemon;

	cuda_skip_with_gpu();
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "133=1", 1);
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_require(it_daemon_logged(&daemon, "warning: pool: test: fake GPU is shared through MPS"));
	it_daemon_stop(&daemon);
}

/* The kernels of a dead process may write pages that are free without a quarantine. */
IT_TEST(mps_needs_a_quarantine)
{
	cuda_skip_with_gpu();
	cuda_daemon_environment();
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "133=1", 1);
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_AUTO, "quarantine = 0s", ""),
			     "quarantine = 0s, but fake GPU is shared through MPS");
}

/* A daemon that does not use MPS cannot know whether its workers do. */
IT_TEST(no_quarantine_is_logged)
{
	struct it_daemon daemon;

	cuda_skip_with_gpu(); /* it may be shared through MPS */
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "quarantine = 0s", "");
	it_require(it_daemon_logged(&daemon, "warning: pool: test: quarantine = 0s: no worker may use "));
	it_daemon_stop(&daemon);
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	/* It is ready, and would have said it before. */
	it_require(!it_daemon_log_has(&daemon, "quarantine = 0s"));
	it_daemon_stop(&daemon);
}

IT_TEST(lost_context_is_reported)
{
	cuda_skip_with_gpu();
	cuda_daemon_environment();
	setenv("PAGED_FAKE_CUDA_FAIL", "cuStreamSynchronize=719", 1);
	expect_start_refused(cuda_daemon_config(EXPORT_SETTING_VMM, "", ""),
			     "pool test: cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure); "
			     "this process cannot use CUDA any more; restart it\n");
}

/* Every driver call fails once */

#define MAX_NAMES 64

struct calls {
	struct {
		char name[48];
		int pid;
		unsigned int n; /* most calls of one process */
		unsigned int now;
	} of[MAX_NAMES];
	unsigned int n;
};

static void
call_count(struct calls *calls, const char *name, int pid)
{
	unsigned int i = 0;

	while (i < calls->n && strcmp(calls->of[i].name, name) != 0)
		i++;
	if (i == calls->n) {
		it_require(calls->n < MAX_NAMES);
		snprintf(calls->of[calls->n++].name, sizeof(calls->of[0].name), "%s", name);
	}
	if (calls->of[i].pid != pid)
		calls->of[i].now = 0;
	calls->of[i].pid = pid;
	if (++calls->of[i].now > calls->of[i].n)
		calls->of[i].n = calls->of[i].now;
}

static void
calls_read(struct calls *calls, const char *path)
{
	FILE *file = fopen(path, "re");
	char name[48];
	int pid, result;

	memset(calls, 0, sizeof(*calls));
	it_require(file != NULL, "%s: %m", path);
	while (fscanf(file, "%d %47s %d", &pid, name, &result) == 3)
		call_count(calls, name, pid);
	fclose(file);
	it_require(calls->n > 8, "%u different calls", calls->n);
}

static const char *
calls_path(const struct it_daemon *daemon)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/calls", daemon->dir);
	return path;
}

/* With each driver call failing once, the daemon either starts or logs the failed call and exits. */
static void daemon_fails_at_every_call(enum export_setting export)
{
	unsigned int n_refused = 0, n_cases = 0;
	struct it_daemon daemon;
	static struct calls calls;
	const char *output;
	char fail[96];

	cuda_daemon_environment();
	/* The first run records the calls. */
	setenv("PAGED_FAKE_CUDA_LOG", "/dev/null", 1);
	cuda_daemon_start(&daemon, export, "", "");
	it_daemon_stop(&daemon);
	setenv("PAGED_FAKE_CUDA_LOG", calls_path(&daemon), 1);
	it_require(it_daemon_try_restart(&daemon, NULL, &output));
	it_daemon_stop(&daemon);
	unsetenv("PAGED_FAKE_CUDA_LOG");
	calls_read(&calls, calls_path(&daemon));
	for (unsigned int i = 0; i < calls.n; i++) {
		for (unsigned int n = 1; n <= calls.of[i].n; n++, n_cases++) {
			snprintf(fail, sizeof(fail), "%s@%u=999", calls.of[i].name, n);
			setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
			if (it_daemon_try_restart(&daemon, NULL, &output)) {
				it_daemon_stop(&daemon);
				continue;
			}
			n_refused++;
			it_require(strstr(output, "pool test: ") != NULL, "%s: %s", fail, output);
		}
	}
	it_note("%u calls failed once each, %u starts were refused", n_cases, n_refused);
	it_require(n_refused > 10);
}

IT_TEST(vmm_daemon_survives_each_failed_call)
{
	cuda_skip_with_gpu();
	daemon_fails_at_every_call(EXPORT_SETTING_VMM);
}

IT_TEST(legacy_daemon_survives_each_failed_call)
{
	cuda_skip_with_gpu();
	daemon_fails_at_every_call(EXPORT_SETTING_LEGACY);
}

static void
open_and_close(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)to;
	setenv("PAGED_FAKE_CUDA_LOG", argument, 1);
	it_require(fake_cuda_load());
	worker_open(&worker, NULL, 0);
	worker_close(&worker);
}

/* The open may fail; the next one must succeed. */
static void
open_with_failure(int from, int to, void *argument)
{
	enum paged_status status;
	struct paged_pool *pool;
	struct worker_fixture worker;
	bool refused;

	(void)from;
	setenv("PAGED_FAKE_CUDA_FAIL", argument, 1);
	it_require(fake_cuda_load());
	worker_attach(&worker, NULL);
	status = paged_pool_open(worker.client, "test", &pool);
	refused = status != PAGED_OK;
	it_require(!refused || strncmp(paged_client_error(worker.client), "pool test: ", 11) == 0, "%s: %s",
		   (char *)argument, paged_client_error(worker.client));
	worker_close(&worker);
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	worker_open(&worker, NULL, 0);
	worker_close(&worker);
	it_send(to, &refused, sizeof(refused));
}

static void worker_fails_at_every_call(enum export_setting export)
{
	unsigned int n_refused = 0, n_cases = 0;
	struct it_worker child;
	struct it_daemon daemon;
	static struct calls calls;
	char fail[96];
	bool refused;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&child, open_and_close, (void *)calls_path(&daemon));
	it_join(&child);
	calls_read(&calls, calls_path(&daemon));
	for (unsigned int i = 0; i < calls.n; i++) {
		for (unsigned int n = 1; n <= calls.of[i].n; n++, n_cases++) {
			snprintf(fail, sizeof(fail), "%s@%u=999", calls.of[i].name, n);
			it_fork(&child, open_with_failure, fail);
			it_receive(child.from, &refused, sizeof(refused));
			it_join(&child);
			n_refused += refused;
		}
	}
	it_note("%u calls failed once each, %u pools were refused", n_cases, n_refused);
	it_require(n_refused > 10);
	it_daemon_stop(&daemon);
}

IT_TEST(vmm_worker_survives_each_failed_call)
{
	cuda_skip_with_gpu();
	worker_fails_at_every_call(EXPORT_SETTING_VMM);
}

IT_TEST(legacy_worker_survives_each_failed_call)
{
	cuda_skip_with_gpu();
	worker_fails_at_every_call(EXPORT_SETTING_LEGACY);
}

/* Death */

/* Attach to the daemon, and again after its restart. */
static void
worker_of_two_daemons(int from, int to, void *argument)
{
	struct worker_fixture worker;
	char word;

	(void)argument;
	it_require(fake_cuda_load());
	for (int boot = 0; boot < 2; boot++) {
		worker_open(&worker, NULL, 0);
		worker_create_seq(&worker, 20);
		it_send(to, "o", 1);
		it_receive(from, &word, 1);
		if (boot == 0)
			worker_expect(&worker, paged_client_ping(worker.client), PAGED_ERR_GONE);
		worker_close(&worker);
		it_require(fake_cuda_n_mappings() == 0);
	}
}

static void kill_and_restart_daemon(enum export_setting export)
{
	struct it_worker workers[2];
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, export, "", "");
	for (int i = 0; i < 2; i++)
		it_fork(&workers[i], worker_of_two_daemons, NULL);
	for (int i = 0; i < 2; i++)
		it_receive(workers[i].from, &word, 1);
	it_daemon_kill(&daemon);
	it_daemon_restart(&daemon, NULL, NULL);
	for (int i = 0; i < 2; i++)
		it_send(workers[i].to, "d", 1);
	for (int i = 0; i < 2; i++)
		it_receive(workers[i].from, &word, 1);
	for (int i = 0; i < 2; i++) {
		it_send(workers[i].to, "e", 1);
		it_join(&workers[i]);
	}
	it_daemon_stop(&daemon);
}

IT_TEST(workers_reattach_after_vmm_daemon_is_killed)
{
	kill_and_restart_daemon(EXPORT_SETTING_VMM);
}

IT_TEST(workers_reattach_after_legacy_daemon_is_killed)
{
	kill_and_restart_daemon(EXPORT_SETTING_LEGACY);
}

IT_MAIN
